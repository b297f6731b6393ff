// SPDX-License-Identifier: GPL-2.0
/*
 * Prints what ethtool knows of a network device, as JSON, or sets something of it.
 *
 *	net_facts DEVICE
 *	net_facts DEVICE channels COUNT
 *	net_facts DEVICE usecs COUNT
 *	net_facts DEVICE ring COUNT
 *
 * Prints the facts of ethtool -i, -l, -g, -c and -S. The second form does what ethtool -L DEVICE
 * combined COUNT does, the third one what ethtool -C DEVICE rx-usecs COUNT does, the last one what
 * ethtool -G DEVICE rx COUNT does.
 */
#define _GNU_SOURCE
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "die.h"

static struct ifreq device;
static int handle;

static void call(const char *what, void *command)
{
	device.ifr_data = command;
	if (ioctl(handle, SIOCETHTOOL, &device))
		die(what);
}

static unsigned int strings(void)
{
	struct {
		struct ethtool_sset_info info;
		__u32 count;
	} set = {
		.info = {
			.cmd = ETHTOOL_GSSET_INFO,
			.sset_mask = 1 << ETH_SS_STATS,
		},
	};

	call("the number of statistics", &set);
	return set.count;
}

static void print_statistics(void)
{
	unsigned int count = strings(), i;
	struct ethtool_gstrings *names = calloc(1, sizeof(*names) + count * ETH_GSTRING_LEN);
	struct ethtool_stats *values = calloc(1, sizeof(*values) + count * sizeof(__u64));

	if (!names || !values)
		die("calloc");
	names->cmd = ETHTOOL_GSTRINGS;
	names->string_set = ETH_SS_STATS;
	names->len = count;
	call("the names of statistics", names);
	values->cmd = ETHTOOL_GSTATS;
	values->n_stats = count;
	call("the statistics", values);
	printf("\"statistics\": {");
	for (i = 0; i < count; i++) {
		printf("%s\"%.*s\": %llu", i ? ", " : "", ETH_GSTRING_LEN,
		       (char *)names->data + i * ETH_GSTRING_LEN, values->data[i]);
	}
	printf("}");
	free(names);
	free(values);
}

static void print(void)
{
	struct ethtool_channels channels = { .cmd = ETHTOOL_GCHANNELS };
	struct ethtool_coalesce coalesce = { .cmd = ETHTOOL_GCOALESCE };
	struct ethtool_ringparam ring = { .cmd = ETHTOOL_GRINGPARAM };
	struct ethtool_drvinfo driver = { .cmd = ETHTOOL_GDRVINFO };

	call("the driver", &driver);
	call("the channels", &channels);
	call("the rings", &ring);
	call("the coalescing", &coalesce);
	printf("{\"driver\": \"%s\", \"version\": \"%s\", \"bus_info\": \"%s\", ", driver.driver,
	       driver.version, driver.bus_info);
	printf("\"max_combined\": %u, \"combined\": %u, ", channels.max_combined,
	       channels.combined_count);
	printf("\"rx_pending\": %u, \"tx_pending\": %u, ", ring.rx_pending, ring.tx_pending);
	printf("\"rx_usecs\": %u, ", coalesce.rx_coalesce_usecs);
	print_statistics();
	printf("}\n");
}

int main(int argc, char **argv)
{
	struct ethtool_channels channels = { .cmd = ETHTOOL_GCHANNELS };
	struct ethtool_coalesce coalesce = { .cmd = ETHTOOL_GCOALESCE };
	struct ethtool_ringparam ring = { .cmd = ETHTOOL_GRINGPARAM };

	if (argc != 2 && argc != 4) {
		fprintf(stderr, "usage: net_facts DEVICE [channels|usecs|ring COUNT]\n");
		return 2;
	}
	handle = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (handle < 0)
		die("socket");
	snprintf(device.ifr_name, sizeof(device.ifr_name), "%s", argv[1]);
	if (argc == 2) {
		print();
	} else if (!strcmp(argv[2], "channels")) {
		call("the channels", &channels);
		channels.cmd = ETHTOOL_SCHANNELS;
		channels.combined_count = atoi(argv[3]);
		call("setting the channels", &channels);
	} else if (!strcmp(argv[2], "ring")) {
		call("the rings", &ring);
		ring.cmd = ETHTOOL_SRINGPARAM;
		ring.rx_pending = atoi(argv[3]);
		call("setting the rings", &ring);
	} else {
		call("the coalescing", &coalesce);
		coalesce.cmd = ETHTOOL_SCOALESCE;
		coalesce.rx_coalesce_usecs = atoi(argv[3]);
		call("setting the coalescing", &coalesce);
	}
	return 0;
}
