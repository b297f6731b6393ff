// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of the status of nodes (SCIF_NODE_STATUS), and of the content of mappings after a loss
 * (SCIF_MAP_POLICY). Cases in which a node is lost are in tests/src/scif_status.rs.
 */
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <linux/scif_services.h>

#include "../harness/suite.h"

/* Largest number of nodes with a status, and some more that the agents may have. */
#define MOST	1024

static int status_of(int endpoint, __u16 node)
{
	struct scif_node_status request = {
		.size = sizeof(request),
		.node = node,
		.fd = -1,
	};

	expect_value(ioctl(endpoint, SCIF_NODE_STATUS, &request), 0);
	expect(request.size == sizeof(request) && request.node == node && request.fd >= 0);
	return request.fd;
}

static const volatile struct scif_status_page *page_of(int status)
{
	void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, status, 0);

	if (page == MAP_FAILED)
		fail("mmap of a status: %s", strerror(errno));
	return page;
}

/* Checks the status of an online node. The boot id has to be that of the epoch. */
static void expect_online(__u16 node)
{
	int endpoint = expect_ok(scif_open());
	int status = status_of(endpoint, node);
	const volatile struct scif_status_page *page = page_of(status);
	__u64 epoch, boot_id[2];

	expect(page->version == SCIF_STATUS_VERSION);
	expect(page->node == node);
	/* The node may have come online this moment. */
	wait_until(page->epoch % 2 == 1);
	epoch = page->epoch;
	boot_id[0] = page->boot_id[0];
	boot_id[1] = page->boot_id[1];
	expect(boot_id[0] || boot_id[1]);
	expect(page->epoch == epoch);
}

static void status_self(void)
{
	expect_online(own_node());
}

static void status_peer(void)
{
	struct pair pair = connected();

	expect_online(peer_node(pair.peer));
}

static void status_absent(void)
{
	int endpoint = expect_ok(scif_open());
	__u16 node = absent_node();
	int status = status_of(endpoint, node);
	const volatile struct scif_status_page *page = page_of(status);

	expect(page->version == SCIF_STATUS_VERSION);
	expect(page->node == node);
	expect(page->epoch == 0);
	expect(!page->errors && !page->boot_id[0] && !page->boot_id[1]);
}

static void status_any_state(void)
{
	struct pair pair = connected_here();
	int endpoint = expect_ok(scif_open());
	__u16 node = own_node();

	status_of(endpoint, node);
	expect_ok(scif_bind(endpoint, 0));
	status_of(endpoint, node);
	expect_value(scif_listen(endpoint, 1), 0);
	status_of(endpoint, node);
	status_of(pair.here, node);
	status_of(pair.there, node);
}

/* Checks that any size from that of the first version up to a page is accepted. */
static void expect_sizes(unsigned long call, size_t least, void *request)
{
	int endpoint = expect_ok(scif_open());
	char *room = pages(2);
	__u32 size;
	size_t wrong[] = { 0, 4, least - 4, least - 1, PAGE + 1, UINT_MAX };
	unsigned int i;

	memcpy(room, request, least);
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		size = wrong[i];
		memcpy(room, &size, sizeof(size));
		expect_error(ioctl(endpoint, call, room), EINVAL);
	}
	for (size = least; size <= least + 64; size += 8) {
		memcpy(room, &size, sizeof(size));
		expect_value(ioctl(endpoint, call, room), 0);
	}
	room[least + 64 - 8 + 7] = 1;
	size = least + 64;
	memcpy(room, &size, sizeof(size));
	expect_error(ioctl(endpoint, call, room), E2BIG);
	expect_error(ioctl(endpoint, call, NULL), EFAULT);
	/* The structure ends behind the page. */
	size = least;
	memcpy(room + PAGE - 8, &size, sizeof(size));
	expect_value(munmap(room + PAGE, PAGE), 0);
	expect_error(ioctl(endpoint, call, room + PAGE - 8), EFAULT);
}

