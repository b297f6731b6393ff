// SPDX-License-Identifier: GPL-2.0
/*
 * The table of rules and cases: finds, prints and checks them.
 */
#include "suite.h"

const struct test_case *find_case(const char *name)
{
	const struct test_case *const *file, *test;

	for (file = suite.cases; *file; file++) {
		for (test = *file; test->name; test++) {
			if (!strcmp(test->name, name))
				return test;
		}
	}
	return NULL;
}

const struct rule *find_rule(const char *id)
{
	const struct rule *rule;

	for (rule = rules; rule->id; rule++) {
		if (!strcmp(rule->id, id))
			return rule;
	}
	return NULL;
}

/* Takes the next word from *words. */
static bool next_word(const char **words, char *word, size_t room)
{
	size_t len;

	*words += strspn(*words, " ");
	len = strcspn(*words, " ");
	if (!len || len >= room)
		return false;
	memcpy(word, *words, len);
	word[len] = 0;
	*words += len;
	return true;
}

bool case_checks(const struct test_case *test, const char *rule)
{
	const char *words = test->rules;
	char word[64];

	while (next_word(&words, word, sizeof(word))) {
		if (!strcmp(word, rule))
			return true;
	}
	return false;
}

/* Returns the next case after the given position that checks the rule. */
static const struct test_case *next_case(const struct rule *rule,
					 const struct test_case *const **file,
					 const struct test_case **test)
{
	const struct test_case *found;

	for (; **file; *test = *++*file) {
		for (; *test && (*test)->name; ++*test) {
			if (!case_checks(*test, rule->id))
				continue;
			found = *test;
			++*test;
			return found;
		}
	}
	return NULL;
}

void print_rules(void)
{
	const struct test_case *const *file, *test, *found;
	const struct rule *rule;
	const char *between;

	printf(".. %s-License-Identifier: GPL-2.0\n", "SPDX");
	printf(".. Made by \"%s rules\"; scripts/check compares.\n\n"
	       "=====================\nRules and their cases\n=====================\n\n"
	       "%s\n"
	       ".. list-table::\n   :header-rows: 1\n\n"
	       "   * - Rule\n     - Statement\n     - Source\n     - Checked by\n",
	       suite.name, suite.about_rules);
	for (rule = rules; rule->id; rule++) {
		printf("   * - %s\n     - %s\n     - %s\n     - ", rule->id, rule->statement,
		       rule->source);
		between = "";
		file = suite.cases;
		test = *file;
		while ((found = next_case(rule, &file, &test))) {
			printf("%s%s", between, found->name);
			between = ", ";
		}
		if (rule->lab_test) {
			printf("%slab test %s", between, rule->lab_test);
			between = ", ";
		}
		if (rule->untested)
			printf("%snot tested: %s", between, rule->untested);
		putchar('\n');
	}
}

bool check_rules(void)
{
	const struct test_case *const *file, *test;
	const struct rule *rule;
	const char *words;
	char word[64];
	bool well = true;

	for (rule = rules; rule->id; rule++) {
		file = suite.cases;
		test = *file;
		if (find_rule(rule->id) != rule) {
			fprintf(stderr, "two rules are called '%s'\n", rule->id);
			well = false;
		}
		if (!rule->lab_test && !rule->untested && !next_case(rule, &file, &test)) {
			fprintf(stderr, "no case checks the rule '%s'\n", rule->id);
			well = false;
		}
	}
	for (file = suite.cases; *file; file++) {
		for (test = *file; test->name; test++) {
			words = test->rules;
			if (find_case(test->name) != test) {
				fprintf(stderr, "two cases are called '%s'\n", test->name);
				well = false;
			}
			if (!*words) {
				fprintf(stderr, "the case '%s' names no rule\n", test->name);
				well = false;
			}
			while (next_word(&words, word, sizeof(word))) {
				if (find_rule(word))
					continue;
				fprintf(stderr, "the case '%s' names an unknown rule '%s'\n",
					test->name, word);
				well = false;
			}
		}
	}
	return well;
}
