// SPDX-License-Identifier: GPL-2.0
/*
 * field-kvstore: a replicated store of keys and values over reflective memory.
 *
 *   field-kvstore replica PRIMARY LANES       has a replica; that node has the primary
 *   field-kvstore primary REPLICAS RECORDS ORDER [WORKERS]
 *
 * The primary stores a record into the memory of all replicas, and orders the store of the lane's
 * sequence word behind it in the way that ORDER says. It waits for replicas only when it needs
 * their room. A replica that sees a number in the sequence word has each record up to it, whole.
 * With 0 records the primary goes on until SIGTERM. Each worker is a process with a lane of its
 * own. Clients of a primary are processes that it forks.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <xmmintrin.h>

#include "field.h"

#define GROUP		2
#define SIZE		(1024u * 1024)
#define BELL		0x6100
#define ACKS		0x6200
#define LANES		4
#define REPLICAS	8
#define LANE_AT(lane)	((SIZE / 2) + (lane) * (SIZE / 8))
#define SLOTS		6
#define SLOT		20000
#define VALUE		12000

struct record {
	uint64_t version, key, length, sum;
	unsigned char value[VALUE];
};

struct request {
	uint64_t key, length;
};

/* Kinds of messages between a replica and a primary. */
enum { HELLO, ACK, PING, END };

struct message {
	uint64_t kind, lane, node, version;
};

static sci_desc_t device;

static void open_device(void)
{
	sci_error_t error;

	SCIInitialize(NO_FLAGS, &error);
	check("SCIInitialize", error);
	SCIOpen(&device, NO_FLAGS, &error);
	check("SCIOpen", error);
}

static void close_device(void)
{
	sci_error_t error;

	SCIClose(device, NO_FLAGS, &error);
	check("SCIClose", error);
	SCITerminate();
}

static size_t words_of(uint64_t lane)
{
	return lane * 64;
}

static uint64_t sum_of_record(const volatile struct record *record, uint64_t length)
{
	uint64_t sum = sum_of(record, offsetof(struct record, sum));

	return sum_on(sum, record->value, length);
}

/* --- A replica --- */

static unsigned int primary;
/* Number of ended connections of the primary's node. */
static int ended;

static sci_callback_action_t on_event(void *arg, sci_local_segment_t segment,
				      sci_segment_cb_reason_t reason, unsigned int node,
				      unsigned int adapter, sci_error_t status)
{
	if (node == primary && reason != SCI_CB_CONNECT && reason != SCI_CB_OPERATIONAL)
		__atomic_add_fetch(&ended, 1, __ATOMIC_RELEASE);
	return SCI_CALLBACK_CONTINUE;
}

static void verify(const volatile unsigned char *memory, uint64_t lane, uint64_t version)
{
	const volatile struct record *record = (const volatile void *)
		(memory + LANE_AT(lane) + version % SLOTS * SLOT);
	uint64_t length = record->length;

	if (record->version != version)
		die("lane %llu: record %llu has version %llu", (unsigned long long)lane,
		    (unsigned long long)version, (unsigned long long)record->version);
	if (length > VALUE || record->sum != sum_of_record(record, length))
		die("lane %llu: record %llu is not whole", (unsigned long long)lane,
		    (unsigned long long)version);
	for (uint64_t i = 0; i < length; i++) {
		if (record->value[i] != byte(record->key, i))
			die("lane %llu: record %llu has another value", (unsigned long long)lane,
			    (unsigned long long)version);
	}
}

struct lanes {
	unsigned int count, open;
	uint64_t version[LANES];
	uint64_t last[LANES];
	sci_remote_data_interrupt_t acks[LANES];
};

static void acknowledge(struct lanes *lanes, uint64_t lane, uint64_t kind)
{
	struct message message = { kind, lane, own_node(), lanes->version[lane] };
	sci_error_t error;

	/* The replica notices the loss of a primary in another way. */
	do {
		SCITriggerDataInterrupt(lanes->acks[lane], &message, sizeof(message), NO_FLAGS,
					&error);
	} while (error == SCI_ERR_NOSPC);
}

static bool follow(struct lanes *lanes, const volatile unsigned char *memory)
{
	bool any = false;

	for (uint64_t lane = 0; lane < lanes->count; lane++) {
		uint64_t now = *(const volatile uint64_t *)(memory + words_of(lane));

		if (now == lanes->version[lane])
			continue;
		if (now < lanes->version[lane] || now > lanes->version[lane] + SLOTS)
			die("lane %llu: %llu after %llu", (unsigned long long)lane,
			    (unsigned long long)now, (unsigned long long)lanes->version[lane]);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		while (lanes->version[lane] < now)
			verify(memory, lane, ++lanes->version[lane]);
		acknowledge(lanes, lane, ACK);
		any = true;
	}
	return any;
}

