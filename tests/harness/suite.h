/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations for the files of a suite of cases: SCIF's (../conformance), and SISCI's (../sisci).
 *
 * A case is a function that runs in a process of its own. It talks to the driver through libscif,
 * and to helpers on the other node, each a process that makes calls on request (see peer.c). So the
 * code of both ends is in one place, in the order in which it happens. The first check that fails
 * ends the case.
 *
 * No case waits for a time to pass. A case waits for a condition, and the runner kills the case
 * when its time is over.
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

/* Selects the names of the kernel's header, which have no capitals. */
#define SCIF_NEW_NAMES
#include <scif.h>

/* --- Rules --- */

/* A sentence of the specification that can be tested. */
struct rule {
	const char *id;
	/* The place of the sentence in the specification. */
	const char *source;
	const char *statement;
	/* The lab test that checks the rule from outside of the nodes, if no case can. */
	const char *lab_test;
	/* The reason why the rule can't be tested, or NULL. */
	const char *untested;
};

/* All rules. The last entry has no id. */
extern const struct rule rules[];

const struct rule *find_rule(const char *id);
/* Prints the table of the rules in reStructuredText. */
void print_rules(void);
/* Prints on stderr which rules have no case, and other faults. Returns whether there are none. */
bool check_rules(void);

/* --- Cases --- */

enum case_kind {
	/* Needs no other process on another node. */
	CASE_ALONE,
	/* Needs no process on another node, and takes so long that it runs only over loopback. */
	CASE_ALONE_LONG,
	/* Needs a peer: on the other node, or on this one. */
	CASE_PAIR,
	/* Needs a peer whose windows are within direct reach. */
	CASE_PAIR_MAPPED,
	/* Needs a peer whose windows are out of reach, so that transfers to them are staged. */
	CASE_PAIR_STAGED,
	/* Needs a peer that reaches windows of this node directly. */
	CASE_PAIR_MAPPING_US,
	/*
	 * Needs a peer, and a device of this node with memory. It runs only if the caller names a
	 * device.
	 */
	CASE_PAIR_DEVICE,
	/* Needs two peers, on two other nodes. */
	CASE_STAR,
};

