/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The times of many operations, and their percentiles.
 */
#ifndef REFERENCE_SAMPLES_H
#define REFERENCE_SAMPLES_H

#include <linux/math64.h>
#include <linux/mm.h>
#include <linux/seq_file.h>
#include <linux/sort.h>
#include <linux/types.h>

struct samples {
	u64 *ns;
	u32 count;
};

static inline int samples_init(struct samples *samples, u32 count)
{
	samples->count = 0;
	samples->ns = kvmalloc_array(count, sizeof(*samples->ns), GFP_KERNEL);
	return samples->ns ? 0 : -ENOMEM;
}

static inline void samples_free(struct samples *samples)
{
	kvfree(samples->ns);
	samples->ns = NULL;
	samples->count = 0;
}

static inline int samples_compare(const void *a, const void *b)
{
	u64 one = *(const u64 *)a, other = *(const u64 *)b;

	return one < other ? -1 : one > other;
}

/* Returns the value below which `permille` of 1000 samples are. */
static inline u64 samples_at(const struct samples *samples, u32 permille)
{
	u64 index = div_u64((u64)samples->count * permille, 1000);

	return samples->ns[min_t(u64, index, samples->count - 1)];
}

static inline void samples_show(struct seq_file *file, struct samples *samples)
{
	sort(samples->ns, samples->count, sizeof(*samples->ns), samples_compare, NULL);
	seq_printf(file, "count %u\nmin_ns %llu\np50_ns %llu\np99_ns %llu\np99_9_ns %llu\nmax_ns %llu\n",
		   samples->count, samples_at(samples, 0), samples_at(samples, 500),
		   samples_at(samples, 990), samples_at(samples, 999), samples_at(samples, 1000));
}

#endif /* REFERENCE_SAMPLES_H */
