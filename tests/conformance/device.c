// SPDX-License-Identifier: GPL-2.0
/*
 * Cases of device memory: memory of a device of this node, for peers, and addresses of a peer's
 * memory, for devices. The cases make raw calls of linux/scif_services.h.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <linux/scif_services.h>

#include "../harness/suite.h"

#define LEN	(8 * PAGE)

static int create(int endpoint, __u64 address, __u64 len, __u32 prot)
{
	struct scif_memory_create argument = {
		.size = sizeof(argument),
		.flags = SCIF_MEMORY_DEVICE,
		.address = address,
		.len = len,
		.prot = prot,
		.fd = -1,
	};

	return ioctl(endpoint, SCIF_MEMORY_CREATE, &argument) ? -1 : argument.fd;
}

static long register_part(int endpoint, int fd, __u64 from, __u64 len, __u32 prot)
{
	struct scif_memory_register argument = {
		.size = sizeof(argument),
		.fd = fd,
		.prot = prot,
		.from = from,
		.len = len,
	};

	return ioctl(endpoint, SCIF_MEMORY_REGISTER, &argument) ? -1 : argument.offset;
}

/* Returns the address of a device's BAR and of its last byte, or 0 if there is no such BAR. */
static __u64 bar(const char *folder, int number, __u64 *last)
{
	char path[256], line[128];
	__u64 first = 0;
	FILE *file;
	int i;

	snprintf(path, sizeof(path), "%s/resource", folder);
	file = fopen(path, "r");
	expect(file);
	for (i = 0; i <= number; i++) {
		expect(fgets(line, sizeof(line), file));
		expect(sscanf(line, "%llx %llx", &first, last) == 2);
	}
	fclose(file);
	return first;
}

static unsigned char *map_bar(const char *folder, int number, long offset, long len)
{
	char path[256];
	void *mapped;
	int fd;

	snprintf(path, sizeof(path), "%s/resource%d", folder, number);
	fd = expect_ok(open(path, O_RDWR));
	mapped = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
	expect(mapped != MAP_FAILED);
	close(fd);
	return mapped;
}

/* The end of the device's memory, as this process maps it, and as a window. */
struct device {
	struct pair pair;
	unsigned char *memory;
	/* First and last address of the BAR. */
	__u64 first, last;
	__u64 address;
	int fd;
	off_t offset;
	/* LEN bytes of the peer, and the offset of their window. */
	__s64 there;
	off_t peer_offset;
};

static struct device device_memory(void)
{
	struct device device = { .pair = connected() };
	__u64 last;

	device.first = bar(run.device_memory, 2, &last);
	device.last = last;
	expect(device.first && last - device.first + 1 >= 2 * (__u64)LEN);
	device.address = last + 1 - LEN;
	device.memory = map_bar(run.device_memory, 2, device.address - device.first, LEN);
	device.fd = expect_ok(create(device.pair.here, device.address, LEN, READ_WRITE));
	device.there = ask(device.pair.peer, DO_PAGES, LEN / PAGE);
	device.peer_offset = expect_ok(ask(device.pair.peer, DO_REGISTER, device.pair.there,
					   device.there, LEN, 0, READ_WRITE, 0));
	return device;
}

static struct device device_window(void)
{
	struct device device = device_memory();

	device.offset = expect_ok(register_part(device.pair.here, device.fd, 0, LEN, READ_WRITE));
	return device;
}

/* --- A peer reads and writes the device's memory --- */

static void device_memory_by_peer(void)
{
	struct device device = device_window();
	struct pair *pair = &device.pair;
	int flags[] = { SYNC, SYNC | SCIF_RMA_USECPU };
	size_t i;

	expect_value(locked(), 0);
	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		ask(pair->peer, DO_FILL, device.there, 10 + i, LEN);
		expect_value(ask(pair->peer, DO_VWRITETO, pair->there, device.there, LEN,
				 device.offset, flags[i]), 0);
		expect_value(differs(device.memory, 10 + i, LEN), -1);
		fill(device.memory, 20 + i, LEN);
		expect_value(ask(pair->peer, DO_VREADFROM, pair->there, device.there, LEN,
				 device.offset, flags[i]), 0);
		expect_value(ask(pair->peer, DO_DIFFERS, device.there, 20 + i, LEN), -1);
	}
	/* A few unaligned bytes. */
	ask(pair->peer, DO_FILL, device.there, 30, 100);
	expect_value(ask(pair->peer, DO_VWRITETO, pair->there, device.there, 100,
			 device.offset + PAGE - 33, SYNC), 0);
	expect_value(differs(device.memory + PAGE - 33, 30, 100), -1);
	expect_value(ask(pair->peer, DO_WRITETO, pair->there, device.peer_offset, LEN,
			 device.offset, SYNC), 0);
}

