// SPDX-License-Identifier: GPL-2.0
/*
 * The default address of a device.
 *
 * It is the same after each restart, and differs from the addresses of all other
 * devices, also where links of several machines are bridged into one network.
 * So it depends on:
 *
 * - the node ids of both ends, which tell a machine's links apart, and the ends
 *   of one link;
 * - the machine's UUID, as its firmware tells it (dmidecode -s system-uuid);
 * - the serial number of the bridge, if the bridge has one.
 *
 * A machine without UUID and serial number still gets the same address each
 * time, with the bridge's name in their place. But another machine may have it,
 * too. The kernel then tells user space that the address was chosen at random.
 * systemd-udevd replaces such an address by one from the machine's id.
 */

#include <linux/dmi.h>
#include <linux/etherdevice.h>
#include <linux/pci.h>
#include <linux/siphash.h>

#include "private.h"

/* The first byte of an address that is administered locally, of one station. */
#define SCIF_NET_LOCAL 0x02

/* A key chosen once: other users of the same facts get other numbers. */
static const siphash_key_t scif_net_key = {
	.key = { 0x736369665f6e6574ULL, 0x5d1c0a7be2f04683ULL },
};

void scif_net_default_address(struct net_device *dev,
			      const struct scif_net_link *link)
{
	const char *uuid = dmi_get_system_info(DMI_PRODUCT_UUID);
	struct device *parent = link->parent;
	u8 address[ETH_ALEN] = { SCIF_NET_LOCAL };
	struct {
		char machine[64];
		__le64 serial;
		__le16 own_node;
		__le16 node;
		__le32 zero;
	} facts = {
		.own_node = cpu_to_le16(link->own_node),
		.node = cpu_to_le16(link->node),
	};
	__le64 hash;

	if (parent && dev_is_pci(parent))
		facts.serial = cpu_to_le64(pci_get_dsn(to_pci_dev(parent)));
	if (uuid) {
		strscpy(facts.machine, uuid, sizeof(facts.machine));
	} else if (!facts.serial) {
		if (parent)
			strscpy(facts.machine, dev_name(parent),
				sizeof(facts.machine));
		dev->addr_assign_type = NET_ADDR_RANDOM;
	}
	hash = cpu_to_le64(siphash(&facts, sizeof(facts), &scif_net_key));
	memcpy(address + 1, &hash, sizeof(address) - 1);
	__dev_addr_set(dev, address, sizeof(address));
}
