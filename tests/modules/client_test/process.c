// SPDX-License-Identifier: GPL-2.0
/*
 * Windows of the memory of the process that loads this module.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "test.h"

#define BOTH	(SCIF_PROT_READ | SCIF_PROT_WRITE)
#define SIZE	(4 * PAGE_SIZE)
#define THEIRS	0x1000000L

static unsigned long map_pages(int prot)
{
	unsigned long at = vm_mmap(NULL, 0, SIZE, prot, MAP_PRIVATE | MAP_ANONYMOUS, 0);

	return IS_ERR_VALUE(at) ? 0 : at;
}

/* --- In a kernel thread, which has no process memory --- */

struct foreign {
	scif_epd_t epd;
	void *memory;
	long registered;
	long pinned;
	long read;
	long written;
};

static long foreign_work(void *data)
{
	struct foreign *foreign = data;
	scif_pinned_pages_t pinned = NULL;

	foreign->registered = scif_register(foreign->epd, foreign->memory, SIZE, 0, BOTH, 0);
	foreign->pinned = scif_pin_pages(foreign->memory, SIZE, BOTH, 0, &pinned);
	foreign->read = scif_vreadfrom(foreign->epd, foreign->memory, SIZE, THEIRS, SCIF_RMA_SYNC);
	foreign->written = scif_vwriteto(foreign->epd, foreign->memory, SIZE, THEIRS,
					 SCIF_RMA_SYNC);
	if (!foreign->pinned)
		scif_unpin_pages(pinned);
	return 0;
}

static void check_foreign(scif_epd_t epd, void *memory)
{
	struct foreign foreign = { .epd = epd, .memory = memory };
	struct worker worker;

	if (!test_ready(worker_start(&worker, foreign_work, &foreign), "a thread"))
		return;
	test_returns(0, worker_end(&worker), "a kernel thread with an address of a process");
	test_returns(-EFAULT, foreign.registered,
		     "register of a process's address in a kernel thread");
	test_returns(-EFAULT, foreign.pinned, "pin of a process's address in a kernel thread");
	test_returns(-EFAULT, foreign.read, "vreadfrom to a process's address in a kernel thread");
	test_returns(-EFAULT, foreign.written,
		     "vwriteto from a process's address in a kernel thread");
}

/* --- In the process --- */

static void check_window(scif_epd_t epd, void *memory, u8 *bytes)
{
	void __user *user = (void __user *)memory;
	scif_pinned_pages_t pinned = NULL;
	off_t offset;
	u64 sum = 0;

	test_fill(bytes, SIZE, 1);
	if (!test_ready(!copy_to_user(user, bytes, SIZE), "memory of the process"))
		return;
	offset = scif_register(epd, memory, SIZE, 0, BOTH, 0);
	test_at_least(0, offset, "register of memory of the process");
	test_returns(0, ask_sum(epd, &sum, ASK_VREADFROM, SIZE, offset, 0),
		     "the peer reads memory of the process");
	test_that(sum == test_sum(bytes, SIZE), "the peer reads the bytes of the process");
	test_returns(0, ask(epd, ASK_VWRITETO, 0, SIZE, offset, 0, 2),
		     "the peer writes memory of the process");
	test_that(!copy_from_user(bytes, user, SIZE) && test_filled(bytes, SIZE, 2),
		  "the process has the bytes that the peer wrote");
	test_returns(0, scif_unregister(epd, offset, SIZE), "unregister of memory of the process");

	test_returns(0, scif_pin_pages(memory, SIZE, BOTH, 0, &pinned),
		     "pin of memory of the process");
	offset = scif_register_pinned_pages(epd, pinned, 0, 0);
	test_at_least(0, offset, "register of pinned memory of the process");
	test_returns(0, scif_unpin_pages(pinned), "unpin of memory of the process");
	test_returns(0, ask(epd, ASK_VWRITETO, 0, SIZE, offset, 0, 3),
		     "the peer writes pinned memory of the process");
	test_that(!copy_from_user(bytes, user, SIZE) && test_filled(bytes, SIZE, 3),
		  "the process has the bytes that the peer wrote to pinned memory");
}

static void check_transfers(scif_epd_t epd, void *memory, u8 *bytes)
{
	static const int flags[] = { SCIF_RMA_SYNC, SCIF_RMA_SYNC | SCIF_RMA_USECPU,
				     SCIF_RMA_SYNC | SCIF_RMA_USECACHE };
	void __user *user = (void __user *)memory;
	size_t len = 5001;
	u64 sum;
	int i;

	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		sum = 0;
		test_fill(bytes, len, i + 10);
		if (!test_ready(!copy_to_user(user + 13, bytes, len), "memory of the process"))
			return;
		test_returns(0, scif_vwriteto(epd, memory + 13, len, THEIRS + 7, flags[i]),
			     "vwriteto from memory of the process");
		ask_sum(epd, &sum, ASK_SUM, THEIRS + 7, len);
		test_that(sum == test_sum(bytes, len), "the bytes of the process arrive");
		ask(epd, ASK_FILL, 0, THEIRS + 7, len, i + 20);
		test_returns(0, scif_vreadfrom(epd, memory + 13, len, THEIRS + 7, flags[i]),
			     "vreadfrom to memory of the process");
		test_that(!copy_from_user(bytes, user + 13, len) && test_filled(bytes, len, i + 20),
			  "the bytes arrive in memory of the process");
	}
}

static void check_refused(scif_epd_t epd, void *readable)
{
	scif_pinned_pages_t pinned = NULL;
	off_t offset;

	test_returns(-EFAULT, scif_register(epd, readable, SIZE, 0, BOTH, 0),
		     "register for writing of read-only memory");
	test_returns(-EFAULT, scif_pin_pages(readable, SIZE, SCIF_PROT_WRITE, 0, &pinned),
		     "pin for writing of read-only memory");
	test_returns(-EFAULT, scif_vreadfrom(epd, readable, 8, THEIRS, SCIF_RMA_SYNC),
		     "vreadfrom to read-only memory");
	offset = scif_register(epd, readable, SIZE, 0, SCIF_PROT_READ, 0);
	test_at_least(0, offset, "register for reading of read-only memory");
	test_returns(0, scif_vwriteto(epd, readable, 8, THEIRS, SCIF_RMA_SYNC),
		     "vwriteto from read-only memory");
	test_returns(0, scif_unregister(epd, offset, SIZE), "unregister of read-only memory");
	vm_munmap((unsigned long)readable, SIZE);
	test_returns(-EFAULT, scif_register(epd, readable, SIZE, 0, SCIF_PROT_READ, 0),
		     "register of unmapped memory");
	test_returns(-EFAULT, scif_vwriteto(epd, readable, 8, THEIRS, SCIF_RMA_SYNC),
		     "vwriteto from unmapped memory");
}

void test_process(void)
{
	scif_epd_t epd = test_reach_server();
	unsigned long memory = map_pages(PROT_READ | PROT_WRITE);
	unsigned long readable = map_pages(PROT_READ);
	u8 *bytes = vmalloc(SIZE);

	if (epd && test_ready(memory && readable && bytes, "memory") &&
	    test_ready(ask(epd, ASK_REGISTER, SCIF_MAP_FIXED, SIZE, THEIRS, BOTH, 0) == THEIRS,
		       "a window")) {
		check_window(epd, (void *)memory, bytes);
		check_transfers(epd, (void *)memory, bytes);
		check_foreign(epd, (void *)memory);
		check_refused(epd, (void *)readable);
	}
	if (epd)
		scif_close(epd);
	if (memory)
		vm_munmap(memory, SIZE);
	vfree(bytes);
}
