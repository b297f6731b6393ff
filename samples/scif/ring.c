// SPDX-License-Identifier: GPL-2.0
/*
 * A pipe between nodes, over a ring in shared memory. Waiting takes no system call.
 *
 *	ring serve PORT >FILE		on one node, for one client
 *	ring NODE PORT <FILE		on another, or the same
 *
 * The ring is the server's memory. The client copies a slot there, and requests a signal behind the
 * copy that stores the number of the slot's turn, on which the server spins. Transfers and signals
 * are for much data. In the other direction the server stores one number, the count of slots that
 * are free again, through a mapping of the client's memory. A bridge whose aperture is small has no
 * mappings. There, scif_fence_signal() could store that number, too.
 *
 * Each slot has its own number. A common number would have to count, and two signals on their way
 * to the same place may be reordered.
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

#define SLOTS		16
#define SLOT_SIZE	65536
#define ROOM		(SLOT_SIZE - 2 * sizeof(uint64_t))

/*
 * Offsets of the windows of both sides. They are fixed, so that neither side has to tell the other.
 */
#define RING		0x100000
#define FREED		0x10000

struct slot {
	uint64_t turn;		/* written last */
	uint64_t len;		/* 0 at the end */
	char data[ROOM];
};

static void die(const char *what)
{
	fprintf(stderr, "ring: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void *pages(size_t len)
{
	void *memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	if (madvise(memory, len, MADV_DONTFORK))
		die("madvise");
	return memory;
}

/* The CPU combines stores to a mapping. This sends them off. */
static void send_stores(void)
{
#ifdef __x86_64__
	__builtin_ia32_sfence();
#elif defined(__aarch64__)
	/* Barriers among CPUs, such as the one below, do not reach devices. */
	__asm__ volatile("dsb st" : : : "memory");
#else
	__sync_synchronize();
#endif
}

/*
 * Spins until the number has arrived, and checks from time to time whether the peer still exists.
 */
static void wait_for(uint64_t *number, uint64_t at_least, scif_epd_t epd)
{
	struct scif_pollepd watched = { epd, 0, 0 };
	unsigned int turns;

	/* The acquire keeps loads of the data from being done before that of the number. */
	for (turns = 0; __atomic_load_n(number, __ATOMIC_ACQUIRE) < at_least; turns++) {
		if (turns % 1024)
			continue;
		if (scif_poll(&watched, 1, 0) > 0 && (watched.revents & SCIF_POLLHUP) &&
		    __atomic_load_n(number, __ATOMIC_ACQUIRE) < at_least) {
			errno = ECONNRESET;
			die("the other end");
		}
		sched_yield();
	}
}

/* Waits until the peer calls this, too. Then the windows of both sides exist. */
static void meet(scif_epd_t epd)
{
	char byte = 0;

	if (scif_send(epd, &byte, 1, SCIF_SEND_BLOCK) != 1 ||
	    scif_recv(epd, &byte, 1, SCIF_RECV_BLOCK) != 1)
		die("the other end");
}

static void serve(uint16_t port)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct slot *ring = pages(SLOTS * sizeof(*ring)), *slot;
	volatile uint64_t *freed;
	struct scif_portID peer;
	scif_epd_t listener, epd;
	uint64_t turn, len;
	char byte;

	listener = scif_open();
	if (listener == SCIF_OPEN_FAILED)
		die("scif_open");
	if (scif_bind(listener, port) < 0 || scif_listen(listener, 1))
		die("scif_bind, scif_listen");
	if (scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC))
		die("scif_accept");
	scif_close(listener);

	if (scif_register(epd, ring, SLOTS * sizeof(*ring), RING,
			  SCIF_PROT_READ | SCIF_PROT_WRITE, SCIF_MAP_FIXED) < 0)
		die("scif_register");
	meet(epd);
	/* If the client's node is lost, a store to the mapping raises SIGBUS. */
	freed = scif_mmap(NULL, page, SCIF_PROT_READ | SCIF_PROT_WRITE, 0, epd, FREED);
	if (freed == SCIF_MMAP_FAILED)
		die("scif_mmap");

	for (turn = 1;; turn++) {
		slot = &ring[turn % SLOTS];
		wait_for(&slot->turn, turn, epd);
		/* Reads the length once, as the client could change it. */
		len = __atomic_load_n(&slot->len, __ATOMIC_RELAXED);
		if (len > ROOM) {
			errno = EMSGSIZE;
			die("the client");
		}
		if (!len)
			break;
		if (fwrite(slot->data, 1, len, stdout) != len)
			die("stdout");
		*freed = turn;
		send_stores();
	}
	if (fflush(stdout))
		die("stdout");
	*freed = turn;
	send_stores();
	/* The client closes first, which ends this wait. */
	scif_recv(epd, &byte, 1, SCIF_RECV_BLOCK);
	scif_close(epd);
}

static void put(struct scif_portID server)
{
	size_t page = sysconf(_SC_PAGESIZE);
	struct slot *ring = pages(SLOTS * sizeof(*ring)), *slot;
	uint64_t *freed = pages(page);
	uint64_t turn, bytes = 0;
	scif_epd_t epd;
	off_t offset;

	epd = scif_open();
	if (epd == SCIF_OPEN_FAILED)
		die("scif_open");
	if (scif_connect(epd, &server) < 0)
		die("scif_connect");
	if (scif_register(epd, ring, SLOTS * sizeof(*ring), RING,
			  SCIF_PROT_READ, SCIF_MAP_FIXED) < 0 ||
	    scif_register(epd, freed, page, FREED,
			  SCIF_PROT_READ | SCIF_PROT_WRITE, SCIF_MAP_FIXED) < 0)
		die("scif_register");
	meet(epd);

	for (turn = 1;; turn++) {
		slot = &ring[turn % SLOTS];
		/*
		 * If the server has freed the slot, it was copied before, so the client's slot is
		 * free, too.
		 */
		if (turn > SLOTS)
			wait_for(freed, turn - SLOTS, epd);
		slot->len = fread(slot->data, 1, ROOM, stdin);
		if (ferror(stdin))
			die("stdin");
		offset = RING + turn % SLOTS * sizeof(*slot);
		if (scif_writeto(epd, offset + sizeof(slot->turn), sizeof(slot->len) + slot->len,
				 offset + sizeof(slot->turn), 0))
			die("scif_writeto");
		if (scif_fence_signal(epd, 0, 0, offset, turn,
				      SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_REMOTE))
			die("scif_fence_signal");
		if (!slot->len)
			break;
		bytes += slot->len;
	}
	wait_for(freed, turn, epd);
	fprintf(stderr, "ring: %llu bytes\n", (unsigned long long)bytes);
	scif_close(epd);
}

int main(int argc, char **argv)
{
	struct scif_portID server;

	if (argc == 3 && !strcmp(argv[1], "serve")) {
		serve(atoi(argv[2]));
	} else if (argc == 3) {
		server.node = atoi(argv[1]);
		server.port = atoi(argv[2]);
		put(server);
	} else {
		fprintf(stderr, "usage: ring serve PORT >FILE | ring NODE PORT <FILE\n");
		return 2;
	}
	return 0;
}
