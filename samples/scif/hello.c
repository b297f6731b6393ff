// SPDX-License-Identifier: GPL-2.0
/*
 * Messages: a server that answers, and its client.
 *
 *	hello serve PORT		on one node
 *	hello NODE PORT TEXT		on another, or the same
 *
 * The server prints each text and its sender, and sends the text back. It serves one client after
 * the other. A connection is a stream of bytes, so the programs put the length in front of each
 * message.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <scif.h>

#define LONGEST		4096
#define BACKLOG		16

static void die(const char *what)
{
	fprintf(stderr, "hello: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Sends a message. A blocking call moves all bytes, unless the connection ends. */
static int send_message(scif_epd_t epd, char *text, uint32_t len)
{
	if (scif_send(epd, &len, sizeof(len), SCIF_SEND_BLOCK) != (int)sizeof(len) ||
	    scif_send(epd, text, len, SCIF_SEND_BLOCK) != (int)len)
		return -1;
	return 0;
}

/*
 * Receives a message, and returns its length. The peer sends the length, so it has to be checked.
 */
static int receive_message(scif_epd_t epd, char *text, uint32_t room)
{
	uint32_t len;

	if (scif_recv(epd, &len, sizeof(len), SCIF_RECV_BLOCK) != (int)sizeof(len))
		return -1;
	if (len > room) {
		errno = EMSGSIZE;
		return -1;
	}
	if (scif_recv(epd, text, len, SCIF_RECV_BLOCK) != (int)len)
		return -1;
	return len;
}

static void answer(scif_epd_t epd, struct scif_portID *peer)
{
	char text[LONGEST];
	int len;

	while ((len = receive_message(epd, text, sizeof(text))) >= 0) {
		printf("node %u, port %u says: %.*s\n", peer->node, peer->port, len, text);
		fflush(stdout);
		if (send_message(epd, text, len))
			break;
	}
	/* If the peer has closed, the next call returns this error. */
	if (errno != ECONNRESET)
		fprintf(stderr, "hello: node %u: %s\n", peer->node, strerror(errno));
}

static void serve(uint16_t port)
{
	struct scif_portID peer;
	scif_epd_t listener, epd;

	listener = scif_open();
	if (listener == SCIF_OPEN_FAILED)
		die("scif_open");
	if (scif_bind(listener, port) < 0)
		die("scif_bind");
	if (scif_listen(listener, BACKLOG))
		die("scif_listen");
	printf("listening on port %u\n", port);
	fflush(stdout);
	for (;;) {
		if (scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC))
			die("scif_accept");
		answer(epd, &peer);
		scif_close(epd);
	}
}

static void say(struct scif_portID server, char *text)
{
	char answer[LONGEST];
	scif_epd_t epd;
	int len;

	epd = scif_open();
	if (epd == SCIF_OPEN_FAILED)
		die("scif_open");
	if (scif_connect(epd, &server) < 0)
		die("scif_connect");
	if (send_message(epd, text, strlen(text)))
		die("scif_send");
	len = receive_message(epd, answer, sizeof(answer));
	if (len < 0)
		die("scif_recv");
	printf("node %u answers: %.*s\n", server.node, len, answer);
	scif_close(epd);
}

int main(int argc, char **argv)
{
	struct scif_portID server;

	if (argc == 3 && !strcmp(argv[1], "serve")) {
		serve(atoi(argv[2]));
	} else if (argc == 4 && strlen(argv[3]) <= LONGEST) {
		server.node = atoi(argv[1]);
		server.port = atoi(argv[2]);
		say(server, argv[3]);
	} else {
		fprintf(stderr, "usage: hello serve PORT | hello NODE PORT TEXT\n");
		return 2;
	}
	return 0;
}
