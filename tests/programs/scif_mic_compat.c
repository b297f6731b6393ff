// SPDX-License-Identifier: GPL-2.0
/*
 * A program of the MIC library, as the kernel sees it: /dev/mic/scif, and ioctl numbers that carry
 * the size of a pointer instead of that of the structure.
 *
 *	scif_mic_compat server PORT		serves one client
 *	scif_mic_compat client NODE PORT	tests against a server
 *	scif_mic_compat loopback PORT		both, on this node
 *	scif_mic_compat unknown DEVICE		tests that the device does not know the numbers
 *
 * All but the server print TAP. The structures are those of today, except that of GET_NODEIDS.
 * Numbers that have not changed come from today's header.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <linux/scif_ioctl.h>

#include "checks.h"
#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"
#include "signals.h"

/* The size in these numbers is eight bytes, in a 32-bit program, too. */
#define MIC(nr)			_IOWR('s', nr, __u64)
#define MIC_ACCEPTREQ		MIC(4)
#define MIC_SEND		MIC(6)
#define MIC_RECV		MIC(7)
#define MIC_REG			MIC(8)
#define MIC_UNREG		MIC(9)
#define MIC_READFROM		MIC(10)
#define MIC_WRITETO		MIC(11)
#define MIC_VREADFROM		MIC(12)
#define MIC_VWRITETO		MIC(13)
#define MIC_GET_NODEIDS		MIC(14)
#define MIC_FENCE_MARK		MIC(15)
#define MIC_FENCE_SIGNAL	MIC(17)
#define MIC_GET_VERSION		_IO('s', 23)

struct mic_node_ids {
	__u64 nodes;
	__s32 len;
	__u64 self;
};

#define OFFSET			0x20000000LL
#define SIZE			(64 * 4096)
#define WORD			(SIZE - 4096)

/* Moves all bytes, or fails. */
static int message(int fd, unsigned long call, const void *data, int len)
{
	return scif_message(fd, call, data, len, SCIF_SEND_BLOCK) == len ? 0 : -1;
}

static unsigned char *make_window(int fd)
{
	unsigned char *area = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct scifioctl_reg argument = {
		.addr = (uintptr_t)area, .len = SIZE, .offset = OFFSET,
		.prot = SCIF_PROT_READ | SCIF_PROT_WRITE, .flags = SCIF_MAP_FIXED,
	};

	if (area == MAP_FAILED)
		die("mmap");
	if (ioctl(fd, MIC_REG, &argument) || argument.out_offset != OFFSET)
		die("SCIF_REG");
	return area;
}

/* --- Server --- */

/* Runs a server that has a window, and sends back all data until the client closes. */
static void run_server(int listener)
{
	int fd = accept_from(listener);
	char word[8];

	make_window(fd);
	while (!message(fd, MIC_RECV, word, sizeof(word))) {
		if (message(fd, MIC_SEND, word, sizeof(word)))
			die("SCIF_SEND");
	}
	close(fd);
}

/* --- Client --- */

static int node_ids(int fd, __u16 *nodes, int len, __u16 *self)
{
	struct mic_node_ids argument = {
		.nodes = (uintptr_t)nodes, .len = len, .self = (uintptr_t)self,
	};

	/* A library may have read the number from the result or from the argument. */
	if (ioctl(fd, MIC_GET_NODEIDS, &argument) != argument.len)
		return -1;
	return argument.len;
}

/* Copies all but the last page, between addresses that the call takes. */
static int copy(int fd, unsigned long call, void *memory)
{
	struct scifioctl_copy argument = {
		.loffset = memory ? 0 : OFFSET, .len = WORD, .roffset = OFFSET,
		.addr = (uintptr_t)memory, .flags = SCIF_RMA_SYNC,
	};

	return ioctl(fd, call, &argument);
}

static void test_transfers(int fd)
{
	struct scifioctl_fence_signal signal = {
		.loff = OFFSET + WORD, .lval = 0x1122334455667788, .roff = OFFSET + WORD,
		.rval = 0x99aabbccddeeff00,
		.flags = SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL | SCIF_SIGNAL_REMOTE,
	};
	struct scifioctl_unreg range = { .offset = OFFSET, .len = SIZE };
	__s32 mark[2] = { 0, 0x5a5a };
	struct scifioctl_fence_mark fence = {
		.flags = SCIF_FENCE_INIT_SELF, .mark = (uintptr_t)mark,
	};
	struct scifioctl_copy word = {
		.loffset = OFFSET, .len = 8, .roffset = OFFSET + WORD, .flags = SCIF_RMA_SYNC,
	};
	unsigned char *area = make_window(fd), *other = malloc(WORD);
	time_t end = time(NULL) + HANG_LIMIT_SECONDS;
	int i;

	if (!other)
		die("malloc");
	for (i = 0; i < WORD; i++)
		area[i] = i * 7 + i / 251;
	test(!copy(fd, MIC_WRITETO, NULL), "writeto");
	test(!copy(fd, MIC_VREADFROM, other) && !memcmp(area, other, WORD), "vreadfrom");
	for (i = 0; i < WORD; i++)
		other[i] = ~other[i];
	test(!copy(fd, MIC_VWRITETO, other), "vwriteto");
	test(!copy(fd, MIC_READFROM, NULL) && !memcmp(area, other, WORD), "readfrom");
	test(!ioctl(fd, MIC_FENCE_MARK, &fence) && mark[0] > 0 && mark[1] == 0x5a5a,
	     "fence_mark");
	test(!ioctl(fd, SCIF_FENCE_WAIT, (unsigned long)mark[0]), "fence_wait");
	test(!ioctl(fd, MIC_FENCE_SIGNAL, &signal) &&
	     comes((__u64 *)(area + WORD), signal.lval), "fence_signal to the own window");
	while (!ioctl(fd, MIC_READFROM, &word) && memcmp(area, &signal.rval, 8) &&
	       time(NULL) <= end)
		usleep(1000);
	test(!memcmp(area, &signal.rval, 8), "fence_signal to the peer's window");
	test(!ioctl(fd, MIC_UNREG, &range), "unregister");
	test_errno(ioctl(fd, MIC_UNREG, &range), ENXIO, "unregister twice");
	free(other);
}

