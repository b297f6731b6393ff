/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the cases of SISCI share, beside what all suites do (../harness/suite.h).
 *
 * A case calls the library itself, and has peers call it that are on another node, or on this
 * one: what both ends do is written in one place, in the order in which it happens. Runner and
 * agents talk over SCIF and not over SISCI.
 *
 * Every call is made by good() or bad(), which see to its error: that it is set, and what it is.
 */
#ifndef SISCI_SUITE_H
#define SISCI_SUITE_H

#include <sisci_api.h>

#include "../harness/suite.h"

/* --- Checks --- */

/* Where calls of this thread put their error. */
extern __thread sci_error_t error;

void before_call(void);
void check_good(void);
void check_bad(sci_error_t expected);
void check_bad_either(sci_error_t expected, sci_error_t other);

/* The call leaves SCI_ERR_OK. */
#define good(call) \
	(step(__FILE__, __LINE__, #call), before_call(), (call), check_good())
/* It leaves this error. */
#define bad(expected, call) \
	(step(__FILE__, __LINE__, #call), before_call(), (call), check_bad(expected))
/* It leaves either. */
#define bad_either(expected, other, call) \
	(step(__FILE__, __LINE__, #call), before_call(), (call), check_bad_either(expected, other))
/* Two numbers are the same. */
#define same(value, expected) \
	check_value((step(__FILE__, __LINE__, #value), (long)(value)), (long)(expected))

/* An error and what it is called. */
struct error_name {
	sci_error_t code;
	const char *name;
};

/* Ends with an entry without a name. */
extern const struct error_name error_names[];

const char *error_name(sci_error_t code);

/* --- Names, ids, nodes --- */

#define ADAPTER		0
#define FOREVER		SCI_INFINITE_TIMEOUT

#define STALE		SCI_ERR_ILLEGAL_PARAMETER

/* A number for a segment or an interrupt that no other case has on any node. */
unsigned int new_id(void);
/* The id that a node of SCIF has in SISCI. */
unsigned int node_id(__u16 node);
unsigned int own_id(void);
unsigned int peer_id(const struct peer *peer);
/* Of a node that could be there, and is not. */
unsigned int absent_id(void);

/* --- What cases begin with --- */

/* A new virtual device; the library is initialized if it was not. */
sci_desc_t new_device(void);
void initialize(void);

/* A segment of this process, mapped. */
struct local {
	sci_desc_t device;
	sci_local_segment_t segment;
	sci_map_t map;
	unsigned char *memory;
	unsigned int id;
	size_t size;
};

/* Created and mapped, not more. */
struct local created(size_t size);
/* And prepared. */
struct local prepared(size_t size);
/* And available. */
struct local exported(size_t size);

/* A segment of a peer, available, and mapped there. */
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

/* One of a peer, connected and mapped here. */
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
/* With a new peer. */
struct remote new_remote(size_t size);
/* A segment of this process, connected by it. */
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
/* An interrupt with a number of the library's choice. */
sci_local_interrupt_t new_interrupt(sci_desc_t device, unsigned int *number, unsigned int flags);
sci_remote_interrupt_t connect_interrupt(sci_desc_t device, unsigned int node,
					 unsigned int number);
sci_local_data_interrupt_t new_data_interrupt(sci_desc_t device, unsigned int *number);
sci_remote_data_interrupt_t connect_data_interrupt(sci_desc_t device, unsigned int node,
						   unsigned int number);

/* Takes the next event of the segment, which must be that one. */
unsigned int local_event(sci_local_segment_t segment, sci_segment_cb_reason_t reason);
sci_error_t remote_event(sci_remote_segment_t segment, sci_segment_cb_reason_t reason);
/* There must be none. */
void no_local_event(sci_local_segment_t segment);
void no_remote_event(sci_remote_segment_t segment);

/* --- Callbacks --- */

#define LOGGED_CALLS	2048

/* The calls of callbacks, in their order. Is their argument. */
struct call_log {
	int count;
	/* What the callback is to return: SCI_CALLBACK_CONTINUE if it is 0. */
	sci_callback_action_t action;
	/* What it is to do besides. */
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
/* It was called so often, and is not called again within a moment. */
void called_exactly(const struct call_log *log, int count);

/* --- This process --- */

/* Acts for another user without capabilities, who may open what this one could. */
void act_for(uid_t user);
/* What all its threads have used of CPUs. */
long cpu_milliseconds(void);

/* --- Memory --- */

/* Whether an access to the address ends in a signal. */
bool load_fails(const volatile void *address);
bool store_fails(volatile void *address);
/* Whether anything is mapped there. */
bool is_mapped(const volatile void *address);
void fill_remote(volatile void *to, __u32 seed, long len);
long remote_differs(const volatile void *from, __u32 seed, long len);

/* --- Peers --- */

/*
 * What peers do beside DO_... Resources are handles of the peer, addresses its own. The error of
 * the call comes back as errno does of calls of SCIF.
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

/* Has a call made there, which must be good; gives its result. */
__s64 check_there(struct peer *peer, __u32 operation, const __s64 *argument);
/* It must give the error. */
void check_there_bad(struct peer *peer, sci_error_t expected, __u32 operation,
		     const __s64 *argument);
/* Waits for one that was begun. */
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
