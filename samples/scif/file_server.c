// SPDX-License-Identifier: GPL-2.0
/*
 * Gets a file from another node. Messages carry its name and the number of bytes, and the server
 * writes the data into the client's memory.
 *
 *	file_server serve PORT		in the folder whose files it is to give
 *	file_server NODE PORT NAME >FILE
 *
 * Every client that can connect gets any file of that folder that the server can read. The server
 * serves one client after the other.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <scif.h>

#define BACKLOG		16

/*
 * Size of half the client's window. While the server fills one half, the client empties the other.
 */
#define HALF		1048576

struct request {
	int64_t window;
	char name[256];
};

/* The answer for each full half. The last answer has 0 bytes. */
struct answer {
	int32_t error;
	uint32_t bytes;
};

static void die(const char *what)
{
	fprintf(stderr, "file_server: %s: %s\n", what, strerror(errno));
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

/*
 * Opens a file of this folder. Files in other folders, links out of the folder and devices are
 * refused.
 */
static int open_file(const char *name)
{
	struct stat status;
	int file;

	if (strchr(name, '/')) {
		errno = EACCES;
		return -1;
	}
	file = open(name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
	if (file >= 0 && (fstat(file, &status) || !S_ISREG(status.st_mode))) {
		close(file);
		errno = EACCES;
		return -1;
	}
	return file;
}

/* Sends a file. Returns -1 if the connection has ended. */
static int give(scif_epd_t epd, int file, int64_t window, char *buffer)
{
	struct answer answer = { 0, 0 };
	unsigned int half;
	ssize_t bytes;
	char taken;

	for (half = 0;; half++) {
		/* Waits until the client has emptied this half. */
		if (half >= 2 && scif_recv(epd, &taken, 1, SCIF_RECV_BLOCK) != 1)
			return -1;
		bytes = read(file, buffer, HALF);
		/* The buffer is the same each time, so SCIF_RMA_USECACHE keeps it pinned. */
		if (bytes > 0 && scif_vwriteto(epd, buffer, bytes, window + half % 2 * HALF,
					       SCIF_RMA_SYNC | SCIF_RMA_USECACHE))
			bytes = -1;
		answer.error = bytes < 0 ? errno : 0;
		answer.bytes = bytes < 0 ? 0 : bytes;
		if (scif_send(epd, &answer, sizeof(answer), SCIF_SEND_BLOCK) != sizeof(answer))
			return -1;
		if (bytes <= 0)
			return 0;
	}
}

static void serve_client(scif_epd_t epd, struct scif_portID *peer, char *buffer)
{
	struct answer answer = { 0, 0 };
	struct request request;
	int file;

	if (scif_recv(epd, &request, sizeof(request), SCIF_RECV_BLOCK) != sizeof(request))
		return;
	request.name[sizeof(request.name) - 1] = '\0';
	file = open_file(request.name);
	if (file < 0) {
		answer.error = errno;
		scif_send(epd, &answer, sizeof(answer), SCIF_SEND_BLOCK);
	} else {
		printf("node %u gets %s\n", peer->node, request.name);
		fflush(stdout);
		if (give(epd, file, request.window, buffer))
			fprintf(stderr, "file_server: node %u: %s\n", peer->node, strerror(errno));
		close(file);
	}
	/* The client closes first, because it still has to receive the last answer. */
	while (scif_recv(epd, &request, 1, SCIF_RECV_BLOCK) == 1)
		;
}

static void serve(uint16_t port)
{
	char *buffer = pages(HALF);
	struct scif_portID peer;
	scif_epd_t listener, epd;

	listener = scif_open();
	if (listener == SCIF_OPEN_FAILED)
		die("scif_open");
	if (scif_bind(listener, port) < 0 || scif_listen(listener, BACKLOG))
		die("scif_bind, scif_listen");
	printf("listening on port %u\n", port);
	fflush(stdout);
	for (;;) {
		if (scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC))
			die("scif_accept");
		serve_client(epd, &peer, buffer);
		scif_close(epd);
	}
}

static void get(struct scif_portID server, const char *name)
{
	char *memory = pages(2 * HALF), taken = 0;
	struct request request;
	struct answer answer;
	unsigned int half;
	scif_epd_t epd;

	epd = scif_open();
	if (epd == SCIF_OPEN_FAILED)
		die("scif_open");
	if (scif_connect(epd, &server) < 0)
		die("scif_connect");
	memset(&request, 0, sizeof(request));
	snprintf(request.name, sizeof(request.name), "%s", name);
	request.window = scif_register(epd, memory, 2 * HALF, 0, SCIF_PROT_WRITE, 0);
	if (request.window == SCIF_REGISTER_FAILED)
		die("scif_register");
	if (scif_send(epd, &request, sizeof(request), SCIF_SEND_BLOCK) != sizeof(request))
		die("scif_send");
	for (half = 0;; half++) {
		if (scif_recv(epd, &answer, sizeof(answer), SCIF_RECV_BLOCK) != sizeof(answer))
			die("scif_recv");
		if (answer.bytes > HALF)
			answer.error = EPROTO;
		if (answer.error) {
			errno = answer.error;
			die(name);
		}
		if (!answer.bytes)
			break;
		if (fwrite(memory + half % 2 * HALF, 1, answer.bytes, stdout) != answer.bytes)
			die("stdout");
		if (scif_send(epd, &taken, 1, SCIF_SEND_BLOCK) != 1)
			die("scif_send");
	}
	if (fflush(stdout))
		die("stdout");
	scif_close(epd);
}

int main(int argc, char **argv)
{
	struct scif_portID server;

	if (argc == 3 && !strcmp(argv[1], "serve")) {
		serve(atoi(argv[2]));
	} else if (argc == 4 && strlen(argv[3]) < 256) {
		server.node = atoi(argv[1]);
		server.port = atoi(argv[2]);
		get(server, argv[3]);
	} else {
		fprintf(stderr, "usage: file_server serve PORT | file_server NODE PORT NAME\n");
		return 2;
	}
	return 0;
}