struct test_case {
	const char *name;
	enum case_kind kind;
	/* The ids of the rules that the case checks, separated by spaces. */
	const char *rules;
	void (*run)(void);
	/*
	 * The function that DO_RUN calls in a peer, if the case needs more than single calls there.
	 */
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

/* The cases of each file. The last entry has no name. */
extern const struct test_case bind_listen_cases[], connect_cases[], accept_cases[],
	send_receive_cases[], poll_cases[], close_cases[], register_cases[], unregister_cases[],
	memory_cases[], device_cases[],
	transfer_cases[], fence_cases[], mapping_cases[], nodes_cases[], process_cases[],
	abi_cases[], names_cases[], send_all_cases[], star_cases[], status_cases[];

/* The parts of a suite besides its rules. */
struct suite {
	const char *name;
	/* Lines above the table of the rules. */
	const char *about_rules;
	/* The lists of cases. The last entry is NULL. */
	const struct test_case *const *cases;
	__u16 agent_port;
	/* Makes operations of peers that are not listed below, or NULL. */
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

/* The parameters of this run, which are set before the cases are forked. */
struct run {
	enum topology topology;
	/* The nodes and ports of the agents. */
	int peers;
	struct scif_port_id agent[MAX_PEERS];
	/* Index of the agent for cases with one peer. */
	int current_peer;
	/* Whether windows of the peers are out of this node's direct reach, and the reverse. */
	bool staged_peers, staged_here;
	/* The sysfs folder of a device whose BAR 2 is memory, or NULL. */
	const char *device_memory;
	const struct test_case *test;
};

extern struct run run;

/* Parts of names, or file patterns. */
struct patterns {
	const char *pattern[64];
	int count;
};

/* Runs the cases. Returns the exit status. */
int run_cases(const struct patterns *only, const struct patterns *except);
/* Serves the cases of other nodes without end. */
void run_agent(int listener);
/*
 * Returns a listening endpoint. *port is the wanted port, or 0 for any; the function stores the
 * port there.
 */
int listening(__u16 *port, int backlog);

/*
 * Time in milliseconds for checks that an event does not happen. Mostly it is long enough for a
 * call that does not block to have returned. It can't make a right driver fail.
 */
#define A_MOMENT	30

/* --- Memory and its content --- */

/* The kernel determines the page size: arm64 has kernels with 4, 16 and 64 KiB. */
#define PAGE		sysconf(_SC_PAGESIZE)
#define MIB		(1024 * 1024L)
#define NOBODY		65534

/* Fills memory with a pattern that does not repeat, and that differs for each seed. */
void fill(void *to, __u32 seed, long len);
/* Returns the index of the first byte that differs from the pattern, or -1. */
long differs(const void *from, __u32 seed, long len);
/* Returns the index of the first byte that differs from `byte`, or -1. */
long differs_from_byte(const void *from, int byte, long len);
/* Returns pages of zeroes that fork does not share. */
void *pages(long count);

/* --- Peers --- */

/* A process on another node (or on this one) that makes calls on request. */
struct peer;

/* Operations of a peer, with their arguments, results, and answer[] if they use it. */
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
/* Makes a peer on the node of the agent with this index, in a star. */
struct peer *new_peer_on(int index);
__u16 peer_node(const struct peer *peer);
/* Returns another result of the last operation. */
__s64 answer(const struct peer *peer, int index);
/* Starts an operation, without waiting for it. */
void begin_operation(struct peer *peer, __u32 operation, const __s64 *argument);
/* Starts an operation, and waits for it. */
long ask_operation(struct peer *peer, __u32 operation, const __s64 *argument);
/* Waits for the operation. Returns the result of the peer's call, with the peer's errno. */
long end(struct peer *peer);
/* Returns whether the operation has ended. */
bool has_ended(struct peer *peer);
/* Waits until the peer's process has ended. */
void wait_for_death(struct peer *peer);
/* Runs in a peer: serves requests until its case ends. */
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
	/* The ports of both ends. */
	__u16 own_port;
	__u16 peer_port;
};

/* Connects a new endpoint here with a new endpoint of the peer. */
struct pair connected_to(struct peer *peer);
/* Connects a new endpoint with one of a new peer. */
struct pair connected(void);
/* Connects two new endpoints of this process. */
struct pair connected_here(void);

#define SYNC		SCIF_RMA_SYNC
#define READ_WRITE	(SCIF_PROT_READ | SCIF_PROT_WRITE)

/* A pair with a window of the same size at both ends. */
struct windows {
	struct pair pair;
	long len;
	unsigned char *memory;
	off_t offset;
	/* Address of the peer's memory in the peer, and offset of its window. */
	__s64 peer_memory;
	off_t peer_offset;
};

struct windows connected_windows(long page_count);

/* --- Small helpers --- */

/* Waits for one of the events. Returns the events that poll shows. */
int poll_for(int endpoint, int events, int timeout);
/* Waits until the peer has closed. */
void wait_for_hangup(int endpoint);
/* Time within which a full queue has grown by itself. It usually takes much less. */
#define GROWTH_MILLISECONDS	300
/* Sends as much as fits, without blocking. Returns the number of bytes. */
long stuff(int endpoint);
__u16 own_node(void);
/* Return a node id that does not exist: the highest one up to an id, or any. */
__u16 absent_node_up_to(__u16 id);
__u16 absent_node(void);
/* Returns the bytes of locked memory of this process. */
long locked(void);
/* Returns the number of pages that all processes of this node have pinned. */
long pinned(void);
void set_nonblock(int endpoint, bool on);
int connect_to(int endpoint, __u16 node, __u16 port);
/* Drops root's privileges for good, and limits locked memory. */
void drop_privileges(long locked_limit);
/* Drops root's privileges for good, for this user, and limits locked memory. */
void become(unsigned int user, long locked_limit);
/* Runs a function in a child. The child exits when the function returns. */
pid_t in_child(void (*function)(void *data), void *data);
/* Waits for the child, which must not have failed. */
void child_passed(pid_t child);
/* Waits for the child. Returns the signal that has ended it, or 0. */
int child_signal(pid_t child);

/* Checks that the peer's operation has not ended yet. */
void expect_blocked(struct peer *peer);
/*
 * Sends signals to this process every few milliseconds, so that one arrives in the middle of a call
 * that waits. With restart, the call has to go on.
 */
void interrupt_repeatedly(bool restart);
void stop_interrupting(void);
/* Returns the number of signals so far. */
int interruptions(void);
/* Runs a function in a thread that gets no signals. */
pthread_t in_thread(void *(*function)(void *data), void *data);
void *thread_result(pthread_t thread);

#define ARRAY_SIZE(array)	(sizeof(array) / sizeof((array)[0]))

#endif