/* Polls for messages. Returns false if there is none. */
static bool listen(struct lanes *lanes, sci_local_data_interrupt_t bell)
{
	struct message message;
	unsigned int length = sizeof(message);
	sci_error_t error;

	SCIWaitForDataInterrupt(bell, &message, &length, 0, NO_FLAGS, &error);
	if (error == SCI_ERR_TIMEOUT)
		return false;
	check("SCIWaitForDataInterrupt", error);
	if (message.kind == END) {
		lanes->last[message.lane] = message.version;
		lanes->open--;
	}
	return true;
}

static int replica(unsigned int count)
{
	struct lanes lanes = { count, count };
	sci_local_data_interrupt_t bell;
	sci_local_segment_t segment;
	bool lost = false;
	unsigned char *memory;
	sci_error_t error;
	sci_map_t map;

	open_device();
	SCICreateSegment(device, &segment, GROUP, SIZE, on_event, NO_ARG,
			 SCI_FLAG_BROADCAST | SCI_FLAG_USE_CALLBACK, &error);
	check("SCICreateSegment", error);
	SCIPrepareSegment(segment, ADAPTER, SCI_FLAG_BROADCAST, &error);
	check("SCIPrepareSegment", error);
	memory = SCIMapLocalSegment(segment, &map, 0, SIZE, NULL, SCI_FLAG_BROADCAST, &error);
	check("SCIMapLocalSegment with SCI_FLAG_BROADCAST", error);
	memset(memory, 0, SIZE);
	SCISetSegmentAvailable(segment, ADAPTER, NO_FLAGS, &error);
	check("SCISetSegmentAvailable", error);
	create_data(device, &bell, BELL);
	for (uint64_t lane = 0; lane < count; lane++) {
		connect_data(device, &lanes.acks[lane], primary, ACKS + lane);
		acknowledge(&lanes, lane, HELLO);
	}
	say("ready to follow");
	for (unsigned int turn = 0; lanes.open && !lost; turn++) {
		if (follow(&lanes, memory))
			continue;
		if (turn % 64 == 0) {
			/* The primary sends its end before its connections end. */
			int now = __atomic_load_n(&ended, __ATOMIC_ACQUIRE);

			while (listen(&lanes, bell))
				;
			lost = lanes.open && (unsigned int)now > count - lanes.open;
		}
	}
	/* The data stored before the end has arrived, because all of it was acknowledged. */
	for (uint64_t lane = 0; lane < count; lane++) {
		if (!lost && lanes.version[lane] != lanes.last[lane])
			die("lane %llu ends with %llu of %llu", (unsigned long long)lane,
			    (unsigned long long)lanes.version[lane],
			    (unsigned long long)lanes.last[lane]);
		say("lane %llu: %llu records", (unsigned long long)lane,
		    (unsigned long long)lanes.version[lane]);
		SCIDisconnectDataInterrupt(lanes.acks[lane], NO_FLAGS, &error);
		check("SCIDisconnectDataInterrupt", error);
	}
	SCIRemoveDataInterrupt(bell, NO_FLAGS, &error);
	check("SCIRemoveDataInterrupt", error);
	SCIUnmapSegment(map, NO_FLAGS, &error);
	check("SCIUnmapSegment", error);
	SCIRemoveSegment(segment, NO_FLAGS, &error);
	check("SCIRemoveSegment", error);
	close_device();
	if (lost)
		say("primary lost");
	return lost ? PARTY_LOST : WELL;
}

/* --- The primary --- */

static volatile sig_atomic_t stopping;

static void stop(int signal)
{
	stopping = 1;
}

struct follower {
	unsigned int node;
	uint64_t version;
	sci_remote_data_interrupt_t bell;
};

struct store {
	uint64_t lane, version;
	const char *order;
	sci_local_data_interrupt_t acks;
	struct follower followers[REPLICAS];
	unsigned int count;
	sci_remote_segment_t segment;
	sci_map_t map;
	volatile unsigned char *memory;
	sci_sequence_t sequence;
};

/* Takes a message of a replica. Returns false if there is none. */
static bool take(struct store *store, struct message *message, unsigned int timeout)
{
	unsigned int length = sizeof(*message);
	sci_error_t error;

	SCIWaitForDataInterrupt(store->acks, message, &length, timeout, NO_FLAGS, &error);
	if (error == SCI_ERR_TIMEOUT)
		return false;
	check("SCIWaitForDataInterrupt", error);
	return true;
}

