/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Binds and unbinds the driver of a node's DMA engine.
 */
#ifndef ENGINE_DRIVER_H
#define ENGINE_DRIVER_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Binds or unbinds ("bind", "unbind") this PCI device. Returns false, with errno, on failure. */
static inline bool tell_driver(const char *what, const char *device)
{
	size_t len = strlen(device);
	char path[64];
	bool done;
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/drivers/plx_dma/%s", what);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	done = write(fd, device, len) == (ssize_t)len;
	close(fd);
	return done;
}

#endif /* ENGINE_DRIVER_H */
