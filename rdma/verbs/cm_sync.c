// Synchronous ids and endpoints, and the change of an id's event channel.
#include "cm.h"

#include <rdma/rdma_verbs.h>

#include <stdlib.h>
#include <string.h>

enum { RESOLVE_MS = 2000 };

// failed returns the errno of an event that is not what a synchronous call waits for.
static int failed(const struct rdma_cm_event *e)
{
	if (e->event == RDMA_CM_EVENT_REJECTED)
		return ECONNREFUSED;
	return e->status < 0 ? -e->status : e->status;
}

int cm_complete(struct id *id)
{
	struct rdma_cm_id *cm = &id->pub;
	int error;

	if (!id->sync)
		return 0;
	if (cm->event) {
		rdma_ack_cm_event(cm->event);
		cm->event = NULL;
	}
	if (rdma_get_cm_event(cm->channel, &cm->event))
		return -1;
	error = failed(cm->event);
	return error ? cm_fail(error) : 0;
}

// with_channel tells the daemon to send the events of id to a channel from now on.
static int with_channel(struct id *id, struct rdma_event_channel *channel)
{
	struct stag_msg m = {.migrate.channel = cm_channel(channel)->handle};

	return cm_ask(id, &m, STAG_OP_MIGRATE);
}

int rdma_migrate_id(struct rdma_cm_id *cm, struct rdma_event_channel *channel)
{
	struct id *id = cm_id(cm);
	bool sync = !channel;

	if (id->sync && sync)
		return cm_fail(EINVAL);
	if (sync)
		channel = rdma_create_event_channel();
	if (!channel)
		return -1;
	if (with_channel(id, channel)) {
		if (sync)
			rdma_destroy_event_channel(channel);
		return -1;
	}
	if (id->sync) {
		if (cm->event) {
			rdma_ack_cm_event(cm->event);
			cm->event = NULL;
		}
		rdma_destroy_event_channel(cm->channel);
	}
	id->sync = sync;
	cm->channel = channel;
	return 0;
}

// active leads an endpoint to its peer's address.
static int active(struct rdma_cm_id *cm, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	if (rdma_resolve_addr(cm, res->ai_src_addr, res->ai_dst_addr, RESOLVE_MS) || rdma_resolve_route(cm, RESOLVE_MS))
		return -1;
	if (!attr)
		return 0;
	attr->qp_type = cm->qp_type;
	return rdma_create_qp(cm, pd, attr);
}

// passive binds an endpoint. The QPs of its requests get attr.
static int passive(struct rdma_cm_id *cm, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct id *id = cm_id(cm);

	if (rdma_bind_addr(cm, res->ai_src_addr))
		return -1;
	if (!attr)
		return 0;
	id->ep_attr = malloc(sizeof *attr);
	if (!id->ep_attr)
		return -1;
	*id->ep_attr = *attr;
	id->ep_attr->qp_type = cm->qp_type;
	id->ep_pd = pd;
	return 0;
}

int rdma_create_ep(struct rdma_cm_id **out, struct rdma_addrinfo *res, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct rdma_cm_id *cm;
	int error, result;

	if (!res || (res->ai_qp_type && res->ai_qp_type != IBV_QPT_RC))
		return cm_fail(EOPNOTSUPP);
	if (rdma_create_id(NULL, &cm, NULL, res->ai_port_space ? (enum rdma_port_space)res->ai_port_space : RDMA_PS_TCP))
		return -1;
	if (res->ai_flags & RAI_PASSIVE)
		result = passive(cm, res, pd, attr);
	else
		result = active(cm, res, pd, attr);
	if (result) {
		error = errno;
		rdma_destroy_ep(cm);
		return cm_fail(error);
	}
	*out = cm;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *cm)
{
	if (cm->qp)
		rdma_destroy_qp(cm);
	if (cm->srq)
		rdma_destroy_srq(cm);
	rdma_destroy_id(cm);
}

int rdma_get_request(struct rdma_cm_id *listener, struct rdma_cm_id **out)
{
	struct id *l = cm_id(listener);
	struct rdma_cm_event *e;

	if (!l->sync)
		return cm_fail(EINVAL);
	if (listener->event) {
		rdma_ack_cm_event(listener->event);
		listener->event = NULL;
	}
	if (rdma_get_cm_event(listener->channel, &e))
		return -1;
	if (e->status || e->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
		int error = e->status ? failed(e) : EINVAL;

		rdma_ack_cm_event(e);
		return cm_fail(error);
	}
	if (l->ep_attr) {
		struct ibv_qp_init_attr attr = *l->ep_attr;

		if (rdma_create_qp(e->id, l->ep_pd, &attr)) {
			int error = errno;

			e->id->event = e;
			rdma_reject(e->id, NULL, 0);
			rdma_destroy_id(e->id);
			return cm_fail(error);
		}
	}
	*out = e->id;
	(*out)->event = e;
	return 0;
}
