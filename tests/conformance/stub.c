#include "suite.h"
const struct test_case transfer_cases[] = {{}}, fence_cases[] = {{}}, mapping_cases[] = {{}}, process_cases[] = {{}}, abi_cases[] = {{}}, star_cases[] = {{}};