static void device_memory_by_us(void)
{
	struct device device = device_window();
	struct pair *pair = &device.pair;
	int flags[] = { SYNC, SYNC | SCIF_RMA_USECPU };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(flags); i++) {
		fill(device.memory, 40 + i, LEN);
		expect_value(scif_writeto(pair->here, device.offset, LEN, device.peer_offset,
					  flags[i]), 0);
		expect_value(ask(pair->peer, DO_DIFFERS, device.there, 40 + i, LEN), -1);
		ask(pair->peer, DO_FILL, device.there, 50 + i, LEN);
		expect_value(scif_readfrom(pair->here, device.offset, LEN, device.peer_offset,
					   flags[i]), 0);
		expect_value(differs(device.memory, 50 + i, LEN), -1);
	}
}

static void device_memory_signal(void)
{
	struct device device = device_window();
	struct pair *pair = &device.pair;
	volatile __u64 *here = (__u64 *)device.memory;

	expect_value(ask(pair->peer, DO_SIGNAL, pair->there, 0, 0, device.offset + 16,
			 0x1122334455667788, SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_REMOTE), 0);
	wait_until(here[2] == 0x1122334455667788);
	expect_value(scif_fence_signal(pair->here, device.offset + 28, 0x99aabbccddeeff00, 0, 0,
				       SCIF_FENCE_INIT_SELF | SCIF_SIGNAL_LOCAL), 0);
	wait_until(((__u32 *)device.memory)[7] == 0xddeeff00 &&
		   ((__u32 *)device.memory)[8] == 0x99aabbcc);
}

static void device_memory_mapped(void)
{
	struct device device;
	volatile __u64 *here;
	long mapped;

	if (run.staged_here)
		return;
	device = device_window();
	mapped = expect_ok(ask(device.pair.peer, DO_MMAP, device.pair.there, device.offset, LEN,
			       PROT_READ | PROT_WRITE));
	here = (__u64 *)(device.memory + LEN - PAGE);
	expect_value(ask(device.pair.peer, DO_POKE, mapped + LEN - PAGE, 77), 0);
	wait_until(*here == 77);
	*here = 78;
	wait_until(!ask(device.pair.peer, DO_PEEK, mapped + LEN - PAGE) &&
		   answer(device.pair.peer, 0) == 78);
}

/* A part of the memory, through another connection, for reading only. */
static void device_memory_part(void)
{
	struct device device = device_window();
	struct pair other = connected_to(device.pair.peer);
	off_t part;

	fill(device.memory + PAGE, 60, PAGE);
	part = expect_ok(register_part(other.here, device.fd, PAGE, PAGE, SCIF_PROT_READ));
	expect_value(ask(other.peer, DO_VREADFROM, other.there, device.there, PAGE, part, SYNC), 0);
	expect_value(ask(other.peer, DO_DIFFERS, device.there, 60, PAGE), -1);
	expect_error(ask(other.peer, DO_VWRITETO, other.there, device.there, 1, part, SYNC),
		     EACCES);
	expect_value(scif_unregister(device.pair.here, device.offset, LEN), 0);
	expect_value(close(device.fd), 0);
	expect_value(ask(other.peer, DO_VREADFROM, other.there, device.there, PAGE, part, SYNC), 0);
	expect_value(scif_unregister(other.here, part, PAGE), 0);
}

/* --- Modes without device memory --- */

static void device_unreached_peer(void)
{
	struct device device = device_memory();
	struct pair here = connected_here();

	expect_error(register_part(device.pair.here, device.fd, 0, LEN, READ_WRITE), EOPNOTSUPP);
	expect_error(register_part(here.here, device.fd, 0, LEN, READ_WRITE), EOPNOTSUPP);
	/* The connection still works. */
	expect_value(scif_vwriteto(device.pair.here, "1", 1, device.peer_offset, SYNC), 0);
}

