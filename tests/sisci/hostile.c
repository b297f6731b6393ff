// SPDX-License-Identifier: GPL-2.0
/*
 * Hostile peers that do not use this library.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <linux/scif_services.h>

#include "sisci_suite.h"

/* The head of a message, as in tools/lib/sisci/src/protocol.rs. */
struct head {
	__u32 magic;
	__u16 kind;
	__u16 version;
	__u32 length;
	__u32 argument;
};

struct hello {
	struct head head;
	/* The token is in halves, so that the structure has no padding behind the number. */
	__u32 token[2];
	__u32 number;
};

struct welcome {
	struct head head;
	__u64 size;
	__u64 token;
	__u64 reserved;
};

enum { HELLO = 1, WELCOME, REFUSE, TRIGGER, NOTICE, BYE };

static struct head head(__u16 kind, __u32 length, __u32 argument)
{
	return (struct head) {
		.magic = 0x43534953, .kind = kind, .version = 1, .length = length,
		.argument = argument,
	};
}

/* Connects, and sends nothing. With O_NONBLOCK it does not wait. */
static int silent(__u32 class, __u32 number, int flags)
{
	struct scif_connect_name to = {
		.size = sizeof(to), .name_class = class, .name = number, .node = own_node(),
	};
	int endpoint = open("/dev/scif", O_RDWR | flags);
	int result;

	expect_ok(endpoint);
	result = ioctl(endpoint, SCIF_CONNECT_NAME, &to) ? -errno : 0;
	expect(!result || (result == -EINPROGRESS && flags & O_NONBLOCK));
	return endpoint;
}

static void say_hello(int endpoint, __u32 number)
{
	struct hello hello = {
		.head = head(HELLO, sizeof(hello) - sizeof(hello.head), 0), .number = number,
	};

	expect_value(scif_send(endpoint, &hello, sizeof(hello), SCIF_SEND_BLOCK), sizeof(hello));
}

static struct welcome welcomed(int endpoint)
{
	struct welcome welcome;

	expect_value(scif_recv(endpoint, &welcome, sizeof(welcome), SCIF_RECV_BLOCK),
		     sizeof(welcome));
	same(welcome.head.kind, WELCOME);
	return welcome;
}

static struct welcome greeted(__u32 class, __u32 number, int *endpoint)
{
	*endpoint = silent(class, number, 0);
	say_hello(*endpoint, number);
	return welcomed(*endpoint);
}

/* --- Connections that send nothing --- */

/* More connections than the library keeps at a time, for all names. */
#define SILENT	100

static void silent_connections(void)
{
	struct local local = exported(4096), other = exported(4096);
	unsigned int number = 0;
	int i;

	new_interrupt(local.device, &number, 0);
	for (i = 0; i < SILENT; i++)
		silent(SCIF_NAME_SEGMENT, local.id, 0);
	own_remote(&local);
	own_remote(&other);
	connect_interrupt(local.device, own_id(), number);
	for (i = 0; i < SILENT; i++)
		silent(SCIF_NAME_INTERRUPT, number, 0);
	own_remote(&local);
	connect_interrupt(local.device, own_id(), number);
}

/* --- Peers that send without end --- */

struct stream {
	__u32 class;
	__u32 number;
	struct head frame;
};

/* Sends until the other side closes. */
static void send_until_the_end(void *data)
{
	struct stream *stream = data;
	struct head frames[256];
	int endpoint;
	size_t i;

	greeted(stream->class, stream->number, &endpoint);
	for (i = 0; i < ARRAY_SIZE(frames); i++)
		frames[i] = stream->frame;
	while (scif_send(endpoint, frames, sizeof(frames), SCIF_SEND_BLOCK) > 0)
		;
}

static void importer_streams(void)
{
	struct local local = exported(4096), other = exported(4096);
	struct stream stream = { SCIF_NAME_SEGMENT, local.id, head(NOTICE, 0, 1) };
	pid_t children[4];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(children); i++)
		children[i] = in_child(send_until_the_end, &stream);
	for (i = 0; i < 20; i++)
		own_remote(&other);
	for (i = 0; i < ARRAY_SIZE(children); i++)
		child_passed(children[i]);
	own_remote(&local);
}

