/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The protocol between scif_blk and scif_blk_server.
 *
 * The server begins with struct scif_blk_hello. Then the client reads and writes the window that
 * this message describes, by one-sided transfers. The only further messages are for ranges to be
 * zeroed: the client sends the range, and the server answers when it has zeroed it.
 */
#ifndef _SAMPLES_SCIF_BLK_H
#define _SAMPLES_SCIF_BLK_H

#include <linux/types.h>

#define SCIF_BLK_MAGIC		0x6b6c6266
#define SCIF_BLK_VERSION	1

struct scif_blk_hello {
	__le32 magic;
	__le32 version;
	__le64 size;	/* of the window, in bytes */
	__le64 offset;	/* where it begins */
};

struct scif_blk_zero {
	__le64 offset;	/* from the beginning of the window */
	__le64 len;
};

struct scif_blk_zeroed {
	__le32 failed;	/* 1 if there is no such range */
};

#endif /* _SAMPLES_SCIF_BLK_H */
