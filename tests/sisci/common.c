// SPDX-License-Identifier: GPL-2.0
/*
 * Checks, and resources that cases begin with (sisci_suite.h).
 */
#include <setjmp.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <time.h>

#include "sisci_suite.h"

/* A value that no call sets. */
#define UNTOUCHED	((sci_error_t)0x5a5a5a5a)

__thread sci_error_t error;

#define NAMED(code)	{ code, #code }

const struct error_name error_names[] = {
	NAMED(SCI_ERR_OK),
	NAMED(SCI_ERR_BUSY),
	NAMED(SCI_ERR_FLAG_NOT_IMPLEMENTED),
	NAMED(SCI_ERR_ILLEGAL_FLAG),
	NAMED(SCI_ERR_NOSPC),
	NAMED(SCI_ERR_API_NOSPC),
	NAMED(SCI_ERR_HW_NOSPC),
	NAMED(SCI_ERR_NOT_IMPLEMENTED),
	NAMED(SCI_ERR_ILLEGAL_ADAPTERNO),
	NAMED(SCI_ERR_NO_SUCH_ADAPTERNO),
	NAMED(SCI_ERR_TIMEOUT),
	NAMED(SCI_ERR_OUT_OF_RANGE),
	NAMED(SCI_ERR_NO_SUCH_SEGMENT),
	NAMED(SCI_ERR_ILLEGAL_NODEID),
	NAMED(SCI_ERR_CONNECTION_REFUSED),
	NAMED(SCI_ERR_SEGMENT_NOT_CONNECTED),
	NAMED(SCI_ERR_SIZE_ALIGNMENT),
	NAMED(SCI_ERR_OFFSET_ALIGNMENT),
	NAMED(SCI_ERR_ILLEGAL_PARAMETER),
	NAMED(SCI_ERR_MAX_ENTRIES),
	NAMED(SCI_ERR_SEGMENT_NOT_PREPARED),
	NAMED(SCI_ERR_ILLEGAL_ADDRESS),
	NAMED(SCI_ERR_ILLEGAL_OPERATION),
	NAMED(SCI_ERR_ILLEGAL_QUERY),
	NAMED(SCI_ERR_SEGMENTID_USED),
	NAMED(SCI_ERR_SYSTEM),
	NAMED(SCI_ERR_CANCELLED),
	NAMED(SCI_ERR_NOT_CONNECTED),
	NAMED(SCI_ERR_NOT_AVAILABLE),
	NAMED(SCI_ERR_INCONSISTENT_VERSIONS),
	NAMED(SCI_ERR_COND_INT_RACE_PROBLEM),
	NAMED(SCI_ERR_OVERFLOW),
	NAMED(SCI_ERR_NOT_INITIALIZED),
	NAMED(SCI_ERR_ACCESS),
	NAMED(SCI_ERR_NOT_SUPPORTED),
	NAMED(SCI_ERR_DEPRECATED),
	NAMED(SCI_ERR_INTNO_USED),
	NAMED(SCI_ERR_DMA_NOT_AVAILABLE),
	NAMED(SCI_ERR_DMA_DISABLED),
	NAMED(SCI_ERR_EWOULD_BLOCK),
	NAMED(SCI_ERR_SEMAPHORE_COUNT_EXCEEDED),
	NAMED(SCI_ERR_IRQL_ILLEGAL),
	NAMED(SCI_ERR_LOCAL_BUSY),
	NAMED(SCI_ERR_ALL_BUSY),
	NAMED(SCI_ERR_NO_SUCH_FDID),
	NAMED(SCI_ERR_NO_SUCH_NODEID),
	NAMED(SCI_ERR_NODE_NOT_RESPONDING),
	NAMED(SCI_ERR_NO_REMOTE_LINK_ACCESS),
	NAMED(SCI_ERR_NO_LINK_ACCESS),
	NAMED(SCI_ERR_TRANSFER_FAILED),
	{ }
};

/* --- Checks --- */

const char *error_name(sci_error_t code)
{
	const struct error_name *known;

	for (known = error_names; known->name; known++) {
		if (known->code == code)
			return known->name;
	}
	return code == UNTOUCHED ? "no error at all" : "an unknown error";
}

