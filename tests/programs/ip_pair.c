// SPDX-License-Identifier: GPL-2.0
/*
 * Measures a network device by one TCP connection or one UDP socket, as netperf does with TCP_RR
 * and UDP_STREAM. Each line is one JSON object.
 *
 *	ip_pair serve PORT
 *		answers the other commands, until it is killed
 *	ip_pair trips ADDRESS PORT BUSY SECONDS BYTES
 *		sends BYTES bytes and waits for as many, again and again. Prints the median, the
 *		99th percentile and the maximum
 *	ip_pair packets ADDRESS PORT BUSY SECONDS BYTES
 *		sends datagrams of BYTES bytes. Asks how many have arrived, and in what time
 *
 * BUSY is the value of SO_BUSY_POLL in microseconds, for the sockets of both sides. With 0 a
 * process that waits sleeps.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "die.h"

#define MOST_BYTES 65536
#define MOST_SAMPLES 1000000
#define BATCH 32

/* How often the sender asks for the count until no more datagrams arrive. */
#define MOST_QUESTIONS 1000

static uint32_t samples[MOST_SAMPLES];

/* The first bytes of a client: the size of its messages, or 0 if it asks for the count. */
struct order {
	uint32_t size;
	uint32_t busy;
};

struct count {
	uint64_t packets;
	uint64_t ns;
};

static uint64_t now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
	uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;

	return one < other ? -1 : one > other;
}

static void busy_poll(int fd, int microseconds)
{
	if (microseconds &&
	    setsockopt(fd, SOL_SOCKET, SO_BUSY_POLL, &microseconds, sizeof(microseconds)))
		die("SO_BUSY_POLL");
}

static int new_socket(int type, int busy)
{
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0), one = 1, room = 4 << 20;

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)))
		die("socket");
	/* More than the limit of ordinary users, so that the device is measured and not this. */
	if (type == SOCK_DGRAM &&
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room)))
		die("SO_RCVBUFFORCE");
	busy_poll(fd, busy);
	return fd;
}

static struct sockaddr_in place(const char *address, const char *port)
{
	struct sockaddr_in place = {
		.sin_family = AF_INET,
		.sin_port = htons(atoi(port)),
	};

	if (address && inet_pton(AF_INET, address, &place.sin_addr) != 1)
		die(address);
	return place;
}

static void no_delay(int fd)
{
	int one = 1;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		die("TCP_NODELAY");
}

/* Reads exactly size bytes. Returns false if the other side has closed the connection. */
static bool read_all(int fd, char *to, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t count = recv(fd, to + done, size - done, 0);

		if (count <= 0)
			return false;
		done += count;
	}
	return true;
}

static void send_all(int fd, const char *from, size_t size)
{
	size_t done = 0;

	while (done < size) {
		ssize_t count = send(fd, from + done, size - done, MSG_NOSIGNAL);

		if (count < 0)
			die("send");
		done += count;
	}
}

/* Answers one client. */
static void answer(int fd, struct count *count)
{
	static char bytes[MOST_BYTES];
	struct order order;

	no_delay(fd);
	while (read_all(fd, (char *)&order, sizeof(order))) {
		if (order.size > sizeof(bytes))
			return;
		if (!order.size) {
			send_all(fd, (const char *)count, sizeof(*count));
			continue;
		}
		busy_poll(fd, order.busy);
		while (read_all(fd, bytes, order.size))
			send_all(fd, bytes, order.size);
		return;
	}
}

