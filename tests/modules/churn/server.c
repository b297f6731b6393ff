// SPDX-License-Identifier: GPL-2.0
/*
 * The server: has a window, answers words, and makes transfers of its own.
 *
 * Each of its threads accepts a connection from the listener that they share,
 * serves it until its end, and accepts the next.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/vmalloc.h>

#include "churn.h"

#define SERVER_THREADS	8

static scif_epd_t listener;
static struct task_struct *threads[SERVER_THREADS];

/* Makes the transfer that a word asks for besides its answer. */
static long server_transfer(scif_epd_t epd, struct rnd_state *random)
{
	struct churn_piece piece = churn_piece(random);
	int flags = churn_flags(random), mark;
	long err;

	switch (prandom_u32_state(random) % 4) {
	case 0:
		return scif_writeto(epd, CHURN_LOOSE + piece.at, piece.len,
				    CHURN_LOOSE + piece.at, flags);
	case 1:
		return scif_readfrom(epd, CHURN_LOOSE + piece.at, piece.len,
				     CHURN_LOOSE + piece.at, flags);
	case 2:
		err = scif_fence_mark(epd, SCIF_FENCE_INIT_PEER, &mark);
		return err ? err : scif_fence_wait(epd, mark);
	}
	return 0;
}

static void server_serve(scif_epd_t epd, struct rnd_state *random)
{
	char hello = 0;
	long result;
	u64 word;

	result = scif_send(epd, &hello, sizeof(hello), SCIF_SEND_BLOCK);
	while (churn_goes_on(result, "the server's messages") && !churn_must_stop()) {
		result = scif_recv(epd, &word, sizeof(word), SCIF_RECV_BLOCK);
		/* If the client has gone, the rest of a word never arrives. */
		if (result < 0 ? !churn_goes_on(result, "the server's recv") :
				 result != sizeof(word))
			return;
		/* A client that is about to end may have closed its windows. */
		result = server_transfer(epd, random);
		if (result && result != -ENXIO && !churn_goes_on(result, "the server's transfers"))
			return;
		atomic_inc(&churn_transfers);
		result = scif_send(epd, &word, sizeof(word), SCIF_SEND_BLOCK);
	}
}

static int server_thread(void *data)
{
	struct rnd_state random;
	struct scif_port_id peer;
	scif_epd_t epd;
	off_t offset;
	u8 *memory;

	prandom_seed_state(&random, (unsigned long)data);
	while (!churn_must_stop()) {
		if (!churn_goes_on(scif_accept(listener, &peer, &epd, SCIF_ACCEPT_SYNC),
				   "accept")) {
			churn_pause();
			continue;
		}
		memory = vzalloc(CHURN_SIZE);
		if (memory) {
			offset = scif_register(epd, memory, CHURN_SIZE, CHURN_WINDOW, CHURN_BOTH,
					       CHURN_PLACED);
			if (churn_goes_on(offset, "the server's window"))
				server_serve(epd, &random);
		}
		/* Closes the endpoint under the operations of both ends that are in flight. */
		scif_close(epd);
		vfree(memory);
	}
	return 0;
}

int churn_server_start(void)
{
	struct task_struct *task;
	int i, err;

	listener = scif_open();
	if (!listener)
		return -ENOMEM;
	err = scif_bind(listener, churn_port);
	if (err < 0)
		goto close;
	err = scif_listen(listener, SERVER_THREADS);
	if (err)
		goto close;
	for (i = 0; i < SERVER_THREADS; i++) {
		task = kthread_run(server_thread, (void *)(unsigned long)i, "scif_churn_s/%d", i);
		err = PTR_ERR_OR_ZERO(task);
		if (err)
			goto stop;
		threads[i] = task;
	}
	return 0;

close:
	scif_close(listener);
	listener = NULL;
	return err;
stop:
	churn_server_stop();
	return err;
}

void churn_server_stop(void)
{
	int i;

	if (!listener)
		return;
	for (i = 0; i < SERVER_THREADS; i++) {
		if (threads[i])
			kthread_stop(threads[i]);
		threads[i] = NULL;
	}
	scif_close(listener);
	listener = NULL;
}
