// SPDX-License-Identifier: GPL-2.0
/*
 * Remote memory access: a client writes into the server's memory, and the server notices by polling
 * that memory.
 *
 *	put serve PORT			on one node, for one client
 *	put NODE PORT KIB		on another, or the same
 *
 * The server registers its memory as a window, and tells the client where it is. The client copies
 * its own memory there, and requests a signal behind the copy, which stores the number of bytes.
 * The server spins on that word, without a system call. Then it sends back the sum of the bytes.
 */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <scif.h>

#define ROOM		(16 << 20)

/* Location of the server's window: a page with the word, followed by ROOM bytes. */
struct window {
	int64_t word;
	int64_t data;
};

static void die(const char *what)
{
	fprintf(stderr, "put: %s: %s\n", what, strerror(errno));
	exit(1);
}

/*
 * Returns memory to register: whole pages that a forked child does not inherit. With a child, the
 * first write to a page would make a copy that is not in the window.
 */
static void *pages(size_t len)
{
	void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	if (madvise(memory, len, MADV_DONTFORK))
		die("madvise");
	return memory;
}

static uint64_t sum(const unsigned char *data, size_t len)
{
	uint64_t result = 0;

	while (len--)
		result = result * 31 + *data++;
	return result;
}

/* Spins on the word, and checks from time to time whether the peer still exists. */
static uint64_t wait_for(uint64_t *word, scif_epd_t epd)
{
	struct scif_pollepd watched = { epd, 0, 0 };
	uint64_t value;
	unsigned int turns;

	for (turns = 0;; turns++) {
		/* The acquire keeps loads of the data from being done before that of the word. */
		value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
		if (value)
			return value;
		if (turns % 1024 == 0) {
			if (scif_poll(&watched, 1, 0) > 0 && (watched.revents & POLLHUP)) {
				errno = ECONNRESET;
				die("the client");
			}
			sched_yield();
		}
	}
}

static void serve(uint16_t port)
{
	size_t page = sysconf(_SC_PAGESIZE);
	char *memory = pages(page + ROOM);
	struct scif_portID peer;
	scif_epd_t listener, epd;
	struct window window;
	uint64_t len, result;
	off_t offset;

	listener = scif_open();
	if (listener == SCIF_OPEN_FAILED)
		die("scif_open");
	if (scif_bind(listener, port) < 0 || scif_listen(listener, 1))
		die("scif_bind, scif_listen");
	printf("listening on port %u\n", port);
	fflush(stdout);
	if (scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC))
		die("scif_accept");

	offset = scif_register(epd, memory, page + ROOM, 0, SCIF_PROT_READ | SCIF_PROT_WRITE, 0);
	if (offset == SCIF_REGISTER_FAILED)
		die("scif_register");
	window.word = offset;
	window.data = offset + page;
	if (scif_send(epd, &window, sizeof(window), SCIF_SEND_BLOCK) < 0)
		die("scif_send");

	len = wait_for((uint64_t *)memory, epd);
	if (len > ROOM) {
		errno = EMSGSIZE;
		die("the client");
	}
	result = sum((unsigned char *)memory + page, len);
	printf("node %u has put %llu bytes here\n", peer.node, (unsigned long long)len);
	if (scif_send(epd, &result, sizeof(result), SCIF_SEND_BLOCK) < 0)
		die("scif_send");
	/* The client closes first, which ends this wait. */
	scif_recv(epd, &result, sizeof(result), SCIF_RECV_BLOCK);
	scif_close(epd);
	scif_close(listener);
}

static void write_there(struct scif_portID server, size_t len)
{
	unsigned char *memory = pages(len);
	struct window there;
	uint64_t result;
	scif_epd_t epd;
	off_t here;
	size_t i;

	for (i = 0; i < len; i++)
		memory[i] = i * 2654435761u >> 24;
	epd = scif_open();
	if (epd == SCIF_OPEN_FAILED)
		die("scif_open");
	if (scif_connect(epd, &server) < 0)
		die("scif_connect");
	here = scif_register(epd, memory, len, 0, SCIF_PROT_READ, 0);
	if (here == SCIF_REGISTER_FAILED)
		die("scif_register");
	if (scif_recv(epd, &there, sizeof(there), SCIF_RECV_BLOCK) != (int)sizeof(there))
		die("scif_recv");

	/* Neither call waits. The kernel stores the word when the copy is complete. */
	if (scif_writeto(epd, here, len, there.data, 0))
		die("scif_writeto");
	if (scif_fence_signal(epd, 0, 0, there.word, len,
			      SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_REMOTE))
		die("scif_fence_signal");

	if (scif_recv(epd, &result, sizeof(result), SCIF_RECV_BLOCK) != (int)sizeof(result))
		die("scif_recv");
	if (result != sum(memory, len)) {
		fprintf(stderr, "put: the bytes on node %u differ\n", server.node);
		exit(1);
	}
	printf("node %u has all %zu bytes\n", server.node, len);
	scif_close(epd);
}

int main(int argc, char **argv)
{
	struct scif_portID server;
	long kib;

	if (argc == 3 && !strcmp(argv[1], "serve")) {
		serve(atoi(argv[2]));
		return 0;
	}
	kib = argc == 4 ? atol(argv[3]) : 0;
	/* Windows consist of whole pages. */
	if (kib <= 0 || kib > ROOM / 1024 || kib * 1024 % sysconf(_SC_PAGESIZE)) {
		fprintf(stderr, "usage: put serve PORT | put NODE PORT KIB, up to %d\n",
			ROOM / 1024);
		return 2;
	}
	server.node = atoi(argv[1]);
	server.port = atoi(argv[2]);
	write_there(server, kib * 1024);
	return 0;
}
