/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A client that is stopped at any point: what its files share, and what both
 * ends agree on. tests/programs/scif_churn.c is another client of the server.
 */
#ifndef _SCIF_CHURN_H
#define _SCIF_CHURN_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/prandom.h>
#include <linux/scif.h>
#include <linux/sizes.h>

/*
 * Each end has a window of two parts. What is in the first one of the server is
 * up to the client, which looks at it again; the second ones are anybody's.
 */
#define CHURN_PART	SZ_64K
#define CHURN_WINDOW	0x1000000L
#define CHURN_LOOSE	(CHURN_WINDOW + CHURN_PART)
#define CHURN_SIZE	(2 * CHURN_PART)

/* A second window of the client, of the loose part, which comes and goes. */
#define CHURN_EXTRA	0x2000000L

#define CHURN_BOTH	(SCIF_PROT_READ | SCIF_PROT_WRITE)
#define CHURN_PLACED	(SCIF_MAP_KERNEL | SCIF_MAP_FIXED)

/* When the server's window is there it sends a byte. Then it answers words. */

/* main.c */

extern u16 churn_node;
extern ushort churn_port;
extern bool churn_forgets;
extern atomic_t churn_transfers;

/* Whoever runs this is to come to an end: stopped, killed, or unloaded. */
bool churn_must_stop(void);

/*
 * True if the connection can be used further. An error that nothing here
 * explains is said.
 */
bool churn_goes_on(long result, const char *what);

/* Between two tries. */
void churn_pause(void);

/* A place in a part, and a length that fits. */
struct churn_piece {
	off_t at;
	size_t len;
};

struct churn_piece churn_piece(struct rnd_state *random);

/* Some flags of enum scif_rma. */
int churn_flags(struct rnd_state *random);

/* client.c */

struct churn_client {
	struct task_struct *task;
	struct rnd_state random;
	scif_epd_t epd;
	/* The window, and a part that is in none. */
	u8 *memory;
	scif_pinned_pages_t pinned;
	struct scif_range *range;
	bool has_extra;
};

/* Where the memory is that has to outlive the module's exit function. */
#define CHURN_CLIENTS	2
#define CHURN_MEMORY	(CHURN_SIZE + CHURN_PART)

/* Connects again and again, until it has to stop. */
void churn_client(struct churn_client *client, u8 *memory);

/* True if it is connected, with its window; else it is closed. */
bool churn_client_open(struct churn_client *client);
void churn_client_close(struct churn_client *client);

/* waiting.c: calls whose endpoint is closed while they wait */

int churn_waiting_start(void);
void churn_waiting_stop(void);

/* server.c */

int churn_server_start(void);
void churn_server_stop(void);

#endif /* _SCIF_CHURN_H */