/* Counts datagrams into memory that the process of the connections has, too. */
static void count_all(int fd, volatile struct count *count)
{
	static char bytes[BATCH][MOST_BYTES];
	struct iovec parts[BATCH];
	struct mmsghdr messages[BATCH] = {};
	uint64_t first = 0;
	int taken, i;

	for (i = 0; i < BATCH; i++) {
		parts[i] = (struct iovec){ bytes[i], sizeof(bytes[i]) };
		messages[i].msg_hdr.msg_iov = &parts[i];
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	while ((taken = recvmmsg(fd, messages, BATCH, MSG_WAITFORONE, NULL)) > 0) {
		uint64_t time = now();
		int filled = 0;

		for (i = 0; i < taken; i++) {
			/* An empty datagram begins a measurement. */
			if (!messages[i].msg_len) {
				count->packets = 0;
				count->ns = 0;
				first = time;
				filled = 0;
			} else {
				filled++;
			}
		}
		if (filled) {
			count->packets += filled;
			count->ns = time - first;
		}
	}
	die("recvmmsg");
}

static void serve(const char *port)
{
	struct sockaddr_in at = place(NULL, port);
	int listener = new_socket(SOCK_STREAM, 0), packets = new_socket(SOCK_DGRAM, 0);
	struct count *count = mmap(NULL, sizeof(*count), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;

	if (count == MAP_FAILED)
		die("mmap");
	if (bind(listener, (struct sockaddr *)&at, sizeof(at)) || listen(listener, 16))
		die("listen");
	if (bind(packets, (struct sockaddr *)&at, sizeof(at)))
		die("bind");
	child = fork();
	if (child < 0)
		die("fork");
	if (!child) {
		if (prctl(PR_SET_PDEATHSIG, SIGKILL))
			die("prctl");
		count_all(packets, count);
	}
	puts("serving");
	fflush(stdout);
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			die("accept");
		answer(fd, count);
		close(fd);
	}
}

static int connect_to(const struct sockaddr_in *to, int type, int busy)
{
	int fd = new_socket(type, busy);

	if (connect(fd, (const struct sockaddr *)to, sizeof(*to)))
		die("connect");
	if (type == SOCK_STREAM)
		no_delay(fd);
	return fd;
}

static void trips(const struct sockaddr_in *to, int busy, double seconds, uint32_t size)
{
	static char bytes[MOST_BYTES];
	struct order order = { size, busy };
	int fd = connect_to(to, SOCK_STREAM, busy);
	uint64_t begin, before, time;
	size_t count = 0;

	send_all(fd, (const char *)&order, sizeof(order));
	begin = now();
	before = begin;
	while (count < MOST_SAMPLES && (before - begin) / 1e9 < seconds) {
		send_all(fd, bytes, size);
		if (!read_all(fd, bytes, size))
			die("recv");
		time = now();
		samples[count++] = time - before;
		before = time;
	}
	qsort(samples, count, sizeof(*samples), compare);
	printf("{\"bytes\": %u, \"count\": %zu, ", size, count);
	printf("\"p50_us\": %.3f, \"p99_us\": %.3f, \"max_us\": %.3f}\n", samples[count / 2] / 1e3,
	       samples[count * 99 / 100] / 1e3, samples[count - 1] / 1e3);
}

static struct count asked(int fd)
{
	struct order question = {};
	struct count count;

	send_all(fd, (const char *)&question, sizeof(question));
	if (!read_all(fd, (char *)&count, sizeof(count)))
		die("recv");
	return count;
}

static void packets(const struct sockaddr_in *to, int busy, double seconds, uint32_t size)
{
	static char bytes[MOST_BYTES];
	struct iovec part = { bytes, size };
	struct mmsghdr messages[BATCH] = {};
	struct count count = {}, before;
	int fd, control, i, sent;
	uint64_t begin, sum = 0;

	control = connect_to(to, SOCK_STREAM, 0);
	fd = connect_to(to, SOCK_DGRAM, busy);
	for (i = 0; i < BATCH; i++) {
		messages[i].msg_hdr.msg_iov = &part;
		messages[i].msg_hdr.msg_iovlen = 1;
	}
	if (send(fd, bytes, 0, 0))
		die("send");
	begin = now();
	while ((now() - begin) / 1e9 < seconds) {
		sent = sendmmsg(fd, messages, BATCH, 0);
		if (sent < 0)
			die("sendmmsg");
		sum += sent;
	}
	/* The count stays as it is when all datagrams on the way have arrived. */
	for (i = 0; i < MOST_QUESTIONS; i++) {
		before = count;
		count = asked(control);
		if (count.packets && count.packets == before.packets)
			break;
	}
	printf("{\"bytes\": %u, \"sent\": %llu, \"received\": %llu, \"per_second\": %.1f}\n", size,
	       (unsigned long long)sum, (unsigned long long)count.packets,
	       count.ns ? count.packets * 1e9 / count.ns : 0.0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in to;
	uint32_t size;

	if (argc == 3 && !strcmp(argv[1], "serve")) {
		serve(argv[2]);
		return 0;
	}
	if (argc != 7) {
		fprintf(stderr, "usage: see the top of ip_pair.c\n");
		return 2;
	}
	to = place(argv[2], argv[3]);
	size = atoi(argv[6]);
	if (!size || size > MOST_BYTES)
		die("BYTES");
	if (!strcmp(argv[1], "trips"))
		trips(&to, atoi(argv[4]), atof(argv[5]), size);
	else if (!strcmp(argv[1], "packets"))
		packets(&to, atoi(argv[4]), atof(argv[5]), size);
	else
		return 2;
	return 0;
}
