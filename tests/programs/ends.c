// SPDX-License-Identifier: GPL-2.0
/*
 * Functions for the calls of linux/scif_ioctl.h (ends.h).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "children.h"
#include "die.h"
#include "ends.h"
#include "hang_limits.h"

/* Number of requests that may wait for accept. */
#define BACKLOG		16

const char *scif_device = "/dev/scif";
unsigned long scif_acceptreq = SCIF_ACCEPTREQ;

int scif_open(void)
{
	int fd = open(scif_device, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		die(scif_device);
	return fd;
}

/* Passes a two-byte port as libraries do, although the ioctl number says eight bytes. */
int scif_bind(int fd, __u16 *port)
{
	return ioctl(fd, SCIF_BIND, port);
}

int scif_listen(int fd, int backlog)
{
	return ioctl(fd, SCIF_LISTEN, (long)backlog);
}

int scif_connect(int fd, __u16 node, __u16 port)
{
	struct scifioctl_connect argument = { .peer = { .node = node, .port = port } };

	return ioctl(fd, SCIF_CONNECT, &argument) ? -1 : argument.self.port;
}

int scif_accept(int fd, struct scif_port_id *peer, int flags)
{
	struct scifioctl_accept argument = { .flags = flags };
	int accepted;

	if (ioctl(fd, scif_acceptreq, &argument))
		return -1;
	if (peer)
		*peer = argument.peer;
	accepted = scif_open();
	if (ioctl(accepted, SCIF_ACCEPTREG, &argument.endpt))
		die("SCIF_ACCEPTREG");
	return accepted;
}

int scif_message(int fd, unsigned long call, const void *data, int len, int flags)
{
	struct scifioctl_msg argument = {
		.msg = (uintptr_t)data, .len = len, .flags = flags, .out_len = -7,
	};

	return ioctl(fd, call, &argument) ? -1 : argument.out_len;
}

int scif_send(int fd, const void *data, int len, int flags)
{
	return scif_message(fd, SCIF_SEND, data, len, flags);
}

int scif_recv(int fd, void *data, int len, int flags)
{
	return scif_message(fd, SCIF_RECV, data, len, flags);
}

__s64 scif_register(int fd, void *memory, __s64 len, __s64 offset, int prot, int flags)
{
	struct scifioctl_reg argument = {
		.addr = (uintptr_t)memory, .len = len, .offset = offset,
		.prot = prot, .flags = flags,
	};

	return ioctl(fd, SCIF_REG, &argument) ? -1 : argument.out_offset;
}

int scif_unregister(int fd, __s64 offset, __s64 len)
{
	struct scifioctl_unreg argument = { .offset = offset, .len = len };

	return ioctl(fd, SCIF_UNREG, &argument);
}

int scif_fence_mark(int fd, int flags, __s32 *mark)
{
	struct scifioctl_fence_mark argument = { .flags = flags, .mark = (uintptr_t)mark };

	return ioctl(fd, SCIF_FENCE_MARK, &argument);
}

int scif_fence_wait(int fd, __s32 mark)
{
	return ioctl(fd, SCIF_FENCE_WAIT, (unsigned long)mark);
}

int scif_nodes(int fd, __u16 *nodes, int len, __u16 *self)
{
	struct scifioctl_node_ids argument = {
		.nodes = (uintptr_t)nodes, .self = (uintptr_t)self, .len = len,
	};

	return ioctl(fd, SCIF_GET_NODEIDS, &argument);
}

__u16 own_node(void)
{
	int fd = scif_open();
	__u16 self;

	if (scif_nodes(fd, NULL, 0, &self) < 1)
		die("SCIF_GET_NODEIDS");
	close(fd);
	return self;
}

int listen_on(__u16 *port)
{
	int fd = scif_open();

	if (scif_bind(fd, port))
		die("SCIF_BIND");
	if (scif_listen(fd, BACKLOG))
		die("SCIF_LISTEN");
	return fd;
}

int accept_from(int listener)
{
	int fd;

	do
		fd = scif_accept(listener, NULL, SCIF_ACCEPT_SYNC);
	while (fd < 0 && errno == EINTR);
	if (fd < 0)
		die("SCIF_ACCEPTREQ");
	return fd;
}

int connected(__u16 node, __u16 port)
{
	int fd = scif_open();

	if (scif_connect(fd, node, port) < 0)
		die("SCIF_CONNECT");
	return fd;
}

void serve_clients(int listener, void (*prepare)(int fd))
{
	int fd;

	/* Serving processes are not waited for, so the kernel reaps them. */
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		fd = accept_from(listener);
		if (new_child()) {
			close(fd);
			continue;
		}
		prepare(fd);
		if (scif_send(fd, "", 1, SCIF_SEND_BLOCK) != 1)
			die("SCIF_SEND");
		poll(&(struct pollfd){ .fd = fd }, 1, -1);
		exit(0);
	}
}

void serve_clients_at(__u16 port, void (*prepare)(int fd))
{
	int listener = listen_on(&port);

	printf("# listening\n");
	fflush(stdout);
	serve_clients(listener, prepare);
}

int served(__u16 node, __u16 port)
{
	int fd = connected(node, port);
	char ready;

	if (scif_recv(fd, &ready, 1, SCIF_RECV_BLOCK) != 1)
		die("no server");
	return fd;
}

int events(int fd, int wanted, int timeout)
{
	struct pollfd pollfd = { .fd = fd, .events = wanted };

	return poll(&pollfd, 1, timeout) < 0 ? -1 : pollfd.revents;
}

int wait_for(int fd, int wanted)
{
	return events(fd, wanted, HANG_LIMIT_SECONDS * 1000) & wanted;
}

int start_connect(int fd, __u16 port)
{
	int result;

	if (fcntl(fd, F_SETFL, O_NONBLOCK))
		die("fcntl");
	result = scif_connect(fd, own_node(), port);
	return result < 0 && errno != EINPROGRESS ? -1 : 0;
}

int finish_connect(int fd, __u16 port)
{
	int result;

	wait_for(fd, POLLOUT);
	result = scif_connect(fd, own_node(), port);
	fcntl(fd, F_SETFL, 0);
	return result < 0 ? -1 : 0;
}

struct pair make_pair(void)
{
	struct pair pair = { .port = 0 };

	pair.listener = listen_on(&pair.port);
	pair.fd[0] = scif_open();
	if (start_connect(pair.fd[0], pair.port))
		die("connect within a process");
	pair.fd[1] = accept_from(pair.listener);
	if (finish_connect(pair.fd[0], pair.port))
		die("a pair within a process");
	return pair;
}

void drop_pair(struct pair *pair)
{
	close(pair->fd[0]);
	close(pair->fd[1]);
	close(pair->listener);
}