/* Sends triggers without data for which no thread waits. They count all the same. */
static void trigger_streams(void)
{
	struct local local = exported(4096);
	unsigned int number = 0, length, i;
	sci_local_data_interrupt_t interrupt = new_data_interrupt(local.device, &number);
	struct stream stream = { SCIF_NAME_DATA_INTERRUPT, number, head(TRIGGER, 0, 0) };
	sci_remote_data_interrupt_t remote;
	pid_t child = in_child(send_until_the_end, &stream);
	char data[8];

	for (i = 0; i < 15; i++) {
		remote = connect_data_interrupt(local.device, own_id(), number);
		good(SCIDisconnectDataInterrupt(remote, 0, &error));
		own_remote(&local);
	}
	kill(child, SIGKILL);
	same(child_signal(child), SIGKILL);
	for (i = 0; ; i++) {
		length = sizeof(data);
		before_call();
		SCIWaitForDataInterrupt(interrupt, data, &length, 0, 0, &error);
		if (error != SCI_ERR_OK)
			break;
		same(length, 0);
	}
	same(error, SCI_ERR_TIMEOUT);
	/* The limit of waiting triggers here, and of triggers of 16 bytes in a connection. */
	expect(i > 0 && i <= 65536 + 1024 + (16 << 20) / 16);
}

/* --- No descriptors left --- */

struct exporter {
	__u32 id;
	int said[2];
	int asked[2];
};

static void await(int fd)
{
	char byte;

	expect_value(read(fd, &byte, 1), 1);
}

static void tell(int fd)
{
	expect_value(write(fd, "x", 1), 1);
}

/* Exports a segment without a free descriptor for connections, until the parent asks for some. */
static void export_without_room(void *data)
{
	struct exporter *exporter = data;
	struct rlimit most = { 64, 64 };
	sci_local_segment_t segment;
	sci_desc_t device;
	long before;
	int last = 0, fd;

	expect_value(setrlimit(RLIMIT_NOFILE, &most), 0);
	good(SCIInitialize(0, &error));
	good(SCIOpen(&device, 0, &error));
	good(SCICreateSegment(device, &segment, exporter->id, 4096, NULL, NULL, 0, &error));
	good(SCIPrepareSegment(segment, ADAPTER, 0, &error));
	good(SCISetSegmentAvailable(segment, ADAPTER, 0, &error));
	while ((fd = dup(0)) >= 0)
		last = fd;
	tell(exporter->said[1]);
	/* Several importers want to connect now. */
	await(exporter->asked[0]);
	before = cpu_milliseconds();
	poll(NULL, 0, 400);
	expect(cpu_milliseconds() - before < 200);
	/* Frees three descriptors. */
	close(last);
	close(last - 1);
	close(last - 2);
	tell(exporter->said[1]);
	await(exporter->asked[0]);
	SCITerminate();
}

static void no_descriptors(void)
{
	struct exporter exporter = { .id = new_id() };
	int endpoint[8], i, accepted = 0;
	pid_t child;

	expect_value(pipe(exporter.said), 0);
	expect_value(pipe(exporter.asked), 0);
	child = in_child(export_without_room, &exporter);
	/* Closes the writing end here, so that the end of the child ends the wait, too. */
	close(exporter.said[1]);
	await(exporter.said[0]);
	for (i = 0; i < 8; i++)
		endpoint[i] = silent(SCIF_NAME_SEGMENT, exporter.id, O_NONBLOCK);
	tell(exporter.asked[1]);
	await(exporter.said[0]);
	/* All connections get their turn: silent ones are closed to make room. */
	for (i = 0; i < 8; i++) {
		struct pollfd fd = { .fd = endpoint[i], .events = POLLOUT };

		expect_value(poll(&fd, 1, -1), 1);
		accepted += !(fd.revents & POLLERR);
	}
	expect(accepted > 0);
	/* An importer that sends a request is served. */
	greeted(SCIF_NAME_SEGMENT, exporter.id, endpoint);
	tell(exporter.asked[1]);
	child_passed(child);
}

/* --- Tokens of connections --- */

static void tokens_are_random(void)
{
	struct local local = exported(4096);
	struct welcome first, second;
	int endpoint;

	first = greeted(SCIF_NAME_SEGMENT, local.id, &endpoint);
	second = greeted(SCIF_NAME_SEGMENT, local.id, &endpoint);
	expect(first.token && second.token);
	/* The halves do not depend on each other. */
	expect(first.token >> 32 != second.token >> 32);
	expect((__u32)first.token + 1 != (__u32)second.token);
	expect(first.token >> 32 != (__u32)getpid());
}

/* --- An owner of a segment that passes an invalid file --- */

#define NAME_OF_SOCKET	0x1234567800000000ull

/* Listens under the name of a segment, for importers that have got the name of the socket. */
static int scif_listener(__u32 id)
{
	int endpoint = expect_ok(scif_open());
	struct scif_bind_name bind = {
		.size = sizeof(bind), .name_class = SCIF_NAME_SEGMENT, .name = id,
	};

	expect_ok(scif_bind(endpoint, 0));
	expect_value(ioctl(scif_get_fd(endpoint), SCIF_BIND_NAME, &bind), 0);
	expect_ok(scif_listen(endpoint, 8));
	return endpoint;
}

