// SPDX-License-Identifier: GPL-2.0
/*
 * The server: registers windows, sends, receives and copies on request.
 *
 * Each of its threads accepts a connection from the listener that they share,
 * serves it until its end, and accepts the next.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "test.h"

#define SERVER_THREADS	6
#define SERVER_WINDOWS	32

/* Largest number of bytes that a client asks for. */
#define SERVER_BYTES	(16 << 20)

struct server_window {
	off_t offset;
	size_t len;
	u8 *memory;
};

struct server_connection {
	scif_epd_t epd;
	unsigned int count;
	struct server_window windows[SERVER_WINDOWS];
};

static scif_epd_t server_listener;
static struct worker server_threads[SERVER_THREADS];
static unsigned int server_count;
static bool server_stopping;

/* --- Windows --- */

static u8 *server_at(struct server_connection *connection, off_t offset, size_t len)
{
	unsigned int i;

	/* Starts with the newest window, which may be at the offset of an unregistered one. */
	for (i = connection->count; i-- > 0;) {
		struct server_window *window = &connection->windows[i];

		if (offset >= window->offset && len <= window->len &&
		    offset - window->offset <= window->len - len)
			return window->memory + (offset - window->offset);
	}
	return NULL;
}

static s64 server_register(struct server_connection *connection,
			   const struct test_question *question)
{
	struct server_window *window = &connection->windows[connection->count];
	size_t len = question->args[0];
	off_t offset;

	if (connection->count == SERVER_WINDOWS || len > SERVER_BYTES)
		return -E2BIG;
	window->memory = vmalloc(len);
	if (!window->memory)
		return -ENOMEM;
	test_fill(window->memory, len, question->args[3]);
	offset = scif_register(connection->epd, window->memory, len, question->args[1],
			       question->args[2], question->flags | SCIF_MAP_KERNEL);
	if (offset < 0) {
		vfree(window->memory);
		return offset;
	}
	window->offset = offset;
	window->len = len;
	connection->count++;
	return offset;
}

static s64 server_await_word(struct server_connection *connection,
			     const struct test_question *question)
{
	unsigned long limit = jiffies + msecs_to_jiffies(TEST_LIMIT_MS / 2);
	u64 *word = (u64 *)server_at(connection, question->args[0], sizeof(*word));

	if (!word)
		return -ENXIO;
	while (READ_ONCE(*word) != question->args[1]) {
		if (time_after(jiffies, limit) || signal_pending(current))
			return -ETIME;
		usleep_range(50, 200);
	}
	return 0;
}

/* --- Bytes --- */

static s64 server_receive(scif_epd_t epd, size_t len, u64 *sum)
{
	void *bytes = vmalloc(len);
	int received;

	if (!bytes)
		return -ENOMEM;
	received = scif_recv(epd, bytes, len, SCIF_RECV_BLOCK);
	if (received > 0)
		*sum = test_sum(bytes, received);
	vfree(bytes);
	return received;
}

static s64 server_send(scif_epd_t epd, size_t len, u32 seed)
{
	void *bytes = vmalloc(len);
	int sent;

	if (!bytes)
		return -ENOMEM;
	test_fill(bytes, len, seed);
	sent = scif_send(epd, bytes, len, SCIF_SEND_BLOCK);
	vfree(bytes);
	return sent;
}

static s64 server_vcopy(scif_epd_t epd, const struct test_question *question, u64 *sum)
{
	size_t len = question->args[0];
	void *bytes = vmalloc(len);
	s64 err;

	if (!bytes)
		return -ENOMEM;
	if (question->request == ASK_VWRITETO) {
		test_fill(bytes, len, question->args[3]);
		err = scif_vwriteto(epd, bytes, len, question->args[1],
				    question->args[2] | SCIF_RMA_SYNC);
	} else {
		err = scif_vreadfrom(epd, bytes, len, question->args[1],
				     question->args[2] | SCIF_RMA_SYNC);
		*sum = test_sum(bytes, len);
	}
	vfree(bytes);
	return err;
}

/* --- Connections --- */

