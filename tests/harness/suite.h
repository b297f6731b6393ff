/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of a suite of cases share: SCIF's (../conformance), and SISCI's (../sisci).
 *
 * A case is a function that runs in a process of its own. It talks to the driver through
 * libscif, and to helpers on the other node, each a process that makes calls when asked
 * (see peer.c), so that what both ends do is written in one place, in the order in which it
 * happens. The first check that fails ends the case.
 *
 * Nothing here waits for a time to pass: a case waits for a condition, and the runner kills
 * it when its time is over.
 */
#ifndef SUITE_H
#define SUITE_H

#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#include "checks.h"

/* The names of the kernel's header, which has no capitals in them. */
#define SCIF_NEW_NAMES
#include <scif.h>

/* --- Rules --- */

/* A sentence of the specification that can be tested. */
struct rule {
	const char *id;
	/* Where it is said. */
	const char *source;
	const char *statement;
	/* The lab test that checks it from outside of the nodes, if no case can. */
	const char *lab_test;
	/* Why it can't be tested, if it can't. */
	const char *untested;
};

/* Ends with an entry without an id. */
extern const struct rule rules[];

const struct rule *find_rule(const char *id);
/* Prints the table of the rules in reStructuredText. */
void print_rules(void);
/* Says on stderr which rules have no case, and so on; returns whether all is well. */
bool check_rules(void);

/* --- Cases --- */

enum case_kind {
	/* Needs no other process on another node. */
	CASE_ALONE,
	/* Likewise, and takes so long that once, over loopback, is enough. */
	CASE_ALONE_LONG,
	/* Needs a peer: on the other node, or on this one. */
	CASE_PAIR,
	/* Likewise, and the windows of the peer are within reach. */
	CASE_PAIR_MAPPED,
	/* Likewise, and they are not: what is for them is staged. */
	CASE_PAIR_STAGED,
	/* As CASE_PAIR, and windows of this node are within reach of the peer. */
	CASE_PAIR_MAPPING_US,
	/* Needs a peer, and a device of this node that has memory; run if that is named. */
	CASE_PAIR_DEVICE,
	/* Needs two peers, on two other nodes. */
	CASE_STAR,
};

struct test_case {
	const char *name;
	enum case_kind kind;
	/* The ids of the rules that it checks, with a space between them. */
	const char *rules;
	void (*run)(void);
	/* What DO_RUN does in a peer, if the case needs more than single calls there. */
	__s64 (*there)(const __s64 *argument);
};

