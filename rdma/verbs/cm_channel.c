// Event channels: connections to the daemon on which every message is an event.
#include "cm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// attach makes the connection of a channel.
static int attach(struct channel *c)
{
	struct stag_msg m = {.op = STAG_OP_EVENT_CHANNEL};
	int fd = stag_connect();

	if (fd < 0)
		return -1;
	stag_token(c->link, m.attach.token);
	if (!stag_send(fd, &m, NULL, 0) && !stag_recv(fd, &m, NULL, 0)) {
		if (!m.err) {
			c->pub.fd = fd;
			c->handle = m.handle;
			return 0;
		}
		errno = m.err;
	}
	close(fd);
	return -1;
}

struct rdma_event_channel *rdma_create_event_channel(void)
{
	struct channel *c = calloc(1, sizeof *c);

	if (!c)
		return NULL;
	c->link = stag_link();
	if (!c->link || attach(c)) {
		free(c);
		return NULL;
	}
	return &c->pub;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel)
{
	close(channel->fd);
	free(channel);
}

// refuse tells the daemon that nobody will answer a connection request.
static void refuse(struct stag_link *link, const struct stag_msg *m)
{
	stag_destroy(link, STAG_KIND_ID, m->handle, NULL);
}

// request makes the id of a connection request. NULL: there is no memory.
static struct id *request(struct id *listener, const struct stag_msg *m)
{
	const struct stag_cm_event *e = &m->cm_event;
	struct rdma_cm_id *l = &listener->pub;
	struct id *id = cm_alloc(l->channel, l->context, l->ps, l->qp_type);

	if (!id)
		return NULL;
	id->handle = m->handle;
	id->passive = true;
	id->responder_resources = (uint8_t)e->responder_resources;
	id->initiator_depth = (uint8_t)e->initiator_depth;
	memcpy(&id->pub.route.addr.src_addr, e->src, STAG_ADDR_LEN);
	memcpy(&id->pub.route.addr.dst_addr, e->dst, STAG_ADDR_LEN);
	if (cm_bound(id, e->port_num)) {
		cm_free(id);
		return NULL;
	}
	cm_enter(id);
	if (listener->sync && rdma_migrate_id(&id->pub, NULL)) {
		cm_leave(id);
		cm_free(id);
		return NULL;
	}
	return id;
}

// keep_state makes the state in struct ibv_qp follow the connection.
static void keep_state(const struct rdma_cm_event *e)
{
	struct ibv_qp *qp = e->id->qp;

	if (!qp)
		return;
	if (e->event == RDMA_CM_EVENT_ESTABLISHED)
		stag_qp_state(qp, IBV_QPS_RTS);
	if (e->event == RDMA_CM_EVENT_DISCONNECTED || e->event == RDMA_CM_EVENT_DEVICE_REMOVAL)
		stag_qp_state(qp, IBV_QPS_ERR);
}

// params are what an event says of the connection.
static struct rdma_conn_param params(const struct stag_msg *m, const uint8_t *data)
{
	const struct stag_cm_event *e = &m->cm_event;

	return (struct rdma_conn_param){
		.private_data = m->private_len ? data : NULL,
		.private_data_len = (uint8_t)(m->private_len < 255 ? m->private_len : 255),
		.responder_resources = (uint8_t)e->responder_resources,
		.initiator_depth = (uint8_t)e->initiator_depth,
		.flow_control = (uint8_t)e->flow_control,
		.retry_count = (uint8_t)e->retry_count,
		.rnr_retry_count = (uint8_t)e->rnr_retry_count,
		.srq = (uint8_t)e->srq,
		.qp_num = e->qpn,
	};
}

// deliver makes an event of a message. NULL: the id is gone, or there is no memory.
static struct event *deliver(struct stag_link *link, const struct stag_msg *m)
{
	const struct stag_cm_event *e = &m->cm_event;
	bool asks = e->event == RDMA_CM_EVENT_CONNECT_REQUEST;
	struct id *id = cm_take(link, asks ? e->listener : m->handle);
	struct event *v = id ? calloc(1, sizeof *v) : NULL;

	if (v) {
		memcpy(v->data, m->private_data, STAG_PRIVATE_MAX);
		v->counts = id;
		v->pub = (struct rdma_cm_event){.id = &id->pub, .event = e->event, .status = e->status};
		v->pub.param.conn = params(m, v->data);
	}
	if (v && asks) {
		struct id *child = request(id, m);

		v->pub.listen_id = &id->pub;
		if (child) {
			v->pub.id = &child->pub;
			return v;
		}
		free(v);
		v = NULL;
	}
	if (!v) {
		if (id)
			cm_acknowledged(id);
		if (asks)
			refuse(link, m);
		return NULL;
	}
	keep_state(&v->pub);
	return v;
}

// removal makes the event that the device has gone for an id of the channel that does not
// know it yet, after the daemon has ended. NULL, with errno: all know it.
static struct event *removal(struct rdma_event_channel *channel)
{
	struct id *id = cm_untold(channel);
	struct event *v;

	if (!id) {
		errno = ENODEV;
		return NULL;
	}
	v = calloc(1, sizeof *v);
	if (!v) {
		cm_acknowledged(id);
		return NULL;
	}
	v->counts = id;
	v->pub.id = &id->pub;
	v->pub.event = RDMA_CM_EVENT_DEVICE_REMOVAL;
	keep_state(&v->pub);
	return v;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event)
{
	struct stag_msg m;
	struct event *v = NULL;

	while (!v) {
		if (!stag_recv(channel->fd, &m, NULL, 0)) {
			if (m.op == STAG_OP_CM_EVENT)
				v = deliver(cm_channel(channel)->link, &m);
			continue;
		}
		if (errno == ECONNRESET)
			v = removal(channel);
		if (!v)
			return -1;
	}
	*event = &v->pub;
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	struct event *v = (struct event *)event;

	if (!event)
		return cm_fail(EINVAL);
	cm_acknowledged(v->counts);
	free(v);
	return 0;
}