static bool reaches(struct store *store, struct follower *follower, uint64_t kind)
{
	struct message message = { kind, store->lane, 0, store->version };
	sci_error_t error;

	do {
		SCITriggerDataInterrupt(follower->bell, &message, sizeof(message), NO_FLAGS,
					&error);
	} while (error == SCI_ERR_NOSPC);
	return error == SCI_ERR_OK;
}

static void forget(struct store *store, unsigned int which)
{
	sci_error_t error;

	say("replica %u is lost", store->followers[which].node);
	SCIDisconnectDataInterrupt(store->followers[which].bell, NO_FLAGS, &error);
	check("SCIDisconnectDataInterrupt", error);
	store->followers[which] = store->followers[--store->count];
}

/* Waits until all remaining replicas have all records except the last `behind`. */
static void wait_for_room(struct store *store, uint64_t behind)
{
	struct message message;

	for (;;) {
		bool all = true;

		for (unsigned int i = 0; i < store->count; i++)
			all = all && store->followers[i].version + behind >= store->version;
		if (all)
			return;
		if (take(store, &message, 100)) {
			for (unsigned int i = 0; i < store->count; i++) {
				if (store->followers[i].node == message.node)
					store->followers[i].version = message.version;
			}
			continue;
		}
		for (unsigned int i = store->count; i-- > 0;) {
			if (!reaches(store, &store->followers[i], PING))
				forget(store, i);
		}
	}
}

static void gather(struct store *store, unsigned int count)
{
	struct message message;

	while (store->count < count) {
		struct follower *follower = &store->followers[store->count];

		if (!take(store, &message, SCI_INFINITE_TIMEOUT))
			continue;
		follower->node = message.node;
		connect_data(device, &follower->bell, follower->node, BELL);
		store->count++;
	}
}

static void connect_group(struct store *store)
{
	sci_error_t error;

	SCIConnectSegment(device, &store->segment, BROADCAST, GROUP, ADAPTER, NO_CALLBACK, NO_ARG,
			  SCI_INFINITE_TIMEOUT, SCI_FLAG_BROADCAST, &error);
	check("SCIConnectSegment", error);
	store->memory = SCIMapRemoteSegment(store->segment, &store->map, 0, SIZE, NULL,
					    SCI_FLAG_BROADCAST, &error);
	check("SCIMapRemoteSegment with SCI_FLAG_BROADCAST", error);
	SCICreateMapSequence(store->map, &store->sequence, NO_FLAGS, &error);
	check("SCICreateMapSequence", error);
}

/* Returns whether the stores have to be repeated. */
static bool failed(struct store *store)
{
	sci_sequence_status_t status;
	sci_error_t error;

	status = SCICheckSequence(store->sequence, NO_FLAGS, &error);
	check("SCICheckSequence", error);
	if (status == SCI_SEQ_OK)
		return false;
	while (status != SCI_SEQ_RETRIABLE && status != SCI_SEQ_OK && store->count) {
		status = SCIStartSequence(store->sequence, NO_FLAGS, &error);
		if (error == SCI_ERR_SEGMENT_NOT_CONNECTED)
			break;
		check("SCIStartSequence", error);
		for (unsigned int i = store->count; i-- > 0;) {
			if (!reaches(store, &store->followers[i], PING))
				forget(store, i);
		}
	}
	return store->count > 0;
}

static void put_in_order(struct store *store)
{
	if (strcmp(store->order, "sfence") == 0)
		_mm_sfence();
	else if (strcmp(store->order, "flush_null") == 0)
		SCIFlush(NULL, NO_FLAGS);
	else if (strcmp(store->order, "flush") == 0)
		SCIFlush(store->sequence, NO_FLAGS);
	else if (strcmp(store->order, "barrier") == 0)
		SCIStoreBarrier(store->sequence, NO_FLAGS);
	else if (strcmp(store->order, "fast_barrier") == 0)
		SCIStoreBarrier(store->sequence, SCI_FLAG_FAST_BARRIER);
}

static void put(struct store *store, const struct request *request)
{
	static struct record record;
	uint64_t version = store->version + 1;
	size_t at = LANE_AT(store->lane) + version % SLOTS * SLOT;
	size_t size = (offsetof(struct record, value) + request->length + 7) / 8 * 8;
	sci_error_t error;

	record.version = version;
	record.key = request->key;
	record.length = request->length;
	fill(record.value, request->length, request->key);
	record.sum = sum_of_record(&record, record.length);
	do {
		if (strcmp(store->order, "memcpy") == 0) {
			SCIMemCpy(store->sequence, &record, store->map, at, size, NO_FLAGS, &error);
			check("SCIMemCpy", error);
		} else {
			volatile uint64_t *to = (volatile uint64_t *)(store->memory + at);

			for (size_t i = 0; i < size / 8; i++)
				to[i] = ((const uint64_t *)&record)[i];
		}
		put_in_order(store);
	} while (strcmp(store->order, "check") == 0 && failed(store));
	*(volatile uint64_t *)(store->memory + words_of(store->lane)) = version;
	store->version = version;
}