static void status_sizes(void)
{
	struct scif_node_status request = { .node = own_node() };

	expect_sizes(SCIF_NODE_STATUS, sizeof(request), &request);
}

static void status_reserved(void)
{
	struct scif_node_status request = {
		.size = sizeof(request),
		.node = own_node(),
	};
	int endpoint = expect_ok(scif_open());

	request.flags = 1;
	expect_error(ioctl(endpoint, SCIF_NODE_STATUS, &request), EINVAL);
	request.flags = 0;
	request.reserved = 1;
	expect_error(ioctl(endpoint, SCIF_NODE_STATUS, &request), EINVAL);
	request.reserved = 0;
	request.reserved2 = 1ULL << 63;
	expect_error(ioctl(endpoint, SCIF_NODE_STATUS, &request), EINVAL);
	request.reserved2 = 0;
	expect_value(ioctl(endpoint, SCIF_NODE_STATUS, &request), 0);
}

/* If the result can't be written, no resources remain. */
static void status_result_unwritable(void)
{
	struct scif_node_status *request = pages(1);
	int endpoint = expect_ok(scif_open());
	int next = expect_ok(dup(endpoint));

	close(next);
	request->size = sizeof(*request);
	expect_value(mprotect(request, PAGE, PROT_READ), 0);
	expect_error(ioctl(endpoint, SCIF_NODE_STATUS, request), EFAULT);
	expect_value(dup(endpoint), next);
}

static void status_descriptor(void)
{
	int endpoint = expect_ok(scif_open());
	int status = status_of(endpoint, own_node());
	char byte = 0;

	expect(expect_ok(fcntl(status, F_GETFD)) & FD_CLOEXEC);
	expect_error(write(status, &byte, 1), EINVAL);
	expect_error(ioctl(status, SCIF_NODE_STATUS, &byte), ENOTTY);
}

static void expect_no_map(int status, long len, int prot, int flags, long offset, int error,
			  int other)
{
	int found;

	expect(mmap(NULL, len, prot, flags, status, offset) == MAP_FAILED);
	found = errno;
	expect(found == error || found == other);
}

