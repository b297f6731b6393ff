/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A port with a listener: one thread accepts, and each connection has a thread of its own, which
 * makes blocking calls.
 *
 * kthread_stop() ends the threads: it interrupts the call in which a thread waits, and all later
 * waits. Each thread closes its own endpoint when it makes no more calls. Another thread could
 * close the endpoint, too, which also ends a waiting call. But the owner may just be between two
 * calls, and would start the next one with a closed endpoint.
 */
#ifndef _SAMPLES_SCIF_SERVICE_H
#define _SAMPLES_SCIF_SERVICE_H

#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/list.h>
#include <linux/scif.h>
#include <linux/slab.h>

/* Limit of connections, because another node could ask for any number. */
#define SERVICE_CONNECTIONS	64

struct service {
	const char *name;
	/* Returns when the connection has ended, or a call was interrupted. */
	void (*serve)(scif_epd_t epd, const struct scif_port_id *peer);

	scif_epd_t listener;
	struct task_struct *acceptor;
	/* Only the acceptor uses these. */
	struct list_head connections;
	unsigned int count;
};

struct service_connection {
	struct list_head list;
	struct service *service;
	struct task_struct *task;
	struct scif_port_id peer;
	scif_epd_t epd;
	bool closed;
};

static int service_connection(void *data)
{
	struct service_connection *connection = data;

	connection->service->serve(connection->epd, &connection->peer);
	scif_close(connection->epd);
	/* The acceptor checks this flag: see service_accept(). */
	smp_store_release(&connection->closed, true);
	return 0;
}

static void service_end(struct service_connection *connection)
{
	kthread_stop_put(connection->task);
	/* A thread that is stopped before it has run never runs, so its endpoint is still open. */
	if (!connection->closed)
		scif_close(connection->epd);
	list_del(&connection->list);
	connection->service->count--;
	kfree(connection);
}

static int service_begin(struct service *service, scif_epd_t epd,
			 const struct scif_port_id *peer)
{
	struct service_connection *connection;

	if (service->count == SERVICE_CONNECTIONS)
		return -EUSERS;
	connection = kzalloc_obj(*connection);
	if (!connection)
		return -ENOMEM;
	connection->service = service;
	connection->epd = epd;
	connection->peer = *peer;
	connection->task = kthread_create(service_connection, connection, "%s/%u.%u",
					  service->name, peer->node, peer->port);
	if (IS_ERR(connection->task)) {
		int err = PTR_ERR(connection->task);

		kfree(connection);
		return err;
	}
	/* The thread ends when its connection does, and must still exist when it is stopped. */
	get_task_struct(connection->task);
	list_add(&connection->list, &service->connections);
	service->count++;
	wake_up_process(connection->task);
	return 0;
}

static int service_accept(void *data)
{
	struct service_connection *connection, *next;
	struct service *service = data;
	struct scif_port_id peer;
	scif_epd_t epd;
	int err;

	while (!kthread_should_stop()) {
		err = scif_accept(service->listener, &peer, &epd, SCIF_ACCEPT_SYNC);
		list_for_each_entry_safe(connection, next, &service->connections, list)
			/* Pairs with the release in service_connection(). */
			if (smp_load_acquire(&connection->closed))
				service_end(connection);
		if (err) {
			/* An error, such as a lack of memory, may go away. */
			msleep_interruptible(100);
			continue;
		}
		err = service_begin(service, epd, &peer);
		if (err) {
			pr_warn("node %u, port %u: closing the connection, which can't be served (%d)\n",
				peer.node, peer.port, err);
			scif_close(epd);
		}
	}
	list_for_each_entry_safe(connection, next, &service->connections, list)
		service_end(connection);
	return 0;
}

static inline int service_start(struct service *service, u16 port)
{
	int err;

	INIT_LIST_HEAD(&service->connections);
	service->listener = scif_open();
	if (!service->listener)
		return -ENOMEM;
	err = scif_bind(service->listener, port);
	if (err < 0)
		goto close;
	err = scif_listen(service->listener, SERVICE_CONNECTIONS);
	if (err)
		goto close;
	service->acceptor = kthread_run(service_accept, service, "%s", service->name);
	err = PTR_ERR_OR_ZERO(service->acceptor);
	if (err)
		goto close;
	return 0;

close:
	scif_close(service->listener);
	return err;
}

/* Stops the service. When it returns, the service has no threads and no endpoints left. */
static inline void service_stop(struct service *service)
{
	kthread_stop(service->acceptor);
	scif_close(service->listener);
}

#endif /* _SAMPLES_SCIF_SERVICE_H */