void before_call(void)
{
	error = UNTOUCHED;
}

void check_good(void)
{
	if (error != SCI_ERR_OK)
		fail("gave %s (%#x)", error_name(error), error);
}

void check_bad(sci_error_t expected)
{
	check_bad_either(expected, expected);
}

void check_bad_either(sci_error_t expected, sci_error_t other)
{
	if (error != expected && error != other)
		fail("gave %s (%#x) instead of %s", error_name(error), error,
		     error_name(expected));
}

/* --- Names, ids, nodes --- */

unsigned int new_id(void)
{
	static unsigned int count;

	/*
	 * Processes of cases differ in their ids. Their numbers are below a bit that no case uses.
	 */
	return ((unsigned int)getpid() << 8 | ++count) & 0x0fffffff;
}

unsigned int node_id(__u16 node)
{
	return 4 * (node + 1);
}

unsigned int own_id(void)
{
	return node_id(own_node());
}

unsigned int peer_id(const struct peer *peer)
{
	return node_id(peer_node(peer));
}

unsigned int absent_id(void)
{
	return node_id(absent_node_up_to(61));
}

/* --- Resources that cases begin with --- */

void initialize(void)
{
	static bool done;

	if (done)
		return;
	good(SCIInitialize(0, &error));
	done = true;
}

sci_desc_t new_device(void)
{
	sci_desc_t device = NULL;

	initialize();
	good(SCIOpen(&device, 0, &error));
	expect(device);
	return device;
}

struct local created(size_t size)
{
	struct local local = { .device = new_device(), .id = new_id(), .size = size };

	good(SCICreateSegment(local.device, &local.segment, local.id, size, NULL, NULL, 0,
			      &error));
	good(local.memory = SCIMapLocalSegment(local.segment, &local.map, 0, size, NULL, 0,
					       &error));
	expect(local.memory);
	return local;
}

struct local prepared(size_t size)
{
	struct local local = created(size);

	good(SCIPrepareSegment(local.segment, ADAPTER, 0, &error));
	return local;
}

struct local exported(size_t size)
{
	struct local local = prepared(size);

	good(SCISetSegmentAvailable(local.segment, ADAPTER, 0, &error));
	return local;
}

struct theirs exported_by(struct peer *peer, size_t size)
{
	struct theirs theirs = { .peer = peer, .id = new_id(), .size = size };

	theirs.device = there(peer, THERE_OPEN);
	theirs.segment = there(peer, THERE_CREATE, theirs.device, theirs.id, size, 0);
	theirs.memory = there(peer, THERE_MAP_LOCAL, theirs.segment, 0, size, 0);
	theirs.map = answer(peer, 0);
	there(peer, THERE_PREPARE, theirs.segment);
	there(peer, THERE_AVAILABLE, theirs.segment);
	return theirs;
}

sci_remote_segment_t connect_segment(sci_desc_t device, unsigned int node, unsigned int id)
{
	sci_remote_segment_t segment = NULL;

	good(SCIConnectSegment(device, &segment, node, id, ADAPTER, NULL, NULL, FOREVER, 0,
			       &error));
	expect(segment);
	return segment;
}

static struct remote mapped(sci_remote_segment_t segment, sci_desc_t device, size_t size)
{
	struct remote remote = { .device = device, .segment = segment, .size = size };

	good(remote.memory = SCIMapRemoteSegment(segment, &remote.map, 0, size, NULL, 0, &error));
	expect(remote.memory);
	return remote;
}

struct remote imported(struct theirs from)
{
	sci_desc_t device = new_device();
	struct remote remote = mapped(connect_segment(device, peer_id(from.peer), from.id),
				      device, from.size);

	remote.there = from;
	return remote;
}

struct remote imported_from(struct peer *peer, size_t size)
{
	return imported(exported_by(peer, size));
}

struct remote new_remote(size_t size)
{
	return imported_from(new_peer(), size);
}

struct remote own_remote(const struct local *from)
{
	return mapped(connect_segment(from->device, own_id(), from->id), from->device, from->size);
}

struct importer imported_by(struct peer *peer, const struct local *from)
{
	struct importer importer = { .peer = peer };