static s64 server_do(struct server_connection *connection,
		     const struct test_question *question, u64 *sum)
{
	const u64 *args = question->args;
	u8 *at;

	switch (question->request) {
	case ASK_REGISTER:
		return server_register(connection, question);
	case ASK_UNREGISTER:
		return scif_unregister(connection->epd, args[0], args[1]);
	case ASK_FILL:
		at = server_at(connection, args[0], args[1]);
		if (!at)
			return -ENXIO;
		test_fill(at, args[1], args[2]);
		return 0;
	case ASK_SUM:
		at = server_at(connection, args[0], args[1]);
		if (!at)
			return -ENXIO;
		*sum = test_sum(at, args[1]);
		return 0;
	case ASK_RECEIVE:
		return server_receive(connection->epd, args[0], sum);
	case ASK_SEND:
	case ASK_SEND_AND_CLOSE:
		return server_send(connection->epd, args[0], args[1]);
	case ASK_READFROM:
		return scif_readfrom(connection->epd, args[0], args[1], args[2], args[3]);
	case ASK_WRITETO:
		return scif_writeto(connection->epd, args[0], args[1], args[2], args[3]);
	case ASK_VREADFROM:
	case ASK_VWRITETO:
		return server_vcopy(connection->epd, question, sum);
	case ASK_WORD:
		return server_await_word(connection, question);
	}
	return -EOPNOTSUPP;
}

static void server_serve(struct server_connection *connection)
{
	struct test_question question;
	struct test_answer answer;

	while (!READ_ONCE(server_stopping) &&
	       scif_recv(connection->epd, &question, sizeof(question), SCIF_RECV_BLOCK) ==
		       sizeof(question)) {
		answer.sum = 0;
		answer.result = server_do(connection, &question, &answer.sum);
		if (question.request == ASK_SEND_AND_CLOSE)
			break;
		if (scif_send(connection->epd, &answer, sizeof(answer), SCIF_SEND_BLOCK) !=
		    sizeof(answer))
			break;
	}
}

static long server_thread(void *data)
{
	struct server_connection *connection;
	struct scif_port_id peer;

	connection = kzalloc_obj(*connection);
	if (!connection)
		return -ENOMEM;
	while (!READ_ONCE(server_stopping)) {
		if (scif_accept(server_listener, &peer, &connection->epd, SCIF_ACCEPT_SYNC)) {
			/* The server is being stopped, or there is no memory. */
			msleep_interruptible(100);
			continue;
		}
		server_serve(connection);
		scif_close(connection->epd);
		while (connection->count)
			vfree(connection->windows[--connection->count].memory);
	}
	kfree(connection);
	return 0;
}

bool test_server_start(void)
{
	u16 port;

	server_listener = test_open_listener(test_port, SERVER_THREADS, &port);
	if (!server_listener) {
		pr_err("can't listen on port %u\n", test_port);
		return false;
	}
	while (server_count < SERVER_THREADS) {
		if (!worker_start(&server_threads[server_count], server_thread, NULL)) {
			test_server_stop();
			return false;
		}
		server_count++;
	}
	return true;
}

void test_server_stop(void)
{
	unsigned int i;

	if (!server_listener)
		return;
	WRITE_ONCE(server_stopping, true);
	for (i = 0; i < server_count; i++)
		worker_signal(&server_threads[i]);
	for (i = 0; i < server_count; i++)
		test_ready(!worker_end(&server_threads[i]),
			   "the server's threads end after a signal");
	server_count = 0;
	scif_close(server_listener);
	server_listener = NULL;
}

/* --- The client's side --- */

scif_epd_t test_reach_server(void)
{
	struct test_connecting connecting = {
		.epd = scif_open(),
		.to = { .node = test_node, .port = test_port },
	};
	struct worker worker;

	if (connecting.epd && worker_start(&worker, test_connect_work, &connecting) &&
	    !worker_end(&worker))
		return connecting.epd;
	if (connecting.epd)
		scif_close(connecting.epd);
	test_ready(false, "a connection to the server");
	return NULL;
}

bool test_tell(scif_epd_t epd, const struct test_question *question)
{
	return scif_send(epd, (void *)question, sizeof(*question), SCIF_SEND_BLOCK) ==
	       sizeof(*question);
}

s64 test_ask(scif_epd_t epd, const struct test_question *question, u64 *sum)
{
	struct test_answer answer;

	if (!test_tell(epd, question) || !(test_await(epd, POLLIN) & POLLIN) ||
	    scif_recv(epd, &answer, sizeof(answer), SCIF_RECV_BLOCK) != sizeof(answer))
		return -ETIME;
	if (sum)
		*sum = answer.sum;
	return answer.result;
}
