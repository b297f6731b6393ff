/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A client that is stopped at any point: declarations for its files, and the values on which both
 * ends agree. tests/programs/scif_churn.c is another client of the server.
 */
#ifndef _SCIF_CHURN_H
#define _SCIF_CHURN_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/prandom.h>
#include <linux/scif.h>
#include <linux/sizes.h>

/*
 * Each end has a window of two parts. Only the client changes the first part of the server's
 * window, and checks it. Either end may write to the second parts at any time.
 */
#define CHURN_PART	SZ_64K
#define CHURN_WINDOW	0x1000000L
#define CHURN_LOOSE	(CHURN_WINDOW + CHURN_PART)
#define CHURN_SIZE	(2 * CHURN_PART)

/* Offset of a second window of the client, over the part that may change, which comes and goes. */
#define CHURN_EXTRA	0x2000000L

#define CHURN_BOTH	(SCIF_PROT_READ | SCIF_PROT_WRITE)
#define CHURN_PLACED	(SCIF_MAP_KERNEL | SCIF_MAP_FIXED)

/* The server sends a byte when its window exists. Then it answers words. */

/* main.c */

extern u16 churn_node;
extern ushort churn_port;
extern bool churn_forgets;
extern atomic_t churn_transfers;

/*
 * Returns whether the caller has to end, because it was stopped or killed, or the module is being
 * unloaded.
 */
bool churn_must_stop(void);

/*
 * Returns true if the connection can be used further. Logs an error that the test can't explain.
 */
bool churn_goes_on(long result, const char *what);

/* Sleeps between two attempts. */
void churn_pause(void);

/* An offset in a part, and a length that fits. */
struct churn_piece {
	off_t at;
	size_t len;
};

struct churn_piece churn_piece(struct rnd_state *random);

/* Returns random flags of enum scif_rma. */
int churn_flags(struct rnd_state *random);

/* client.c */

struct churn_client {
	struct task_struct *task;
	struct rnd_state random;
	scif_epd_t epd;
	/* The window, and memory that is in no window. */
	u8 *memory;
	scif_pinned_pages_t pinned;
	struct scif_range *range;
	bool has_extra;
};

/* Size of the memory that has to outlive the module's exit function. */
#define CHURN_CLIENTS	2
#define CHURN_MEMORY	(CHURN_SIZE + CHURN_PART)

/* Connects again and again, until churn_must_stop(). */
void churn_client(struct churn_client *client, u8 *memory);

/* Connects, and registers the window. On failure it closes the endpoint, and returns false. */
bool churn_client_open(struct churn_client *client);
void churn_client_close(struct churn_client *client);

/* waiting.c: calls whose endpoint is closed while they wait */

int churn_waiting_start(void);
void churn_waiting_stop(void);

/* server.c */

int churn_server_start(void);
void churn_server_stop(void);

#endif /* _SCIF_CHURN_H */