	importer.device = there(peer, THERE_OPEN);
	importer.segment = there(peer, THERE_CONNECT, importer.device, own_id(), from->id,
				 FOREVER, 0);
	importer.memory = there(peer, THERE_MAP_REMOTE, importer.segment, 0, from->size, 0);
	importer.map = answer(peer, 0);
	return importer;
}

sci_sequence_t new_sequence(sci_map_t map)
{
	sci_sequence_t sequence = NULL;

	good(SCICreateMapSequence(map, &sequence, 0, &error));
	expect(sequence);
	return sequence;
}

sci_dma_queue_t new_queue(sci_desc_t device, unsigned int entries)
{
	sci_dma_queue_t queue = NULL;

	good(SCICreateDMAQueue(device, &queue, ADAPTER, entries, 0, &error));
	expect(queue);
	return queue;
}

sci_local_interrupt_t new_interrupt(sci_desc_t device, unsigned int *number, unsigned int flags)
{
	sci_local_interrupt_t interrupt = NULL;

	good(SCICreateInterrupt(device, &interrupt, ADAPTER, number, NULL, NULL, flags, &error));
	expect(interrupt);
	return interrupt;
}

sci_remote_interrupt_t connect_interrupt(sci_desc_t device, unsigned int node,
					 unsigned int number)
{
	sci_remote_interrupt_t interrupt = NULL;

	good(SCIConnectInterrupt(device, &interrupt, node, ADAPTER, number, FOREVER, 0, &error));
	expect(interrupt);
	return interrupt;
}

sci_local_data_interrupt_t new_data_interrupt(sci_desc_t device, unsigned int *number)
{
	sci_local_data_interrupt_t interrupt = NULL;

	good(SCICreateDataInterrupt(device, &interrupt, ADAPTER, number, NULL, NULL, 0, &error));
	expect(interrupt);
	return interrupt;
}

sci_remote_data_interrupt_t connect_data_interrupt(sci_desc_t device, unsigned int node,
						   unsigned int number)
{
	sci_remote_data_interrupt_t interrupt = NULL;

	good(SCIConnectDataInterrupt(device, &interrupt, node, ADAPTER, number, FOREVER, 0,
				     &error));
	expect(interrupt);
	return interrupt;
}

/* --- Events --- */

unsigned int local_event(sci_local_segment_t segment, sci_segment_cb_reason_t reason)
{
	unsigned int node = 0, adapter = 77;
	sci_segment_cb_reason_t found;

	good(found = SCIWaitForLocalSegmentEvent(segment, &node, &adapter, FOREVER, 0, &error));
	same(found, reason);
	same(adapter, ADAPTER);
	return node;
}

sci_error_t remote_event(sci_remote_segment_t segment, sci_segment_cb_reason_t reason)
{
	sci_error_t status = SCI_ERR_OVERFLOW;
	sci_segment_cb_reason_t found;

	good(found = SCIWaitForRemoteSegmentEvent(segment, &status, FOREVER, 0, &error));
	same(found, reason);
	return status;
}

void no_local_event(sci_local_segment_t segment)
{
	unsigned int node, adapter;

	bad(SCI_ERR_TIMEOUT,
	    SCIWaitForLocalSegmentEvent(segment, &node, &adapter, A_MOMENT, 0, &error));
}

void no_remote_event(sci_remote_segment_t segment)
{
	sci_error_t status;

	bad(SCI_ERR_TIMEOUT,
	    SCIWaitForRemoteSegmentEvent(segment, &status, A_MOMENT, 0, &error));
}

/* --- Callbacks --- */

struct call_log *new_log(void)
{
	struct call_log *log = calloc(1, sizeof(*log));

	if (!log)
		fail("no memory");
	return log;
}

int calls(const struct call_log *log)
{
	return __atomic_load_n(&log->count, __ATOMIC_ACQUIRE);
}

/* Adds a call at the end of the log. */
static sci_callback_action_t logged(struct call_log *log)
{
	if (log->also)
		log->also(log);
	__atomic_add_fetch(&log->count, 1, __ATOMIC_RELEASE);
	return log->action ? log->action : SCI_CALLBACK_CONTINUE;
}