static void status_read_only(void)
{
	int endpoint = expect_ok(scif_open());
	int status = status_of(endpoint, own_node());
	void *page = (void *)page_of(status);

	expect_no_map(status, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0, EACCES, EACCES);
	expect_no_map(status, PAGE, PROT_WRITE, MAP_SHARED, 0, EACCES, EACCES);
	expect_no_map(status, PAGE, PROT_NONE, MAP_SHARED, 0, EACCES, EACCES);
	expect_no_map(status, PAGE, PROT_READ | PROT_EXEC, MAP_SHARED, 0, EACCES, EPERM);
	expect_no_map(status, PAGE, PROT_READ, MAP_PRIVATE, 0, EINVAL, EINVAL);
	expect_no_map(status, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0, EINVAL, EINVAL);
	expect_no_map(status, PAGE, PROT_READ, MAP_SHARED, PAGE, EINVAL, EINVAL);
	expect_no_map(status, 2 * PAGE, PROT_READ, MAP_SHARED, 0, EINVAL, EINVAL);
	expect_error(mprotect(page, PAGE, PROT_READ | PROT_WRITE), EACCES);
	expect_error(mprotect(page, PAGE, PROT_READ | PROT_EXEC), EACCES);
	expect(mremap(page, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED);
	expect(((const volatile struct scif_status_page *)page)->node == own_node());
}

static sigjmp_buf after_fault;

static void on_fault(int signal)
{
	siglongjmp(after_fault, signal);
}

static void status_no_store(void)
{
	int endpoint = expect_ok(scif_open());
	const volatile struct scif_status_page *page = page_of(status_of(endpoint, own_node()));
	__u64 errors = page->errors;
	int signal;

	sigaction(SIGSEGV, &(struct sigaction) { .sa_handler = on_fault }, NULL);
	signal = sigsetjmp(after_fault, 1);
	if (!signal)
		*(volatile __u64 *)&page->errors = 77;
	expect(signal == SIGSEGV);
	expect(page->errors == errors);
}

static void status_outlives(void)
{
	int endpoint = expect_ok(scif_open());
	int status = status_of(endpoint, own_node());
	const volatile struct scif_status_page *page = page_of(status);
	__u64 epoch;

	expect_value(scif_close(endpoint), 0);
	expect_value(read(status, &epoch, sizeof(epoch)), 8);
	expect_value(close(status), 0);
	expect(page->epoch == epoch && page->node == own_node());
	expect_value(munmap((void *)page, PAGE), 0);
}

static void status_rest_is_zero(void)
{
	int endpoint = expect_ok(scif_open());
	const char *page = (const char *)page_of(status_of(endpoint, own_node()));
	long known = sizeof(struct scif_status_page);

	expect_value(differs_from_byte(page + known, 0, PAGE - known), -1);
}

static void status_read(void)
{
	int endpoint = expect_ok(scif_open());
	int status = status_of(endpoint, own_node());
	const volatile struct scif_status_page *page = page_of(status);
	__u64 epoch[2] = { 0, 77 };
	char *gone = pages(1);

	expect_value(read(status, epoch, sizeof(epoch)), 8);
	expect(epoch[0] == page->epoch && epoch[1] == 77);
	expect_value(read(status, epoch, 8), 8);
	expect_error(read(status, epoch, 7), EINVAL);
	expect_error(read(status, epoch, 0), EINVAL);
	expect_value(munmap(gone, PAGE), 0);
	expect_error(read(status, gone, 8), EFAULT);
}

static void status_poll_quiet(void)
{
	int endpoint = expect_ok(scif_open());
	struct pollfd poller = {
		.fd = status_of(endpoint, own_node()),
		.events = POLLIN | POLLPRI,
	};

	expect_value(poll(&poller, 1, A_MOMENT), 0);
	poller.fd = status_of(endpoint, absent_node());
	expect_value(poll(&poller, 1, A_MOMENT), 0);
}

static void allow_descriptors(long count)
{
	struct rlimit limit = { .rlim_cur = count, .rlim_max = count };

	if (setrlimit(RLIMIT_NOFILE, &limit))
		fail("setrlimit: %s", strerror(errno));
}

static void status_no_descriptor(void)
{
	int endpoint = expect_ok(scif_open());
	struct scif_node_status request = {
		.size = sizeof(request),
		.node = own_node(),
	};

	allow_descriptors(endpoint + 1);
	expect_error(ioctl(endpoint, SCIF_NODE_STATUS, &request), EMFILE);
}

static void status_limit(void)
{
	struct scif_node_status request = { .size = sizeof(request) };
	int endpoint = expect_ok(scif_open());
	int first = 0, count = 0;
	__u16 node;

	allow_descriptors(3 * MOST);
	for (node = 20000; count <= MOST; node++, count++) {
		request.node = node;
		if (ioctl(endpoint, SCIF_NODE_STATUS, &request))
			break;
		if (!first)
			first = request.fd;
	}
	expect_error(ioctl(endpoint, SCIF_NODE_STATUS, &request), ENOSPC);
	expect(count > MOST - 64 && count <= MOST);
	/*
	 * The limit does not count nodes that are watched already, nor this node. If a status is
	 * closed, there is room for another one.
	 */
	status_of(endpoint, 20001);
	status_of(endpoint, own_node());
	expect_value(close(first), 0);
	status_of(endpoint, node);
}

/* --- Policy of mappings --- */

static void set_policy(int endpoint, __u32 flags)
{
	struct scif_map_policy policy = { .size = sizeof(policy), .flags = flags };

	expect_value(ioctl(endpoint, SCIF_MAP_POLICY, &policy), 0);
}

static void policy_sizes(void)
{
	struct scif_map_policy request = { };

	expect_sizes(SCIF_MAP_POLICY, sizeof(request), &request);
}

static void policy_reserved(void)
{
	struct scif_map_policy policy = { .size = sizeof(policy), .flags = 2 };
	int endpoint = expect_ok(scif_open());

	expect_error(ioctl(endpoint, SCIF_MAP_POLICY, &policy), EINVAL);
	policy.flags = SCIF_MAP_ONES_AFTER_LOSS | 1U << 31;
	expect_error(ioctl(endpoint, SCIF_MAP_POLICY, &policy), EINVAL);
	policy.flags = SCIF_MAP_ONES_AFTER_LOSS;
	policy.reserved = 1;
	expect_error(ioctl(endpoint, SCIF_MAP_POLICY, &policy), EINVAL);
}

static void policy_any_state(void)
{
	struct pair pair = connected_here();
	int endpoint = expect_ok(scif_open());

	set_policy(endpoint, SCIF_MAP_ONES_AFTER_LOSS);
	expect_ok(scif_bind(endpoint, 0));
	set_policy(endpoint, 0);
	expect_value(scif_listen(endpoint, 1), 0);
	set_policy(endpoint, SCIF_MAP_ONES_AFTER_LOSS);
	set_policy(pair.here, SCIF_MAP_ONES_AFTER_LOSS);
	set_policy(pair.there, SCIF_MAP_ONES_AFTER_LOSS);
}

static void policy_peer_there(void)
{
	struct windows windows = connected_windows(8);
	struct pair *pair = &windows.pair;
	unsigned char *both, *reads;

	set_policy(pair->here, SCIF_MAP_ONES_AFTER_LOSS);
	ask(pair->peer, DO_FILL, windows.peer_memory, 1, windows.len);
	both = scif_mmap(NULL, windows.len, READ_WRITE, 0, pair->here, windows.peer_offset);
	reads = scif_mmap(NULL, windows.len, SCIF_PROT_READ, 0, pair->here, windows.peer_offset);
	expect(both != SCIF_MMAP_FAILED && reads != SCIF_MMAP_FAILED);
	expect_value(differs(reads, 1, windows.len), -1);
	fill(both, 2, windows.len);
	expect_value(differs(both, 2, windows.len), -1);
	expect_value(differs(reads, 2, windows.len), -1);
	expect_value(ask(pair->peer, DO_DIFFERS, windows.peer_memory, 2, windows.len), -1);
	expect_error(mprotect(reads, PAGE, PROT_READ | PROT_WRITE), EACCES);

	/* A peer that closes is not lost, so the mapping stays. */
	ask(pair->peer, DO_CLOSE, pair->there);
	wait_for_hangup(pair->here);
	expect_value(differs(reads, 2, windows.len), -1);
	both[0]++;
	expect(reads[0] == both[0]);
}

const struct test_case status_cases[] = {
	ALONE(status_self, "status.page status.self status.boot-id"),
	PAIR(status_peer, "status.page status.online status.boot-id"),
	ALONE(status_absent, "status.absent"),
	PAIR(status_any_state, "status.any-state"),
	ALONE(status_sizes, "status.size"),
	ALONE(status_reserved, "status.reserved"),
	ALONE(status_result_unwritable, "status.bad-address"),
	ALONE(status_descriptor, "status.descriptor"),
	ALONE(status_read_only, "status.read-only status.one-page"),
	ALONE(status_no_store, "status.read-only"),
	ALONE(status_outlives, "status.outlives"),
	ALONE(status_rest_is_zero, "status.page"),
	ALONE(status_read, "status.read"),
	ALONE(status_poll_quiet, "status.poll"),
	ALONE(status_no_descriptor, "status.no-descriptor"),
	ALONE(status_limit, "status.limit"),
	ALONE(policy_sizes, "policy.size"),
	ALONE(policy_reserved, "policy.reserved"),
	PAIR(policy_any_state, "policy.any-state"),
	PAIR_MAPPED(policy_peer_there, "policy.peer-there mmap.peer-close"),
	{ }
};