static int socket_listener(__u64 name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	int len;

	expect_ok(fd);
	len = snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "sisci-%016llx",
		       (unsigned long long)name);
	expect_value(bind(fd, (void *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + len),
		     0);
	expect_value(listen(fd, 8), 0);
	return fd;
}

static void pass(int listener, int file)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} rights = { .head = {
		.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
		.cmsg_type = SCM_RIGHTS,
	} };
	struct iovec byte = { .iov_base = "x", .iov_len = 1 };
	struct msghdr message = {
		.msg_iov = &byte, .msg_iovlen = 1,
		.msg_control = file < 0 ? NULL : &rights,
		.msg_controllen = file < 0 ? 0 : sizeof(rights.space),
	};
	int taker = accept(listener, NULL, NULL);

	expect_ok(taker);
	memcpy(CMSG_DATA(&rights.head), &file, sizeof(file));
	expect_value(sendmsg(taker, &message, 0), 1);
	close(taker);
}

static int sealed(int seals, long size)
{
	int fd = memfd_create("hostile", MFD_ALLOW_SEALING);

	expect_ok(fd);
	expect_value(ftruncate(fd, size), 0);
	expect_value(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

struct giver {
	__u32 id;
	int ready[2];
};

/* Number of its files that are invalid. A valid one follows. */
#define NOT_GOOD	6

static void give_all_kinds(void *data)
{
	struct giver *giver = data;
	int scif = scif_listener(giver->id), taken, i;
	char path[64] = "/tmp/sisci-hostile-XXXXXX", again[64];
	int files[NOT_GOOD + 1];

	/* No file; no memory; shrinkable; too small; read-only; a device. */
	files[0] = -1;
	files[1] = mkstemp(path);
	expect_ok(files[1]);
	unlink(path);
	expect_value(ftruncate(files[1], 8192), 0);
	files[2] = sealed(F_SEAL_GROW, 8192);
	files[3] = sealed(F_SEAL_SHRINK, 4096);
	snprintf(again, sizeof(again), "/proc/self/fd/%d", sealed(F_SEAL_SHRINK, 8192));
	files[4] = open(again, O_RDONLY);
	expect_ok(files[4]);
	files[5] = open("/dev/zero", O_RDWR);
	expect_ok(files[5]);
	files[6] = sealed(F_SEAL_SHRINK, 8192);
	tell(giver->ready[1]);
	for (i = 0; i <= NOT_GOOD; i++) {
		struct welcome welcome = {
			head(WELCOME, sizeof(welcome) - sizeof(welcome.head), 0),
			8192, NAME_OF_SOCKET + i, (__u64)files[1] << 32 | getpid(),
		};
		int listener = socket_listener(welcome.token);
		struct scif_portID peer;
		struct hello hello;

		expect_ok(scif_accept(scif, &peer, &taken, SCIF_ACCEPT_SYNC));
		expect_value(scif_recv(taken, &hello, sizeof(hello), SCIF_RECV_BLOCK),
			     sizeof(hello));
		same(hello.head.kind, HELLO);
		expect_value(scif_send(taken, &welcome, sizeof(welcome), SCIF_SEND_BLOCK),
			     sizeof(welcome));
		pass(listener, files[i]);
		close(listener);
	}
}

static void attach_no_memory(void)
{
	struct giver giver = { .id = new_id() };
	sci_local_segment_t segment;
	sci_desc_t device;
	size_t size;
	pid_t child;
	int i;

	expect_value(pipe(giver.ready), 0);
	child = in_child(give_all_kinds, &giver);
	close(giver.ready[1]);
	await(giver.ready[0]);
	device = new_device();
	for (i = 0; i < NOT_GOOD; i++)
		bad(SCI_ERR_ACCESS, SCIAttachLocalSegment(device, &segment, giver.id, &size, NULL,
							  NULL, 0, &error));
	good(SCIAttachLocalSegment(device, &segment, giver.id, &size, NULL, NULL, 0, &error));
	same(size, 8192);
	child_passed(child);
}

const struct test_case hostile_cases[] = {
	ALONE(silent_connections, "hostile.silent"),
	ALONE(importer_streams, "hostile.streams"),
	ALONE(trigger_streams, "hostile.streams"),
	ALONE(no_descriptors, "hostile.no-descriptors"),
	ALONE(tokens_are_random, "hostile.tokens"),
	ALONE(attach_no_memory, "share.memory"),
	{ }
};
