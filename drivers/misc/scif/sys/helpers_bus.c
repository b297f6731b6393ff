// SPDX-License-Identifier: GPL-2.0
/*
 * C side of the peer bus: macros, and functions with a variable number of
 * arguments. peer_bus.rs has the rest, and shows the attributes.
 */

#include <linux/device.h>
#include <linux/mutex.h>
#include <linux/scif.h>
#include <linux/sysfs.h>

#include "helpers.h"

static ssize_t scif_peer_show(struct device *dev, struct device_attribute *attr,
			      char *buf)
{
	return scif_peer_device_show(dev, attr->attr.name, buf);
}

#define SCIF_PEER_ATTRIBUTE(_name)					\
static struct device_attribute dev_attr_##_name =			\
	__ATTR(_name, 0444, scif_peer_show, NULL)

SCIF_PEER_ATTRIBUTE(node);
SCIF_PEER_ATTRIBUTE(generation);
SCIF_PEER_ATTRIBUTE(state);
SCIF_PEER_ATTRIBUTE(aperture);
SCIF_PEER_ATTRIBUTE(link);
SCIF_PEER_ATTRIBUTE(connections);
SCIF_PEER_ATTRIBUTE(windows);

static struct attribute *scif_peer_attrs[] = {
	&dev_attr_node.attr,
	&dev_attr_generation.attr,
	&dev_attr_state.attr,
	&dev_attr_aperture.attr,
	&dev_attr_link.attr,
	&dev_attr_connections.attr,
	&dev_attr_windows.attr,
	NULL
};
ATTRIBUTE_GROUPS(scif_peer);

static int scif_peer_uevent(const struct device *dev,
			    struct kobj_uevent_env *env)
{
	const struct scif_peer_dev *spdev;

	spdev = container_of_const(dev, struct scif_peer_dev, dev);
	return add_uevent_var(env, "SCIF_NODE=%u", spdev->dnode);
}

static const struct bus_type scif_peer_bus = {
	.name = "scif_peer",
	.dev_groups = scif_peer_groups,
	.uevent = scif_peer_uevent,
};

int scif_helper_peer_bus_register(void)
{
	return bus_register(&scif_peer_bus);
}

void scif_helper_peer_bus_unregister(void)
{
	bus_unregister(&scif_peer_bus);
}

/*
 * Held while a device or a client is added or removed. The core puts a device
 * on a list before it tells the existing clients of the device, and takes the
 * device off that list after it has told them of the removal. A new client is
 * told of all devices on the list. Without the mutex, a client that registers in
 * between would be told of a device twice.
 */
static DEFINE_MUTEX(scif_peer_bus_changes);

/* On an error, too, put_device() frees the device by calling release. */
int scif_helper_peer_device_add(struct scif_peer_dev *spdev, u16 node,
				void (*release)(struct device *dev))
{
	int err;

	device_initialize(&spdev->dev);
	spdev->dev.bus = &scif_peer_bus;
	spdev->dev.release = release;
	spdev->dnode = node;
	err = dev_set_name(&spdev->dev, "node%u", node);
	if (err)
		return err;
	mutex_lock(&scif_peer_bus_changes);
	err = device_add(&spdev->dev);
	mutex_unlock(&scif_peer_bus_changes);
	return err;
}

void scif_helper_peer_device_remove(struct scif_peer_dev *spdev)
{
	mutex_lock(&scif_peer_bus_changes);
	device_del(&spdev->dev);
	mutex_unlock(&scif_peer_bus_changes);
	put_device(&spdev->dev);
}

static int scif_client_add(struct device *dev, struct subsys_interface *si)
{
	struct scif_client *client = container_of(si, struct scif_client, si);

	if (client->probe)
		client->probe(container_of(dev, struct scif_peer_dev, dev));
	return 0;
}

static void scif_client_remove(struct device *dev, struct subsys_interface *si)
{
	struct scif_client *client = container_of(si, struct scif_client, si);

	if (client->remove)
		client->remove(container_of(dev, struct scif_peer_dev, dev));
}

int scif_helper_client_register(struct scif_client *client)
{
	int err;

	client->si.name = client->name;
	client->si.subsys = &scif_peer_bus;
	client->si.add_dev = scif_client_add;
	client->si.remove_dev = scif_client_remove;
	mutex_lock(&scif_peer_bus_changes);
	err = subsys_interface_register(&client->si);
	mutex_unlock(&scif_peer_bus_changes);
	return err;
}

void scif_helper_client_unregister(struct scif_client *client)
{
	mutex_lock(&scif_peer_bus_changes);
	subsys_interface_unregister(&client->si);
	mutex_unlock(&scif_peer_bus_changes);
}
