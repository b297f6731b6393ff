/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Ends of connections: the calls of linux/scif_ioctl.h that more than one program makes, each
 * as a function, and the values of their flags, which are not in that header.
 *
 * A function that is named after a call returns what the call says, and -1 with errno for an
 * error; but a device that can't be opened is the end of the program. So is any error in the
 * others, which only make what a test needs.
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

/* The device, and the one number below that is another one in the MIC library. */
extern const char *scif_device;
extern unsigned long scif_acceptreq;

int scif_open(void);
int scif_bind(int fd, __u16 *port);
int scif_listen(int fd, int backlog);
/* Returns the own port. */
int scif_connect(int fd, __u16 node, __u16 port);
/* Both halves: returns the new end, which is closed on exec. */
int scif_accept(int fd, struct scif_port_id *peer, int flags);
/* Return how many bytes were moved. */
int scif_message(int fd, unsigned long call, const void *data, int len, int flags);
int scif_send(int fd, const void *data, int len, int flags);
int scif_recv(int fd, void *data, int len, int flags);
/* Returns the offset. */
__s64 scif_register(int fd, void *memory, __s64 len, __s64 offset, int prot, int flags);
int scif_unregister(int fd, __s64 offset, __s64 len);
int scif_fence_mark(int fd, int flags, __s32 *mark);
int scif_fence_wait(int fd, __s32 mark);
/* Returns how many nodes there are. */
int scif_nodes(int fd, __u16 *nodes, int len, __u16 *self);

__u16 own_node(void);
/* At this port; 0 is any, which is then put there. */
int listen_on(__u16 *port);
int accept_from(int listener);
int connected(__u16 node, __u16 port);

/*
 * Serve each client in a process of its own, which has prepare() make what the client needs, tells
 * it that this is there, and ends when the client goes. They do not return. The second one says
 * when it listens.
 */
void serve_clients(int listener, void (*prepare)(int fd));
void serve_clients_at(__u16 port, void (*prepare)(int fd));
/* An end that is connected to such a server, which has made what is needed. */
int served(__u16 node, __u16 port);

/* Those of the events that came, 0 if none did in so many milliseconds. */
int events(int fd, int wanted, int timeout);
/* The same before it is taken for hung. */
int wait_for(int fd, int wanted);

/*
 * Connects to a listener of the same process: asks, then collects the answer once somebody has
 * accepted. -1 if it is refused.
 */
int start_connect(int fd, __u16 port);
int finish_connect(int fd, __u16 port);

/* Two ends of a connection within a process, and the listener that accepted. */
struct pair {
	int listener;
	__u16 port;
	int fd[2];
};

struct pair make_pair(void);
void drop_pair(struct pair *pair);

#endif /* ENDS_H */