static void device_unreached_arguments(void)
{
	struct device device = device_memory();
	int endpoint = device.pair.here;

	expect_error(create(endpoint, device.address + 1, PAGE, READ_WRITE), EINVAL);
	expect_error(create(endpoint, device.address, PAGE + 1, READ_WRITE), EINVAL);
	expect_error(create(endpoint, device.address, 0, READ_WRITE), EINVAL);
	expect_error(create(endpoint, device.address, LEN + PAGE, READ_WRITE), EINVAL);
	expect_error(create(endpoint, device.first - PAGE, 2 * PAGE, READ_WRITE), EINVAL);
	expect_ok(create(endpoint, device.first, device.last + 1 - device.first, SCIF_PROT_READ));
	drop_privileges(1L << 30);
	expect_error(create(endpoint, device.address, PAGE, READ_WRITE), EPERM);
}

/* Returns the physical address of a page of this process, which is RAM. */
static __u64 some_ram(void)
{
	unsigned char *memory = pages(1);
	__u64 entry;
	int map = expect_ok(open("/proc/self/pagemap", O_RDONLY));

	*memory = 1;
	expect_value(pread(map, &entry, sizeof(entry), (uintptr_t)memory / PAGE * 8),
		     sizeof(entry));
	close(map);
	return (entry & ((1ULL << 55) - 1)) * PAGE;
}

static void device_no_memory(void)
{
	int endpoint = expect_ok(scif_open());
	__u64 ram = some_ram();

	expect(ram != 0);
	expect_error(create(endpoint, ram, PAGE, READ_WRITE), EINVAL);
	expect_error(create(endpoint, 1 << 20, PAGE, READ_WRITE), EINVAL);
	/* Addresses without memory or devices. */
	expect_error(create(endpoint, 1ULL << 45, PAGE, READ_WRITE), EINVAL);
	expect_error(create(endpoint, -PAGE, PAGE, READ_WRITE), EINVAL);
	expect_error(create(endpoint, -PAGE, 2 * PAGE, READ_WRITE), EINVAL);
	expect_error(create(endpoint, 0, ~0ULL - PAGE + 1, READ_WRITE), EINVAL);
	expect_error(create(endpoint, 0, 1ULL << 63, READ_WRITE), EINVAL);
}

static void device_privilege(void)
{
	int endpoint = expect_ok(scif_open());
	__u64 ram = some_ram();

	drop_privileges(1L << 30);
	expect_error(create(endpoint, ram, PAGE, READ_WRITE), EPERM);
	expect_error(create(endpoint, 0xfee00000, PAGE, READ_WRITE), EPERM);
}

/* --- Addresses of the peer's memory, for devices --- */

static int find(int endpoint, off_t offset, __u64 len, __u64 *address, __u64 *contiguous)
{
	struct scif_remote_address argument = {
		.size = sizeof(argument),
		.offset = offset,
		.len = len,
	};
	int result = ioctl(endpoint, SCIF_REMOTE_ADDRESS, &argument);

	*address = argument.address;
	*contiguous = argument.contiguous;
	return result;
}

/* Returns the memory at an address in a BAR of some device, or NULL if it is in none. */
static unsigned char *behind(__u64 address, long len)
{
	char folder[64];
	int slot, number;
	__u64 first, last;

	for (slot = 0; slot < 32; slot++) {
		snprintf(folder, sizeof(folder), "/sys/bus/pci/devices/0000:00:%02x.0", slot);
		if (access(folder, F_OK))
			continue;
		for (number = 0; number < 6; number++) {
			first = bar(folder, number, &last);
			if (first && first <= address && address + len - 1 <= last)
				return map_bar(folder, number, address - first, len);
		}
	}
	return NULL;
}

static void remote_address_found(void)
{
	struct windows windows = connected_windows(4);
	__u64 address, contiguous, next, rest;
	unsigned char *memory;

	expect_value(find(windows.pair.here, windows.peer_offset, windows.len, &address,
			  &contiguous), 0);
	expect(address % PAGE == 0 && contiguous % PAGE == 0);
	expect(contiguous >= (__u64)PAGE && contiguous <= (__u64)windows.len);
	/* The range begins and ends inside a page. */
	expect_value(find(windows.pair.here, windows.peer_offset + 100, 200, &next, &rest), 0);
	expect(next == address + 100 && rest == 200);
	expect_value(find(windows.pair.here, windows.peer_offset + PAGE, PAGE, &next, &rest), 0);
	expect(rest == (__u64)PAGE);
	expect(contiguous == (__u64)PAGE || next == address + PAGE);
	if (run.topology == TOPOLOGY_LOOPBACK)
		return;
	/* Loads what a device would find at that address. */
	memory = behind(address, PAGE);
	expect(memory);
	ask(windows.pair.peer, DO_FILL, windows.peer_memory, 5, PAGE);
	expect_value(differs(memory, 5, PAGE), -1);
}

