#include "suite.h"
const struct test_case mapping_cases[] = {{}}, process_cases[] = {{}}, abi_cases[] = {{}}, star_cases[] = {{}};
