// SPDX-License-Identifier: GPL-2.0
/*
 * A feed of small records, each of them a message of its own, without a system
 * call for any of them.
 *
 *	quotes serve PORT		on one node, for one client after the other
 *	quotes NODE PORT [COUNT]	on another, or the same
 *
 * The client asks for a number of quotes, and checks that all of them arrive in order. If the nodes
 * can't map each other's memory, the connection carries the bytes. The program stays the same, and
 * prints which of the two it uses.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <scif.h>
#include <scif_ring.h>

#define BACKLOG		16
#define COUNT		1000000

/* A quote fills a cache line. Both ends use the same byte order, as PCIe does not change it. */
struct quote {
	uint64_t number;	/* from 1 on */
	uint64_t price;
	char name[48];
};

static void die(const char *what)
{
	fprintf(stderr, "quotes: %s: %s\n", what, strerror(errno));
	exit(1);
}

static struct scif_ring *open_ring(scif_epd_t epd)
{
	struct scif_ring *ring = scif_ring_open(epd, 0);

	if (!ring)
		fprintf(stderr, "quotes: scif_ring_open: %s\n", strerror(errno));
	return ring;
}

/*
 * Sends all bytes. A blocking call moves all of them, unless the peer closes in between; then the
 * next call returns the error.
 */
static int send_all(struct scif_ring *ring, const void *message, int len)
{
	const char *from = message;
	int sent;

	for (; len; from += sent, len -= sent) {
		sent = scif_ring_send(ring, from, len, SCIF_RING_BLOCK);
		if (sent < 0)
			return -1;
	}
	return 0;
}

static int receive_all(struct scif_ring *ring, void *message, int len)
{
	char *to = message;
	int received;

	for (; len; to += received, len -= received) {
		received = scif_ring_recv(ring, to, len, SCIF_RING_BLOCK);
		if (received < 0)
			return -1;
	}
	return 0;
}

/*
 * Sends as many quotes as the client has asked for. It does not matter if the client gives a false
 * number.
 */
static int feed(struct scif_ring *ring, uint64_t *sent)
{
	struct quote quote = { .name = "SCIF" };
	uint64_t wanted;

	*sent = 0;
	if (receive_all(ring, &wanted, sizeof(wanted)))
		return -1;
	while (*sent < wanted) {
		quote.number = *sent + 1;
		quote.price = 100 + quote.number % 7;
		if (send_all(ring, &quote, sizeof(quote)))
			return -1;
		++*sent;
	}
	return 0;
}

static void serve(uint16_t port)
{
	struct scif_portID peer;
	scif_epd_t listener, epd;
	struct scif_ring *ring;
	uint64_t sent;

	listener = scif_open();
	if (listener == SCIF_OPEN_FAILED)
		die("scif_open");
	if (scif_bind(listener, port) < 0)
		die("scif_bind");
	if (scif_listen(listener, BACKLOG))
		die("scif_listen");
	printf("listening on port %u\n", port);
	for (;;) {
		fflush(stdout);
		if (scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC))
			die("scif_accept");
		ring = open_ring(epd);
		if (ring) {
			if (feed(ring, &sent))
				printf("node %u: %s after %llu quotes\n", peer.node,
				       strerror(errno), (unsigned long long)sent);
			else
				printf("node %u has got %llu quotes\n", peer.node,
				       (unsigned long long)sent);
			/* The client can still receive what is in the ring. */
			scif_ring_close(ring);
		}
		scif_close(epd);
	}
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void take(struct scif_portID server, uint64_t count)
{
	struct scif_ring *ring;
	struct quote quote;
	uint64_t number;
	scif_epd_t epd;
	double begin;

	epd = scif_open();
	if (epd == SCIF_OPEN_FAILED)
		die("scif_open");
	if (scif_connect(epd, &server) < 0)
		die("scif_connect");
	ring = open_ring(epd);
	if (!ring)
		exit(1);
	if (scif_ring_is_mapped(ring))
		printf("over a mapped ring\n");
	else
		printf("over the connection, as for a ring: %s\n", strerror(errno));
	fflush(stdout);

	begin = now();
	if (send_all(ring, &count, sizeof(count)))
		die("scif_ring_send");
	for (number = 1; number <= count; number++) {
		if (receive_all(ring, &quote, sizeof(quote)))
			die("scif_ring_recv");
		if (quote.number != number) {
			fprintf(stderr, "quotes: number %llu in place of %llu\n",
				(unsigned long long)quote.number, (unsigned long long)number);
			exit(1);
		}
	}
	printf("%llu quotes, %.3f us each\n", (unsigned long long)count,
	       (now() - begin) * 1e6 / count);
	scif_ring_close(ring);
	scif_close(epd);
}

int main(int argc, char **argv)
{
	struct scif_portID server;
	long long count = COUNT;

	if (argc == 4)
		count = atoll(argv[3]);
	if (argc == 3 && !strcmp(argv[1], "serve")) {
		serve(atoi(argv[2]));
	} else if ((argc == 3 || argc == 4) && count > 0) {
		server.node = atoi(argv[1]);
		server.port = atoi(argv[2]);
		take(server, count);
	} else {
		fprintf(stderr, "usage: quotes serve PORT | quotes NODE PORT [COUNT]\n");
		return 2;
	}
	return 0;
}