static void remote_address_staged(void)
{
	struct windows windows = connected_windows(1);
	__u64 address, contiguous;

	expect_error(find(windows.pair.here, windows.peer_offset, PAGE, &address, &contiguous),
		     EOPNOTSUPP);
}

static void remote_address_missing(void)
{
	struct windows windows = connected_windows(2);
	__u64 address, contiguous;
	int endpoint = windows.pair.here;

	expect_error(find(endpoint, windows.peer_offset + windows.len, PAGE, &address, &contiguous),
		     ENXIO);
	expect_error(find(endpoint, windows.peer_offset, windows.len + 1, &address, &contiguous),
		     ENXIO);
	expect_error(find(endpoint, windows.peer_offset, 0, &address, &contiguous), EINVAL);
	expect_error(find(endpoint, -PAGE, PAGE, &address, &contiguous), EINVAL);
	expect_error(find(endpoint, windows.peer_offset, ~0ULL, &address, &contiguous), EINVAL);
	expect_value(ask(windows.pair.peer, DO_UNREGISTER, windows.pair.there, windows.peer_offset,
			 windows.len), 0);
	expect_error(find(endpoint, windows.peer_offset, PAGE, &address, &contiguous), ENXIO);
	expect_error(find(expect_ok(scif_open()), 0, PAGE, &address, &contiguous), ENOTCONN);
	expect_value(ask(windows.pair.peer, DO_CLOSE, windows.pair.there), 0);
	wait_for_hangup(endpoint);
	expect_error(find(endpoint, windows.peer_offset, PAGE, &address, &contiguous), ECONNRESET);
}

static void remote_address_privilege(void)
{
	struct windows windows = connected_windows(1);
	__u64 address, contiguous;

	drop_privileges(1L << 30);
	expect_error(find(windows.pair.here, windows.peer_offset, PAGE, &address, &contiguous),
		     EPERM);
}

static void remote_address_arguments(void)
{
	struct windows windows = connected_windows(1);
	struct scif_remote_address argument = {
		.size = sizeof(argument),
		.offset = windows.peer_offset,
		.len = PAGE,
	};
	unsigned char larger[256] = { 0 };
	int endpoint = windows.pair.here, bit;

	expect_value(sizeof(argument), 48);
	for (bit = 0; bit < 32; bit++) {
		argument.flags = 1U << bit;
		expect_error(ioctl(endpoint, SCIF_REMOTE_ADDRESS, &argument), EINVAL);
	}
	argument.flags = 0;
	argument.reserved = 1;
	expect_error(ioctl(endpoint, SCIF_REMOTE_ADDRESS, &argument), EINVAL);
	argument.reserved = 0;
	for (argument.size = 0; argument.size < sizeof(argument); argument.size++)
		expect_error(ioctl(endpoint, SCIF_REMOTE_ADDRESS, &argument), EINVAL);
	argument.size = sizeof(larger);
	memcpy(larger, &argument, sizeof(argument));
	larger[255] = 1;
	expect_error(ioctl(endpoint, SCIF_REMOTE_ADDRESS, larger), E2BIG);
	expect_error(ioctl(endpoint, SCIF_REMOTE_ADDRESS, NULL), EFAULT);
}

const struct test_case device_cases[] = {
	PAIR_DEVICE(device_memory_by_peer, "device.transfers"),
	PAIR_DEVICE(device_memory_by_us, "device.transfers"),
	PAIR_DEVICE(device_memory_signal, "device.signals"),
	PAIR_DEVICE(device_memory_mapped, "device.mapped"),
	PAIR_DEVICE(device_memory_part, "device.part"),
	PAIR_DEVICE(device_unreached_peer, "device.unreached"),
	PAIR_DEVICE(device_unreached_arguments, "device.range device.privilege"),
	ALONE(device_no_memory, "device.range"),
	ALONE(device_privilege, "device.privilege"),
	PAIR_MAPPED(remote_address_found, "remote-address.found"),
	PAIR_STAGED(remote_address_staged, "remote-address.staged"),
	PAIR(remote_address_missing, "remote-address.missing remote-address.not-connected"),
	PAIR(remote_address_privilege, "remote-address.privilege"),
	PAIR(remote_address_arguments, "services.size services.reserved"),
	{ }
};
