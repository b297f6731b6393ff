// SPDX-License-Identifier: GPL-2.0
/*
 * The list of nodes, and the clients that are notified of nodes.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/mutex.h>

#include "test.h"

#define MANY	64

static void check_ids(void)
{
	u16 nodes[MANY], self = 65535;
	int count, i, selves = 0, servers = 0, touched = 0;

	count = scif_get_node_ids(NULL, 0, &self);
	test_at_least(1, count, "get_node_ids counts this node");
	test_returns(test_self, self, "get_node_ids returns the own node");
	test_returns(-EINVAL, scif_get_node_ids(NULL, -1, &self),
		     "get_node_ids with a negative length");
	test_returns(-EINVAL, scif_get_node_ids(nodes, INT_MIN, NULL),
		     "get_node_ids with the smallest length");
	memset(nodes, 0xa5, sizeof(nodes));
	test_returns(count, scif_get_node_ids(nodes, 0, NULL), "get_node_ids without room");
	test_returns(0xa5a5, nodes[0], "get_node_ids without room stores nothing");
	test_returns(count, scif_get_node_ids(nodes, 1, NULL), "get_node_ids with room for one");
	test_returns(0xa5a5, nodes[1], "get_node_ids with room for one stores one");
	test_returns(count, scif_get_node_ids(nodes, MANY, &self),
		     "get_node_ids with room for many");
	for (i = 0; i < MANY; i++) {
		if (i >= count) {
			touched += nodes[i] != 0xa5a5;
			continue;
		}
		selves += nodes[i] == self;
		servers += nodes[i] == test_node;
	}
	test_returns(0, touched, "get_node_ids stores no more ids than nodes");
	test_returns(1, selves, "get_node_ids has this node once");
	test_returns(1, servers, "get_node_ids has the server's node once");
}

/* --- Clients --- */

static DEFINE_MUTEX(heard_lock);
static u16 heard[MANY];
static unsigned int heard_count;
static unsigned int probes;
static unsigned int removes;
static unsigned int unexpected;
static unsigned int at_once;
static atomic_t running;

static int find_heard(u16 node)
{
	int i;

	for (i = 0; i < heard_count; i++)
		if (heard[i] == node)
			return i;
	return -1;
}

static void client_probe(struct scif_peer_dev *spdev)
{
	at_once += atomic_inc_return(&running) > 1;
	might_sleep();
	mutex_lock(&heard_lock);
	probes++;
	if (find_heard(spdev->dnode) >= 0 || heard_count == MANY || !*dev_name(&spdev->dev))
		unexpected++;
	else
		heard[heard_count++] = spdev->dnode;
	mutex_unlock(&heard_lock);
	/* Gives another call time to run at the same moment. */
	usleep_range(1000, 2000);
	atomic_dec(&running);
}

static void client_remove(struct scif_peer_dev *spdev)
{
	int at;

	at_once += atomic_inc_return(&running) > 1;
	mutex_lock(&heard_lock);
	removes++;
	at = find_heard(spdev->dnode);
	if (at < 0)
		unexpected++;
	else
		heard[at] = heard[--heard_count];
	mutex_unlock(&heard_lock);
	usleep_range(1000, 2000);
	atomic_dec(&running);
}

static struct scif_client client = {
	.name = "scif_client_test",
	.probe = client_probe,
	.remove = client_remove,
};

static void check_client(const char *when)
{
	int count = scif_get_node_ids(NULL, 0, NULL);
	char name[96];

	probes = 0;
	removes = 0;
	snprintf(name, sizeof(name), "client_register, %s", when);
	if (!test_returns(0, scif_client_register(&client), name))
		return;
	snprintf(name, sizeof(name), "client_register, %s, has told of all nodes", when);
	test_returns(count, probes, name);
	snprintf(name, sizeof(name), "client_register, %s, has told of this node", when);
	test_at_least(0, find_heard(test_self), name);
	snprintf(name, sizeof(name), "client_register, %s, has told of the server's node", when);
	test_at_least(0, find_heard(test_node), name);
	test_that(scif_client_register(&client) < 0,
		  "a registered client can't be registered again");
	test_returns(count, probes, "a failed registration calls no function");
	scif_client_unregister(&client);
	snprintf(name, sizeof(name), "client_unregister, %s, has told of all nodes", when);
	test_returns(probes, removes, name);
	test_returns(0, heard_count, "no node is left");
	test_returns(0, atomic_read(&running), "none of the client's functions runs");
}

void test_nodes(void)
{
	check_ids();
	check_client("first");
	check_client("again");
	test_returns(0, unexpected, "a client is called once for each node");
	test_returns(0, at_once, "a client's functions are called one after another");
}