static void run_client(__u16 node, __u16 port)
{
	struct scifioctl_connect connect = { .peer = { .node = node, .port = port } };
	__u16 nodes[64], self = 0xffff, newer_self = 0;
	struct scifioctl_node_ids newer = { .self = (uintptr_t)&newer_self };
	bool found = false;
	int fd = scif_open(), count, i;
	char word[8];

	test(ioctl(fd, MIC_GET_VERSION, 0) == 1, "the version is 1");
	count = node_ids(fd, nodes, 64, &self);
	for (i = 0; i < count && i < 64; i++)
		found |= nodes[i] == node;
	test(found && self == own_node(), "nodes");
	test(node_ids(fd, NULL, 0, &self) == count, "nodes, counted without an array");
	test_errno(node_ids(fd, nodes, 64, NULL), EFAULT, "nodes, NULL for the own id");
	test(ioctl(fd, SCIF_GET_NODEIDS, &newer) == count && newer_self == self,
	     "nodes, by the newer number");

	test(!ioctl(fd, SCIF_CONNECT, &connect) && connect.self.node == self, "connect");
	test(!message(fd, MIC_SEND, "12345678", 8) && !message(fd, MIC_RECV, word, 8) &&
	     !memcmp(word, "12345678", 8), "send and recv");
	test_transfers(fd);
	close(fd);
}

/* --- Neither server nor client --- */

static void test_unknown(const char *device)
{
	static const unsigned int pointer_sized[] = { 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17 };
	static char argument[64];
	unsigned int i;
	__u16 self;
	struct scifioctl_node_ids newer = { .self = (uintptr_t)&self };
	int fd = open(device, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die(device);
	for (i = 0; i < sizeof(pointer_sized) / sizeof(*pointer_sized); i++)
		test_errno(ioctl(fd, MIC(pointer_sized[i]), argument), ENOTTY,
			   "number %u of eight bytes", pointer_sized[i]);
	test_errno(ioctl(fd, MIC_GET_VERSION, 0), ENOTTY, "the version");
	test(ioctl(fd, SCIF_GET_NODEIDS, &newer) >= 1, "the newer numbers are known");
	close(fd);
}

static long parse(const char *text)
{
	char *end;
	long value = strtol(text, &end, 0);

	if (!*text || *end || value < 0 || value > 65535) {
		fprintf(stderr, "scif_mic_compat: %s is not a number from 0 to 65535\n", text);
		exit(2);
	}
	return value;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";
	int listener;
	pid_t server;
	__u16 port;

	/* A test that hangs has to fail. */
	alarm(PROGRAM_LIMIT_SECONDS);
	scif_device = "/dev/mic/scif";
	scif_acceptreq = MIC_ACCEPTREQ;
	if (!strcmp(mode, "server") && argc == 3) {
		port = parse(argv[2]);
		listener = listen_on(&port);
		printf("listening on port %s\n", argv[2]);
		fflush(stdout);
		run_server(listener);
		return 0;
	}
	if (!strcmp(mode, "client") && argc == 4) {
		run_client(parse(argv[2]), parse(argv[3]));
	} else if (!strcmp(mode, "loopback") && argc == 3) {
		port = parse(argv[2]);
		listener = listen_on(&port);
		server = new_child();
		if (!server) {
			run_server(listener);
			return 0;
		}
		close(listener);
		run_client(own_node(), parse(argv[2]));
		test(!wait_for_child(server), "the server ended well");
	} else if (!strcmp(mode, "unknown") && argc == 3) {
		test_unknown(argv[2]);
	} else {
		fprintf(stderr, "usage: scif_mic_compat server PORT\n"
			"       scif_mic_compat client NODE PORT\n"
			"       scif_mic_compat loopback PORT\n"
			"       scif_mic_compat unknown DEVICE\n");
		return 2;
	}
	return finish_tests();
}
