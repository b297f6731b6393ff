// SPDX-License-Identifier: GPL-2.0
/*
 * The main program of a suite: runs the cases, serves those of other nodes, or lists cases and
 * rules.
 */
#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>

#include "suite.h"

static const char usage[] =
	"Usage: %1$s COMMAND [OPTION...]\n"
	"\n"
	"  run      run the cases on this node; print TAP\n"
	"    --topology loopback        both ends on this node; the default\n"
	"    --topology two --peer N    the other ends on node N\n"
	"    --topology three --peer N --peer M\n"
	"                               the other ends on nodes N and M; adds the cases for\n"
	"                               three nodes\n"
	"    --only PATTERN             only cases whose name contains PATTERN, or matches it\n"
	"                               as a file pattern; can be given more than once\n"
	"    --except PATTERN           all cases but these\n"
	"    --staged both|peers|here   windows of the peers, or of this node for the peers,\n"
	"                               are out of reach, as in bounce mode: skips the cases\n"
	"                               that map them, and adds those for staging\n"
	"    --device-memory FOLDER     the folder in sysfs of a PCI device of this node whose\n"
	"                               BAR 2 is memory: adds the cases for such memory\n"
	"    --time-limit SECONDS       the time after which a case counts as hung; 200 by\n"
	"                               default\n"
	"  agent    serve the cases of other nodes; start it on each peer before 'run'\n"
	"    --port PORT                the port, here and with 'run'; %2$u by default\n"
	"    --time-limit SECONDS       as with 'run'\n"
	"  list     print the names of the cases, and the rules that each checks\n"
	"  rules    print the rules, and the cases that check each, as reStructuredText\n"
	"  check    print rules without a case and cases without a rule; needs no driver\n"
	"\n"
	"Examples:\n"
	"  %1$s run\n"
	"  %1$s run --topology two --peer 1 --only 'connect_*'\n"
	"\n"
	"Exit status: 0 if all cases passed, 1 if a case failed, 2 if the suite could not run.\n";

static void list_cases(void)
{
	const struct test_case *const *file, *test;

	for (file = suite.cases; *file; file++) {
		for (test = *file; test->name; test++)
			printf("%-44s %s\n", test->name, test->rules);
	}
}

static void refuse(const char *reason)
{
	fprintf(stderr, "%s: %s; see '%s --help'\n", suite.name, reason, suite.name);
	exit(2);
}

static long parse_number(const char *text, long max)
{
	char *rest;
	long value = strtol(text, &rest, 10);

	if (*rest || rest == text || value < 0 || value > max)
		refuse("not a number in range");
	return value;
}

struct options {
	struct patterns only, except;
	bool has_topology;
	__u16 port;
};

static void add_pattern(struct patterns *patterns, const char *pattern)
{
	if (patterns->count == ARRAY_SIZE(patterns->pattern))
		refuse("too many patterns");
	patterns->pattern[patterns->count++] = pattern;
}

static void parse(int argc, char **argv, struct options *options)
{
	static const struct option known[] = {
		{ "topology", required_argument, NULL, 't' },
		{ "peer", required_argument, NULL, 'p' },
		{ "only", required_argument, NULL, 'o' },
		{ "except", required_argument, NULL, 'x' },
		{ "staged", required_argument, NULL, 's' },
		{ "device-memory", required_argument, NULL, 'd' },
		{ "time-limit", required_argument, NULL, 'l' },
		{ "port", required_argument, NULL, 'P' },
		{ }
	};
	int option;

	while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
		switch (option) {
		case 't':
			if (!strcmp(optarg, "loopback"))
				run.topology = TOPOLOGY_LOOPBACK;
			else if (!strcmp(optarg, "two"))
				run.topology = TOPOLOGY_TWO;
			else if (!strcmp(optarg, "three"))
				run.topology = TOPOLOGY_THREE;
			else
				refuse("the topologies are loopback, two and three");
			break;
		case 'p':
			if (run.peers == MAX_PEERS)
				refuse("too many peers");
			run.agent[run.peers++].node = parse_number(optarg, 0xffff);
			break;
		case 'o':
			add_pattern(&options->only, optarg);
			break;
		case 'x':
			add_pattern(&options->except, optarg);
			break;
		case 's':
			run.staged_peers = !strcmp(optarg, "both") || !strcmp(optarg, "peers");
			run.staged_here = !strcmp(optarg, "both") || !strcmp(optarg, "here");
			if (!run.staged_peers && !run.staged_here)
				refuse("staged are both, peers or here");
			break;
		case 'd':
			run.device_memory = optarg;
			break;
		case 'l':
			runner.limit = parse_number(optarg, 100000);
			break;
		case 'P':
			options->port = parse_number(optarg, 0xffff);
			break;
		default:
			refuse("unknown option");
		}
	}
	if (optind < argc)
		refuse("too many arguments");
}

/* Starts the agent as a child, which ends with this process, so that both ends are on this node. */
static void start_own_agent(void)
{
	__u16 port = 0;
	int listener = listening(&port, 64);
	pid_t child;

	run.agent[0].node = own_node();
	run.agent[0].port = port;
	run.peers = 1;
	child = fork();
	if (child < 0)
		refuse("cannot fork");
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		run_agent(listener);
	}
	scif_close(listener);
}

static int command_run(const struct options *options)
{
	static const int peers[] = {
		[TOPOLOGY_LOOPBACK] = 0,
		[TOPOLOGY_TWO] = 1,
		[TOPOLOGY_THREE] = 2,
	};
	int i;

	if (run.peers != peers[run.topology])
		refuse("two nodes take one --peer, three take two, loopback none");
	for (i = 0; i < run.peers; i++)
		run.agent[i].port = options->port;
	if (run.topology == TOPOLOGY_LOOPBACK)
		start_own_agent();
	return run_cases(&options->only, &options->except);
}

static int command_agent(const struct options *options)
{
	__u16 port = options->port;
	int listener = listening(&port, 64);

	/* The process that has started the agent may wait for this line. */
	printf("agent on port %u\n", port);
	fflush(stdout);
	run_agent(listener);
	return 2;
}

int main(int argc, char **argv)
{
	struct options options = { .port = suite.agent_port };
	const char *command = argc > 1 ? argv[1] : "--help";

	if (!strcmp(command, "--help") || !strcmp(command, "help") ||
	    (argc > 2 && !strcmp(argv[2], "--help"))) {
		printf(usage, suite.name, suite.agent_port);
		return 0;
	}
	parse(argc - 1, argv + 1, &options);
	if (!strcmp(command, "run"))
		return command_run(&options);
	if (!strcmp(command, "agent"))
		return command_agent(&options);
	if (!strcmp(command, "list")) {
		list_cases();
		return 0;
	}
	if (!strcmp(command, "rules")) {
		print_rules();
		return 0;
	}
	if (!strcmp(command, "check"))
		return check_rules() ? 0 : 1;
	refuse("unknown command");
	return 2;
}
