/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ends of connections: a function for each call of linux/scif_ioctl.h that several programs make,
 * and the values of their flags, which that header does not define.
 *
 * A function that is named after a call returns the call's result, or -1 with errno for an error.
 * If the device can't be opened, the program ends. The other functions only prepare a test, so they
 * end the program on any error.
 */
#ifndef ENDS_H
#define ENDS_H

#include <linux/scif_ioctl.h>
#include <linux/types.h>

#define SCIF_ACCEPT_SYNC	1
#define SCIF_SEND_BLOCK		1
#define SCIF_RECV_BLOCK		1
#define SCIF_PROT_READ		1
#define SCIF_PROT_WRITE		2
#define SCIF_MAP_FIXED		0x10
#define SCIF_MAP_KERNEL		0x20
#define SCIF_FENCE_INIT_SELF	1
#define SCIF_FENCE_INIT_PEER	2
#define SCIF_SIGNAL_LOCAL	0x10
#define SCIF_SIGNAL_REMOTE	0x20
#define SCIF_RMA_USECPU		1
#define SCIF_RMA_USECACHE	2
#define SCIF_RMA_SYNC		4
#define SCIF_RMA_ORDERED	8
#define SCIF_PORT_RSVD		1088

/* The path of the device, and the ioctl number that differs in the MIC library. */
extern const char *scif_device;
extern unsigned long scif_acceptreq;

int scif_open(void);
int scif_bind(int fd, __u16 *port);
int scif_listen(int fd, int backlog);
/* Connects, and returns the own port. */
int scif_connect(int fd, __u16 node, __u16 port);
/* Does both halves of an accept. Returns the new end, which is closed on exec. */
int scif_accept(int fd, struct scif_port_id *peer, int flags);
/* Return the number of bytes that were moved. */
int scif_message(int fd, unsigned long call, const void *data, int len, int flags);
int scif_send(int fd, const void *data, int len, int flags);
int scif_recv(int fd, void *data, int len, int flags);
/* Registers a window, and returns its offset. */
__s64 scif_register(int fd, void *memory, __s64 len, __s64 offset, int prot, int flags);
int scif_unregister(int fd, __s64 offset, __s64 len);
int scif_fence_mark(int fd, int flags, __s32 *mark);
int scif_fence_wait(int fd, __s32 mark);
/* Returns the number of nodes. */
int scif_nodes(int fd, __u16 *nodes, int len, __u16 *self);

__u16 own_node(void);
/* Listens at this port. If the port is 0, any port is used and stored there. */
int listen_on(__u16 *port);
int accept_from(int listener);
int connected(__u16 node, __u16 port);

/*
 * Serve each client in a process of its own. The process lets prepare() make the resources that the
 * client needs, notifies the client, and ends when the client closes. These functions do not
 * return. The second one prints when it listens.
 */
void serve_clients(int listener, void (*prepare)(int fd));
void serve_clients_at(__u16 port, void (*prepare)(int fd));
/* Connects to such a server. Returns once the server has prepared its resources. */
int served(__u16 node, __u16 port);

/* Returns the wanted events that occur within timeout milliseconds, or 0. */
int events(int fd, int wanted, int timeout);
/* Waits for wanted events within the hang limit. */
int wait_for(int fd, int wanted);

/*
 * Connect to a listener of the same process. The first function sends the request. The second
 * collects the result once the listener has accepted. Both return -1 if the request is refused.
 */
int start_connect(int fd, __u16 port);
int finish_connect(int fd, __u16 port);

/* Two ends of a connection within a process, and their listener. */
struct pair {
	int listener;
	__u16 port;
	int fd[2];
};

struct pair make_pair(void);
void drop_pair(struct pair *pair);

#endif /* ENDS_H */
