// The files of librdmacm.so.1 share these declarations.
#ifndef STAG_CM_H
#define STAG_CM_H

#include <rdma/rdma_cma.h>

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "core.h"

// channel is an event channel. Its descriptor is a connection to the daemon of its own, on
// which one message is one event.
struct channel {
	struct rdma_event_channel pub;
	struct stag_link *link;
	uint64_t handle;
};

// id is an identifier. The program sees pub.
struct id {
	struct rdma_cm_id pub;
	struct id *next;	   // in the same bucket of the table
	struct stag_link *link;	   // the control connection that handle belongs to
	uint64_t handle;	   // the daemon's name of it
	unsigned given;		   // events that the program has got and not acknowledged
	bool sync;		   // calls wait; the channel belongs to the id
	bool passive;		   // came by a listener
	bool told;		   // the program knows that the daemon has gone
	bool own_send_cq, own_recv_cq;
	uint8_t responder_resources, initiator_depth; // that the peer asked for
	struct ibv_pd *ep_pd;			      // rdma_create_ep: for the QPs of requests
	struct ibv_qp_init_attr *ep_attr;
};

// event is an event with its private data.
struct event {
	struct rdma_cm_event pub;
	struct id *counts; // the id whose count of events has this one
	uint8_t data[STAG_PRIVATE_MAX];
};

static inline struct id *cm_id(struct rdma_cm_id *id) { return (struct id *)id; }
static inline struct channel *cm_channel(struct rdma_event_channel *c) { return (struct channel *)c; }

// cm_fail sets errno and returns -1.
static inline int cm_fail(int error)
{
	errno = error;
	return -1;
}

static inline __be16 cm_port(const struct sockaddr *a)
{
	switch (a->sa_family) {
	case AF_INET:
		return ((const struct sockaddr_in *)a)->sin_port;
	case AF_INET6:
		return ((const struct sockaddr_in6 *)a)->sin6_port;
	}
	return 0;
}

static inline socklen_t cm_addr_len(const struct sockaddr *a)
{
	switch (a->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	}
	return 0;
}

// cm_table.c: ids by handle, and the counts of events.
extern pthread_mutex_t cm_lock;
void cm_enter(struct id *id);
void cm_leave(struct id *id); // then no event finds it; waits until all events are acknowledged
struct id *cm_take(const struct stag_link *link, uint64_t handle); // counts an event; NULL: there is no such id
struct id *cm_untold(struct rdma_event_channel *channel); // counts the event that the device has gone
void cm_acknowledged(struct id *id);

// cm_id.c
struct id *cm_alloc(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type);
void cm_free(struct id *id);
int cm_ask(struct id *id, struct stag_msg *m, uint32_t op);
int cm_bound(struct id *id, uint32_t port_num);

// cm_sync.c
int cm_complete(struct id *id); // a call of a synchronous id waits for its event

#endif
