/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Declarations for the cases of SISCI, besides those for all suites (../harness/suite.h).
 *
 * A case calls the library itself, and lets peers on another node, or on this one, call it. So the
 * code of both ends is in one place, in the order in which it happens. Runner and agents talk over
 * SCIF and not over SISCI.
 *
 * Every call is made by good() or bad(), which check that the call sets its error, and to which
 * value.
 */
#ifndef SISCI_SUITE_H
#define SISCI_SUITE_H

#include <sisci_api.h>

#include "../harness/suite.h"

/* --- Checks --- */

/* The error variable for calls of this thread. */
extern __thread sci_error_t error;

void before_call(void);
void check_good(void);
void check_bad(sci_error_t expected);
void check_bad_either(sci_error_t expected, sci_error_t other);

/* The call must set SCI_ERR_OK. */
#define good(call) \
	(step(__FILE__, __LINE__, #call), before_call(), (call), check_good())
/* The call must set this error. */
#define bad(expected, call) \
	(step(__FILE__, __LINE__, #call), before_call(), (call), check_bad(expected))
/* The call must set one of these errors. */
#define bad_either(expected, other, call) \
	(step(__FILE__, __LINE__, #call), before_call(), (call), check_bad_either(expected, other))
/* The two numbers must be equal. */
#define same(value, expected) \
	check_value((step(__FILE__, __LINE__, #value), (long)(value)), (long)(expected))

/* An error and its name. */
struct error_name {
	sci_error_t code;
	const char *name;
};

/* All errors. The last entry has no name. */
extern const struct error_name error_names[];

const char *error_name(sci_error_t code);

/* --- Names, ids, nodes --- */

#define ADAPTER		0
#define FOREVER		SCI_INFINITE_TIMEOUT

#define STALE		SCI_ERR_ILLEGAL_PARAMETER

/* Returns a number for a segment or an interrupt that no other case uses on any node. */
unsigned int new_id(void);
/* Returns the SISCI id of a node of SCIF. */
unsigned int node_id(__u16 node);
unsigned int own_id(void);
unsigned int peer_id(const struct peer *peer);
/* Returns a valid id of a node that does not exist. */
unsigned int absent_id(void);

/* --- Resources that cases begin with --- */

/* Opens a virtual device. Initializes the library if it is not. */
sci_desc_t new_device(void);
void initialize(void);

/* A mapped segment of this process. */
struct local {
	sci_desc_t device;
	sci_local_segment_t segment;
	sci_map_t map;
	unsigned char *memory;
	unsigned int id;
	size_t size;
};

/* Creates and maps a segment. */
struct local created(size_t size);
/* Prepares the segment, too. */
struct local prepared(size_t size);
/* Makes the segment available, too. */
struct local exported(size_t size);

/* An available segment of a peer, which the peer has mapped. */
struct theirs {
	struct peer *peer;
	__s64 device;
	__s64 segment;
	__s64 map;
	__s64 memory;
	unsigned int id;
	size_t size;
};

struct theirs exported_by(struct peer *peer, size_t size);

/* A peer's segment that this process has connected and mapped. */
struct remote {
	struct theirs there;
	sci_desc_t device;
	sci_remote_segment_t segment;
	sci_map_t map;
	volatile unsigned char *memory;
	size_t size;
};

struct remote imported(struct theirs there);
struct remote imported_from(struct peer *peer, size_t size);
/* Connects to a segment of a new peer. */
struct remote new_remote(size_t size);
/* Connects this process to its own segment. */
struct remote own_remote(const struct local *from);

/* A segment of this process that a peer has connected and mapped. */
struct importer {
	struct peer *peer;
	__s64 device;
	__s64 segment;
	__s64 map;
	__s64 memory;
};

struct importer imported_by(struct peer *peer, const struct local *from);

sci_remote_segment_t connect_segment(sci_desc_t device, unsigned int node, unsigned int id);
sci_sequence_t new_sequence(sci_map_t map);
sci_dma_queue_t new_queue(sci_desc_t device, unsigned int entries);
/* Makes an interrupt with a number that the library chooses. */
sci_local_interrupt_t new_interrupt(sci_desc_t device, unsigned int *number, unsigned int flags);
sci_remote_interrupt_t connect_interrupt(sci_desc_t device, unsigned int node,
					 unsigned int number);
sci_local_data_interrupt_t new_data_interrupt(sci_desc_t device, unsigned int *number);
sci_remote_data_interrupt_t connect_data_interrupt(sci_desc_t device, unsigned int node,
						   unsigned int number);

/* Take the next event of the segment, which must be this one. */
unsigned int local_event(sci_local_segment_t segment, sci_segment_cb_reason_t reason);
sci_error_t remote_event(sci_remote_segment_t segment, sci_segment_cb_reason_t reason);
/* Check that the segment has no event. */
void no_local_event(sci_local_segment_t segment);
void no_remote_event(sci_remote_segment_t segment);

/* --- Callbacks --- */

#define LOGGED_CALLS	2048

/* The calls of a callback, in order. This is the callback's argument. */
struct call_log {
	int count;
	/* The callback's result. 0 stands for SCI_CALLBACK_CONTINUE. */
	sci_callback_action_t action;
	/* A function that the callback calls as well. */
	void (*also)(struct call_log *log);
	void *data;
	struct {
		void *handle;
		int reason;
		unsigned int node;
		unsigned int adapter;
		sci_error_t status;
		unsigned int length;
		unsigned char first_byte;
	} call[LOGGED_CALLS];
};

struct call_log *new_log(void);
int calls(const struct call_log *log);
sci_callback_action_t log_local(void *arg, sci_local_segment_t segment,
				sci_segment_cb_reason_t reason, unsigned int node,
				unsigned int adapter, sci_error_t status);
sci_callback_action_t log_remote(void *arg, sci_remote_segment_t segment,
				 sci_segment_cb_reason_t reason, sci_error_t status);
sci_callback_action_t log_dma(void *arg, sci_dma_queue_t queue, sci_error_t status);
sci_callback_action_t log_interrupt(void *arg, sci_local_interrupt_t interrupt,
				    sci_error_t status);
sci_callback_action_t log_data(void *arg, sci_local_data_interrupt_t interrupt, void *data,
			       unsigned int length, sci_error_t status);
/* Checks that the callback was called this often, and is not called again within a moment. */
void called_exactly(const struct call_log *log, int count);

/* --- This process --- */

/* Changes to another user without capabilities, who may open the same files. */
void act_for(uid_t user);
/* Returns the CPU time of all threads of this process. */
long cpu_milliseconds(void);

/* --- Memory --- */

/* Return whether an access to the address raises a signal. */
bool load_fails(const volatile void *address);
bool store_fails(volatile void *address);
/* Returns whether anything is mapped at the address. */
bool is_mapped(const volatile void *address);
void fill_remote(volatile void *to, __u32 seed, long len);
long remote_differs(const volatile void *from, __u32 seed, long len);

/* --- Peers --- */

/*
 * Operations of peers besides DO_... Resources are handles of the peer, and addresses are its own.
 * The error of a call comes back in the place of errno.
 */
enum sisci_operation {
	THERE_OPEN = DO_OTHERS,	/* device */
	THERE_CLOSE,		/* (device) */
	THERE_TERMINATE,
	THERE_CREATE,		/* (device, id, size, flags): segment */
	THERE_PREPARE,		/* (segment) */
	THERE_AVAILABLE,	/* (segment) */
	THERE_UNAVAILABLE,	/* (segment, flags) */
	THERE_REMOVE,		/* (segment, flags) */
	THERE_MAP_LOCAL,	/* (segment, offset, size, flags): address; answer[0] map */
	THERE_LOCAL_EVENT,	/* (segment, timeout): reason; answer[0] node, [1] adapter */
	THERE_CONNECT,		/* (device, node, id, timeout, flags): segment */
	THERE_DISCONNECT,	/* (segment) */
	THERE_REMOTE_EVENT,	/* (segment, timeout): reason; answer[0] status */
	THERE_MAP_REMOTE,	/* (segment, offset, size, flags): address; answer[0] map */
	THERE_UNMAP,		/* (map) */
	THERE_STORE,		/* (address, value, bytes) */
	THERE_LOAD,		/* (address, bytes): value */
	THERE_AWAIT,		/* (address, value): waits until the 32 bits there are it */
	THERE_QUEUE,		/* (device, entries): queue */
	THERE_TRANSFER,		/* (queue, local, remote, loff, size, roff, flags) */
	THERE_WAIT_QUEUE,	/* (queue, timeout): state */
	THERE_INTERRUPT,	/* (device, number, flags): interrupt; answer[0] number */
	THERE_REMOVE_INTERRUPT,	/* (interrupt) */
	THERE_WAIT_INTERRUPT,	/* (interrupt, timeout) */
	THERE_CONNECT_INTERRUPT,	/* (device, node, number): remote interrupt */
	THERE_DISCONNECT_INTERRUPT,	/* (remote interrupt) */
	THERE_TRIGGER,		/* (remote interrupt, how often) */
	THERE_DATA_INTERRUPT,	/* (device, number, flags): interrupt; answer[0] number */
	THERE_REMOVE_DATA,	/* (interrupt) */
	THERE_WAIT_DATA,	/* (interrupt, address, room, timeout): length */
	THERE_CONNECT_DATA,	/* (device, node, number): remote interrupt */
	THERE_TRIGGER_DATA,	/* (remote interrupt, address, length) */
};

long sisci_operation(__u32 operation, const __s64 *argument, __s64 *answer);

/* Lets the peer make a call, which must succeed. Returns its result. */
__s64 check_there(struct peer *peer, __u32 operation, const __s64 *argument);
/* Lets the peer make a call, which must fail with this error. */
void check_there_bad(struct peer *peer, sci_error_t expected, __u32 operation,
		     const __s64 *argument);
/* Waits for a call that was started with begin(). */
__s64 check_end(struct peer *peer);
void check_end_bad(struct peer *peer, sci_error_t expected);

#define there(peer, operation, ...) \
	(step(__FILE__, __LINE__, #operation " " #__VA_ARGS__), \
	 check_there(peer, operation, (const __s64[8]) { __VA_ARGS__ }))
#define there_bad(peer, expected, operation, ...) \
	(step(__FILE__, __LINE__, #operation " " #__VA_ARGS__), \
	 check_there_bad(peer, expected, operation, (const __s64[8]) { __VA_ARGS__ }))
#define end_good(peer) \
	(step(__FILE__, __LINE__, "the peer's call"), check_end(peer))
#define end_bad(peer, expected) \
	(step(__FILE__, __LINE__, "the peer's call"), check_end_bad(peer, expected))

/* In header.c and header_cpp.cc, which include sisci_api.h and nothing else. */
int in_c89(void);
int in_cpp(void);

extern const struct test_case library_cases[], handle_cases[], symbol_cases[], query_cases[],
	segment_cases[], share_cases[], connect_segment_cases[], event_cases[], callback_cases[],
	map_cases[], data_cases[], sequence_cases[], copy_cases[], dma_cases[], dma_more_cases[],
	interrupt_cases[], interrupt_more_cases[], data_interrupt_cases[], broadcast_cases[],
	process_end_cases[], fork_cases[], hostile_cases[], thread_cases[], guide_cases[];

#endif