static int next_call(const struct call_log *log)
{
	step(__FILE__, __LINE__, "a callback");
	if (log->count == LOGGED_CALLS)
		fail("it is called too often");
	return log->count;
}

sci_callback_action_t log_local(void *arg, sci_local_segment_t segment,
				sci_segment_cb_reason_t reason, unsigned int node,
				unsigned int adapter, sci_error_t status)
{
	struct call_log *log = arg;
	int at = next_call(log);

	log->call[at].handle = segment;
	log->call[at].reason = reason;
	log->call[at].node = node;
	log->call[at].adapter = adapter;
	log->call[at].status = status;
	return logged(log);
}

sci_callback_action_t log_remote(void *arg, sci_remote_segment_t segment,
				 sci_segment_cb_reason_t reason, sci_error_t status)
{
	struct call_log *log = arg;
	int at = next_call(log);

	log->call[at].handle = segment;
	log->call[at].reason = reason;
	log->call[at].status = status;
	return logged(log);
}

sci_callback_action_t log_dma(void *arg, sci_dma_queue_t queue, sci_error_t status)
{
	struct call_log *log = arg;
	int at = next_call(log);

	log->call[at].handle = queue;
	log->call[at].status = status;
	return logged(log);
}

sci_callback_action_t log_interrupt(void *arg, sci_local_interrupt_t interrupt,
				    sci_error_t status)
{
	struct call_log *log = arg;
	int at = next_call(log);

	log->call[at].handle = interrupt;
	log->call[at].status = status;
	return logged(log);
}

sci_callback_action_t log_data(void *arg, sci_local_data_interrupt_t interrupt, void *data,
			       unsigned int length, sci_error_t status)
{
	struct call_log *log = arg;
	int at = next_call(log);

	log->call[at].handle = interrupt;
	log->call[at].length = length;
	log->call[at].first_byte = length ? *(unsigned char *)data : 0;
	log->call[at].status = status;
	return logged(log);
}

void called_exactly(const struct call_log *log, int count)
{
	__u64 end_of_moment;

	wait_until(calls(log) >= count);
	end_of_moment = now() + A_MOMENT;
	do {
		same(calls(log), count);
		poll(NULL, 0, 2);
	} while (now() < end_of_moment);
}

/* --- This process --- */

void act_for(uid_t user)
{
	expect_value(seteuid(user), 0);
	setfsuid(0);
	expect_value(setfsuid(-1), 0);
}

long cpu_milliseconds(void)
{
	struct timespec used;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	return used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

/* --- Memory --- */

static sigjmp_buf after_signal;

static void leave(int number)
{
	siglongjmp(after_signal, number);
}

static bool access_fails(volatile unsigned char *address, bool stores)
{
	struct sigaction action = { .sa_handler = leave }, segv, bus;
	bool failed = false;

	sigaction(SIGSEGV, &action, &segv);
	sigaction(SIGBUS, &action, &bus);
	if (sigsetjmp(after_signal, 1))
		failed = true;
	else if (stores)
		*address = 1;
	else
		(void)*address;
	sigaction(SIGSEGV, &segv, NULL);
	sigaction(SIGBUS, &bus, NULL);
	return failed;
}

bool load_fails(const volatile void *address)
{
	return access_fails((volatile unsigned char *)address, false);
}

bool store_fails(volatile void *address)
{
	return access_fails(address, true);
}

bool is_mapped(const volatile void *address)
{
	/* msync fails if nothing is mapped, and has no effect otherwise. */
	return !msync((void *)address, PAGE, MS_ASYNC) || errno != ENOMEM;
}

void fill_remote(volatile void *to, __u32 seed, long len)
{
	unsigned char *content = malloc(len);
	volatile unsigned char *byte = to;
	long i;

	if (!content)
		fail("no memory");
	fill(content, seed, len);
	for (i = 0; i < len; i++)
		byte[i] = content[i];
	free(content);
}

long remote_differs(const volatile void *from, __u32 seed, long len)
{
	const volatile unsigned char *byte = from;
	unsigned char *content = malloc(len);
	long i, result;

	if (!content)
		fail("no memory");
	for (i = 0; i < len; i++)
		content[i] = byte[i];
	result = differs(content, seed, len);
	free(content);
	return result;
}
