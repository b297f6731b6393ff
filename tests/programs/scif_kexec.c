// SPDX-License-Identifier: GPL-2.0
/*
 * Starts another kernel in the place of the running one, at once, as "kexec -f" does: unmounts
 * nothing, and asks no process to end.
 *
 *	scif_kexec KERNEL INITRAMFS [WORD...]
 *
 * The next kernel's command line is that of the running kernel, followed by these words. The
 * program prints "loaded", and waits for the end of its input before it starts the kernel.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/reboot.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "die.h"

/* Largest length of a command line on x86. */
#define MOST	2048

static int open_file(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		die(path);
	return fd;
}

static size_t read_command_line(char *line, size_t size)
{
	int fd = open_file("/proc/cmdline");
	ssize_t length = read(fd, line, size - 1);

	if (length < 0)
		die("/proc/cmdline");
	close(fd);
	if (length > 0 && line[length - 1] == '\n')
		length--;
	line[length] = '\0';
	return length;
}

int main(int argc, char **argv)
{
	char line[MOST];
	size_t length;
	int kernel, initramfs;

	if (argc < 3) {
		fprintf(stderr, "usage: scif_kexec KERNEL INITRAMFS [WORD...]\n");
		return 2;
	}
	length = read_command_line(line, sizeof(line));
	for (int i = 3; i < argc; i++)
		length += snprintf(line + length, sizeof(line) - length, " %s", argv[i]);
	if (length >= sizeof(line)) {
		fprintf(stderr, "scif_kexec: the command line is too long\n");
		return 1;
	}
	kernel = open_file(argv[1]);
	initramfs = open_file(argv[2]);
	if (syscall(SYS_kexec_file_load, kernel, initramfs, length + 1, line, 0UL))
		die("kexec_file_load");
	printf("loaded\n");
	fflush(stdout);
	while (getchar() != EOF)
		;
	syscall(SYS_reboot, LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_CMD_KEXEC, NULL);
	die("reboot");
	return 1;
}