/*
 * Starts a client, which requests records through a pipe. It inherits the library's state, and
 * ends.
 */
static int start_client(uint64_t lane, unsigned int records, pid_t *client)
{
	struct request request;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		die("pipe2");
	*client = fork();
	if (*client < 0)
		die("fork");
	if (*client == 0) {
		close(ends[0]);
		signal(SIGPIPE, SIG_DFL);
		for (unsigned int i = 1; records == 0 || i <= records; i++) {
			request.key = word(lane + 1, i);
			request.length = word(lane + 2, i) % VALUE;
			if (write(ends[1], &request, sizeof(request)) != sizeof(request))
				break;
		}
		exit(0);
	}
	close(ends[1]);
	return ends[0];
}

static int run_primary(uint64_t lane, unsigned int replicas, unsigned int records,
		       const char *order)
{
	struct store store = { .lane = lane, .order = order };
	struct request request;
	int requests, status;
	sci_error_t error;
	pid_t client;

	signal(SIGTERM, stop);
	open_device();
	create_data(device, &store.acks, ACKS + lane);
	gather(&store, replicas);
	connect_group(&store);
	requests = start_client(lane, records, &client);
	while (!stopping && store.count &&
	       read(requests, &request, sizeof(request)) == sizeof(request)) {
		put(&store, &request);
		/* Alternates between one record at a time, and as many as there is room for. */
		wait_for_room(&store, store.version / 64 % 2 ? SLOTS - 1 : 0);
		if (store.version % 50 == 0)
			say("lane %llu has stored %llu", (unsigned long long)lane,
			    (unsigned long long)store.version);
	}
	close(requests);
	if (waitpid(client, &status, 0) != client)
		die("waitpid");
	if (records && store.count && status != 0)
		die("a client has ended with %#x", status);
	wait_for_room(&store, 0);
	for (unsigned int i = 0; i < store.count; i++) {
		if (!reaches(&store, &store.followers[i], END))
			die("a replica does not hear of the end");
		SCIDisconnectDataInterrupt(store.followers[i].bell, NO_FLAGS, &error);
		check("SCIDisconnectDataInterrupt", error);
	}
	SCIRemoveSequence(store.sequence, NO_FLAGS, &error);
	check("SCIRemoveSequence", error);
	SCIUnmapSegment(store.map, NO_FLAGS, &error);
	check("SCIUnmapSegment", error);
	SCIDisconnectSegment(store.segment, NO_FLAGS, &error);
	check("SCIDisconnectSegment", error);
	SCIRemoveDataInterrupt(store.acks, NO_FLAGS, &error);
	check("SCIRemoveDataInterrupt", error);
	close_device();
	say("lane %llu: %llu records on %u replicas", (unsigned long long)lane,
	    (unsigned long long)store.version, store.count);
	return store.count ? WELL : PARTY_LOST;
}

static int run_workers(unsigned int workers, unsigned int replicas, unsigned int records,
		       const char *order)
{
	int status, worst = WELL;

	for (unsigned int lane = 0; lane < workers; lane++) {
		pid_t worker = fork();

		if (worker < 0)
			die("fork");
		if (worker == 0)
			exit(run_primary(lane, replicas, records, order));
	}
	while (wait(&status) > 0) {
		if (!WIFEXITED(status))
			die("a worker has ended with %#x", status);
		if (WEXITSTATUS(status) != WELL)
			worst = WEXITSTATUS(status);
	}
	return worst;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "replica") == 0 && number_of(argv[3]) <= LANES) {
		primary = number_of(argv[2]);
		return replica(number_of(argv[3]));
	}
	if (argc == 5 && strcmp(argv[1], "primary") == 0)
		return run_primary(0, number_of(argv[2]), number_of(argv[3]), argv[4]);
	if (argc == 6 && strcmp(argv[1], "primary") == 0 && number_of(argv[5]) <= LANES)
		return run_workers(number_of(argv[5]), number_of(argv[2]), number_of(argv[3]),
				   argv[4]);
	fprintf(stderr, "usage: field-kvstore replica PRIMARY LANES |\n"
		"       field-kvstore primary REPLICAS RECORDS ORDER [WORKERS]\n");
	return USAGE;
}