#define ALONE(function, rule_ids) \
	{ .name = #function, .kind = CASE_ALONE, .rules = rule_ids, .run = function }
#define ALONE_LONG(function, rule_ids) \
	{ .name = #function, .kind = CASE_ALONE_LONG, .rules = rule_ids, .run = function }
#define PAIR(function, rule_ids) \
	{ .name = #function, .kind = CASE_PAIR, .rules = rule_ids, .run = function }
#define PAIR_WITH(function, remote, rule_ids) \
	{ .name = #function, .kind = CASE_PAIR, .rules = rule_ids, .run = function, \
	  .there = remote }
#define PAIR_MAPPED(function, rule_ids) \
	{ .name = #function, .kind = CASE_PAIR_MAPPED, .rules = rule_ids, .run = function }
#define PAIR_MAPPED_WITH(function, remote, rule_ids) \
	{ .name = #function, .kind = CASE_PAIR_MAPPED, .rules = rule_ids, .run = function, \
	  .there = remote }
#define PAIR_MAPPING_US(function, rule_ids) \
	{ .name = #function, .kind = CASE_PAIR_MAPPING_US, .rules = rule_ids, .run = function }
#define PAIR_STAGED(function, rule_ids) \
	{ .name = #function, .kind = CASE_PAIR_STAGED, .rules = rule_ids, .run = function }
#define PAIR_DEVICE(function, rule_ids) \
	{ .name = #function, .kind = CASE_PAIR_DEVICE, .rules = rule_ids, .run = function }
#define STAR(function, rule_ids) \
	{ .name = #function, .kind = CASE_STAR, .rules = rule_ids, .run = function }

/* Each ends with an entry without a name. */
extern const struct test_case bind_listen_cases[], connect_cases[], accept_cases[],
	send_receive_cases[], poll_cases[], close_cases[], register_cases[], unregister_cases[],
	memory_cases[], device_cases[],
	transfer_cases[], fence_cases[], mapping_cases[], nodes_cases[], process_cases[],
	abi_cases[], names_cases[], send_all_cases[], star_cases[], status_cases[];

/* What a suite brings along beside its rules. */
struct suite {
	const char *name;
	/* Lines above the table of the rules. */
	const char *about_rules;
	/* The lists of cases; ends with NULL. */
	const struct test_case *const *cases;
	__u16 agent_port;
	/* Operations of peers beside those below, if there are any. */
	long (*operation)(__u32 operation, const __s64 *argument, __s64 *answer);
};

extern const struct suite suite;

const struct test_case *find_case(const char *name);
bool case_checks(const struct test_case *test, const char *rule);

/* --- Running --- */

enum topology {
	TOPOLOGY_LOOPBACK,
	TOPOLOGY_TWO,
	TOPOLOGY_THREE,
};

#define MAX_PEERS	2

/* How this run is. Set before the cases are forked. */
struct run {
	enum topology topology;
	/* Where the agents are. */
	int peers;
	struct scif_port_id agent[MAX_PEERS];
	/* The one that cases with one peer use. */
	int current_peer;
	/* The windows of peers are out of reach; and those of this node for them. */
	bool staged_peers, staged_here;
	/* The folder of sysfs of a device whose BAR 2 is memory, if there is one. */
	const char *device_memory;
	const struct test_case *test;
};

extern struct run run;

/* Parts of names, or file patterns. */
struct patterns {
	const char *pattern[64];
	int count;
};

/* Returns the exit status. */
int run_cases(const struct patterns *only, const struct patterns *except);
/* Serves the cases of other nodes for ever. */
void run_agent(int listener);
/* A listening endpoint; *port is the port that it gets, or 0 for any. */
int listening(__u16 *port, int backlog);

/*
 * How long to look that something does not happen: long enough for a call that does not
 * block to have returned, most of the time. Can't make a right driver fail.
 */
#define A_MOMENT	30

/* --- Memory and its content --- */

/* A page is what the kernel says: arm64 has kernels with 4, 16 and 64 KiB. */
#define PAGE		sysconf(_SC_PAGESIZE)
#define MIB		(1024 * 1024L)
#define NOBODY		65534

/* A pattern that neither repeats nor is the same for two seeds. */
void fill(void *to, __u32 seed, long len);
/* The first byte that differs from it, or -1. */
long differs(const void *from, __u32 seed, long len);
/* Where the first byte is another one, or -1. */
long differs_from_byte(const void *from, int byte, long len);
/* Pages of zeroes that fork does not share. */
void *pages(long count);

/* --- Peers --- */

/* A process on another node (or on this one) that does what it is asked. */
struct peer;

/* What a peer can do. Its arguments, what it returns, and answer[] if that is used. */
enum operation {
	DO_OPEN,	/* endpoint */
	DO_CLOSE,	/* (endpoint) */
	DO_BIND,	/* (endpoint, port): port */
	DO_LISTEN,	/* (endpoint, backlog) */
	DO_LISTENER,	/* (backlog): a listening endpoint; answer[0] its port */
	DO_CONNECT,	/* (endpoint, node, port): own port */
	DO_ACCEPT,	/* (endpoint, flags): endpoint; answer[0] node and [1] port of the peer */
	DO_SEND,	/* (endpoint, address, len, flags) */
	DO_RECV,	/* (endpoint, address, len, flags) */
	DO_REGISTER,	/* (endpoint, address, len, offset, prot, flags) */
	DO_UNREGISTER,	/* (endpoint, offset, len) */
	DO_READFROM,	/* (endpoint, local offset, len, remote offset, flags) */
	DO_WRITETO,	/* likewise */
	DO_VREADFROM,	/* (endpoint, address, len, remote offset, flags) */
	DO_VWRITETO,	/* likewise */
	DO_MMAP,	/* (endpoint, offset, len, prot): address */
	DO_MUNMAP,	/* (address, len) */
	DO_MARK,	/* (endpoint, flags): mark */
	DO_WAIT,	/* (endpoint, mark) */
	DO_SIGNAL,	/* (endpoint, loff, lval, roff, rval, flags) */
	DO_POLL,	/* (endpoint, events, timeout): events */
	DO_NODES,	/* count of nodes; answer[0] self, [1] on the first of them */
	DO_PAGES,	/* (count): address */
	DO_FILL,	/* (address, seed, len) */
	DO_DIFFERS,	/* (address, seed, len) */
	DO_DIFFERS_FROM_BYTE,	/* (address, byte, len) */
	DO_PEEK,	/* (address): answer[0] the 64-bit value */
	DO_POKE,	/* (address, value) */
	DO_SPIN,	/* (address, value): waits until it is there */
	DO_SET_NONBLOCK,	/* (endpoint, on) */
	DO_LOCKED,	/* bytes of locked memory of the peer */
	DO_PID,		/* process id */
	DO_RUN,		/* what the case brings along */
	DO_EXIT,	/* no answer: the process ends without closing anything */
	DO_DIE,		/* no answer: the process kills itself */
	DO_OTHERS,	/* from here on: what the suite brings along */
};

struct peer *new_peer(void);
/* On the node of the agent with that index, in a star. */
struct peer *new_peer_on(int index);
__u16 peer_node(const struct peer *peer);
/* The other results of the last operation. */
__s64 answer(const struct peer *peer, int index);
/* Has something done that is not waited for. */
void begin_operation(struct peer *peer, __u32 operation, const __s64 *argument);
/* Both: has something done, and waits for it. */
long ask_operation(struct peer *peer, __u32 operation, const __s64 *argument);
/* Waits for it. Returns what the call there has returned; errno is the one there. */
long end(struct peer *peer);
/* Whether it has ended. */
bool has_ended(struct peer *peer);
/* Waits until the process is gone. */
void wait_for_death(struct peer *peer);
/* In a peer: serves until its case ends. */
noreturn void serve(int control);

#define begin(peer, operation, ...) \
	begin_operation(peer, operation, (const __s64[8]) { __VA_ARGS__ })
#define ask(peer, operation, ...) \
	ask_operation(peer, operation, (const __s64[8]) { __VA_ARGS__ })

/* Two connected endpoints. */
struct pair {
	struct peer *peer;
	int here;
	int there;
	/* The ports of both. */
	__u16 own_port;
	__u16 peer_port;
};

/* Connects a new endpoint here with a new one there. */
struct pair connected_to(struct peer *peer);
/* The same, with a new peer. */
struct pair connected(void);
/* The same within this process and node. */
struct pair connected_here(void);

#define SYNC		SCIF_RMA_SYNC
#define READ_WRITE	(SCIF_PROT_READ | SCIF_PROT_WRITE)

/* A pair with a window of the same size at both ends. */
struct windows {
	struct pair pair;
	long len;
	unsigned char *memory;
	off_t offset;
	/* Of the peer: its address there, and its offset. */
	__s64 peer_memory;
	off_t peer_offset;
};

struct windows connected_windows(long page_count);

/* --- Small helpers --- */

/* What poll says of an endpoint; waits for one of the events. */
int poll_for(int endpoint, int events, int timeout);
/* Waits until the peer has closed. */
void wait_for_hangup(int endpoint);
/* How long a queue that was full may take to become larger by itself, by far. */
#define GROWTH_MILLISECONDS	300
/* All that fits, without blocking; returns how much. */
long stuff(int endpoint);
__u16 own_node(void);
/* A node that is not there: the highest one up to a node, or any. */
__u16 absent_node_up_to(__u16 id);
__u16 absent_node(void);
/* Bytes of locked memory of this process. */
long locked(void);
/* Pages of this node that are pinned, by whomever. */
long pinned(void);
void set_nonblock(int endpoint, bool on);
int connect_to(int endpoint, __u16 node, __u16 port);
/* Gives the root's privileges up for good, and limits locked memory. */
void drop_privileges(long locked_limit);
/* Likewise, as a user who need not be nobody. */
void become(unsigned int user, long locked_limit);
/* Runs a function in a child; it ends the child. */
pid_t in_child(void (*function)(void *data), void *data);
/* Waits for the child; it must not have failed. */
void child_passed(pid_t child);
/* The signal that has ended it, or 0. */
int child_signal(pid_t child);

/* The peer must not have done yet what it was asked. */
void expect_blocked(struct peer *peer);
/*
 * Signals to this process every few milliseconds, so that sooner or later one arrives in the
 * middle of the call that waits; with restart, the call is to go on.
 */
void interrupt_repeatedly(bool restart);
void stop_interrupting(void);
/* How many have come. */
int interruptions(void);
/* A thread that gets no signals. */
pthread_t in_thread(void *(*function)(void *data), void *data);
void *thread_result(pthread_t thread);

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))

#endif
