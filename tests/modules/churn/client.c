// SPDX-License-Identifier: GPL-2.0
/*
 * A connection with all kinds of operations in flight, which ends in the middle of them.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/string.h>
#include <linux/vmalloc.h>

#include "churn.h"

/* Number of transfers in flight when a connection ends. */
#define BURST	8

static u32 random_number(struct churn_client *client)
{
	return prandom_u32_state(&client->random);
}

static bool make_window(struct churn_client *client)
{
	off_t offset;
	int err;

	if (random_number(client) % 2) {
		offset = scif_register(client->epd, client->memory, CHURN_SIZE, CHURN_WINDOW,
				       CHURN_BOTH, CHURN_PLACED);
		return churn_goes_on(offset, "register");
	}
	err = scif_pin_pages(client->memory, CHURN_SIZE, CHURN_BOTH, SCIF_MAP_KERNEL,
			     &client->pinned);
	if (!churn_goes_on(err, "pin_pages"))
		return false;
	offset = scif_register_pinned_pages(client->epd, client->pinned, CHURN_WINDOW,
					    SCIF_MAP_FIXED);
	return churn_goes_on(offset, "register_pinned_pages");
}

static bool reach_server(struct churn_client *client)
{
	struct scif_port_id server = { .node = churn_node, .port = churn_port };
	char hello;

	return churn_goes_on(scif_connect(client->epd, &server), "connect") &&
	       make_window(client) &&
	       churn_goes_on(scif_recv(client->epd, &hello, 1, SCIF_RECV_BLOCK), "hello");
}

bool churn_client_open(struct churn_client *client)
{
	client->pinned = NULL;
	client->range = NULL;
	client->has_extra = false;
	client->epd = scif_open();
	if (!client->epd)
		return false;
	if (reach_server(client))
		return true;
	churn_client_close(client);
	return false;
}

void churn_client_close(struct churn_client *client)
{
	/* Windows of these pages stay. */
	if (client->pinned)
		scif_unpin_pages(client->pinned);
	if (client->range)
		scif_put_pages(client->range);
	scif_close(client->epd);
	client->epd = NULL;
}

static long send_word(struct churn_client *client)
{
	u64 word = random_number(client), answer = 0;
	long len;

	len = scif_send(client->epd, &word, sizeof(word), SCIF_SEND_BLOCK);
	if (len == sizeof(word))
		len = scif_recv(client->epd, &answer, sizeof(answer), SCIF_RECV_BLOCK);
	if (len < 0)
		return len;
	/* If the connection ends in the middle, the next call returns an error. */
	if (len == sizeof(answer) && answer != word)
		pr_err("not ok - the server has answered %llx instead of %llx\n", answer, word);
	return 0;
}

/* Copies to the first part of the server's window, and back to another place. */
static long there_and_back(struct churn_client *client)
{
	struct churn_piece piece = churn_piece(&client->random);
	u8 *back = client->memory + CHURN_SIZE + piece.at;
	u8 *from = client->memory + piece.at;
	long err;

	prandom_bytes_state(&client->random, from, piece.len);
	memset(back, 0, piece.len);
	err = scif_writeto(client->epd, CHURN_WINDOW + piece.at, piece.len,
			   CHURN_WINDOW + piece.at,
			   churn_flags(&client->random) | SCIF_RMA_SYNC);
	if (!err)
		err = scif_vreadfrom(client->epd, back, piece.len, CHURN_WINDOW + piece.at,
				     churn_flags(&client->random) | SCIF_RMA_SYNC);
	if (!err && memcmp(from, back, piece.len))
		pr_err("not ok - reading back %zu bytes at %ld gives other bytes\n",
		       piece.len, piece.at);
	return err;
}

/* Starts a transfer without waiting for its completion. */
static long loose_transfer(struct churn_client *client)
{
	struct churn_piece piece = churn_piece(&client->random);
	off_t remote = CHURN_LOOSE + piece.at;
	int flags = churn_flags(&client->random);

	switch (random_number(client) % 3) {
	case 0:
		return scif_writeto(client->epd, CHURN_LOOSE + piece.at, piece.len, remote, flags);
	case 1:
		return scif_readfrom(client->epd, CHURN_LOOSE + piece.at, piece.len, remote, flags);
	}
	return scif_vwriteto(client->epd, client->memory + CHURN_SIZE + piece.at, piece.len,
			     remote, flags);
}

static long fence(struct churn_client *client)
{
	long err;
	int mark;

	if (random_number(client) % 2)
		return scif_fence_signal(client->epd, CHURN_LOOSE, 1, CHURN_LOOSE, 2,
					 SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL |
					 SCIF_SIGNAL_REMOTE);
	err = scif_fence_mark(client->epd,
			      random_number(client) % 2 ? SCIF_FENCE_INIT_SELF :
							  SCIF_FENCE_INIT_PEER, &mark);
	return err ? err : scif_fence_wait(client->epd, mark);
}

/* Unregisters a window while this end uses it, and the server may use it. Registers another one. */
static long change_window(struct churn_client *client)
{
	off_t offset;

	if (client->has_extra) {
		client->has_extra = false;
		scif_writeto(client->epd, CHURN_EXTRA, CHURN_PART, CHURN_LOOSE, 0);
		return scif_unregister(client->epd, CHURN_EXTRA, CHURN_PART);
	}
	offset = scif_register(client->epd, client->memory + CHURN_PART, CHURN_PART, CHURN_EXTRA,
			       CHURN_BOTH, CHURN_PLACED);
	client->has_extra = offset >= 0;
	/* The offset stays in use as long as a transfer uses the old window. */
	return offset < 0 && offset != -EADDRINUSE ? offset : 0;
}

static long change_range(struct churn_client *client)
{
	struct scif_range *range = client->range;
	long err;

	if (range) {
		client->range = NULL;
		return scif_put_pages(range);
	}
	err = scif_get_pages(client->epd, CHURN_WINDOW, CHURN_SIZE, &client->range);
	/* Some bridges do not support this. */
	return err == -EOPNOTSUPP ? 0 : err;
}

static bool one_step(struct churn_client *client)
{
	switch (random_number(client) % 8) {
	case 0:
	case 1:
		return churn_goes_on(send_word(client), "a word");
	case 2:
		return churn_goes_on(there_and_back(client), "there and back");
	case 3:
		return churn_goes_on(fence(client), "a fence");
	case 4:
		return churn_goes_on(change_window(client), "another window");
	case 5:
		return churn_goes_on(change_range(client), "pages of the server");
	}
	return churn_goes_on(loose_transfer(client), "a transfer");
}

/* Transfers, and returns with transfers in flight. */
static void transfer_until_the_end(struct churn_client *client)
{
	int i;

	while (!churn_must_stop()) {
		if (!one_step(client))
			return;
		atomic_inc(&churn_transfers);
	}
	for (i = 0; i < BURST; i++)
		loose_transfer(client);
	if (!churn_forgets && random_number(client) % 2)
		scif_unregister(client->epd, CHURN_WINDOW, CHURN_SIZE);
}

void churn_client(struct churn_client *client, u8 *memory)
{
	if (!churn_forgets)
		memory = vzalloc(CHURN_MEMORY);
	if (!memory)
		return;
	client->memory = memory;
	while (!churn_must_stop()) {
		if (!churn_client_open(client)) {
			churn_pause();
			continue;
		}
		transfer_until_the_end(client);
		if (churn_forgets && churn_must_stop())
			return;
		churn_client_close(client);
	}
	/* The last transfer is complete when its endpoint is closed. */
	if (!churn_forgets)
		vfree(memory);
}
