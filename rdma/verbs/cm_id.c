// Identifiers: from creation to the end of a connection.
#include "cm.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

struct id *cm_alloc(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps, enum ibv_qp_type type)
{
	struct id *id = calloc(1, sizeof *id);

	if (!id)
		return NULL;
	id->link = cm_channel(channel)->link;
	id->pub.channel = channel;
	id->pub.context = context;
	id->pub.ps = ps;
	id->pub.qp_type = type;
	id->responder_resources = id->initiator_depth = RDMA_MAX_RESP_RES;
	return id;
}

void cm_free(struct id *id)
{
	if (!id)
		return;
	free(id->ep_attr);
	free(id);
}

int cm_ask(struct id *id, struct stag_msg *m, uint32_t op)
{
	m->op = op;
	m->handle = id->handle;
	return stag_call(id->link, m, NULL, 0, NULL, 0);
}

int cm_bound(struct id *id, uint32_t port_num)
{
	if (!port_num)
		return 0; // not bound to a device yet
	if (!id->pub.verbs)
		id->pub.verbs = stag_cm_context();
	if (!id->pub.verbs)
		return -1;
	if (!id->pub.pd)
		id->pub.pd = stag_cm_pd();
	if (!id->pub.pd)
		return -1;
	id->pub.port_num = (uint8_t)port_num;
	return 0;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **out, void *context, enum rdma_port_space ps)
{
	bool sync = !channel;
	struct stag_msg m = {.id.port_space = RDMA_PS_TCP};
	struct id *id;

	if (ps != RDMA_PS_TCP && ps != RDMA_PS_IB)
		return cm_fail(EPROTONOSUPPORT);
	if (sync)
		channel = rdma_create_event_channel();
	if (!channel)
		return -1;
	m.id.channel = cm_channel(channel)->handle;
	id = cm_alloc(channel, context, ps, IBV_QPT_RC);
	if (!id || cm_ask(id, &m, STAG_OP_ID)) {
		cm_free(id);
		if (sync)
			rdma_destroy_event_channel(channel);
		return -1;
	}
	id->handle = m.handle;
	id->sync = sync;
	cm_enter(id);
	*out = &id->pub;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *cm)
{
	struct id *id = cm_id(cm);
	int error = stag_destroy(id->link, STAG_KIND_ID, id->handle, NULL);

	if (error)
		return cm_fail(error);
	if (cm->event)
		rdma_ack_cm_event(cm->event);
	cm_leave(id);
	if (id->sync)
		rdma_destroy_event_channel(cm->channel);
	cm_free(id);
	return 0;
}

static bool is_loopback(const struct sockaddr *a)
{
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)a;
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;

	if (a->sa_family == AF_INET)
		return ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
	       (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
}

// An id that is bound to a loopback address has no device before it gets a connection. libfabric
// would take the loopback address for that of the device.
int rdma_bind_addr(struct rdma_cm_id *cm, struct sockaddr *addr)
{
	struct stag_msg m = {0};
	socklen_t len = cm_addr_len(addr);

	if (!len)
		return cm_fail(EAFNOSUPPORT);
	memcpy(m.address.src, addr, len);
	if (cm_ask(cm_id(cm), &m, STAG_OP_BIND))
		return -1;
	memcpy(&cm->route.addr.src_addr, m.address.src, STAG_ADDR_LEN);
	return is_loopback(addr) ? 0 : cm_bound(cm_id(cm), m.address.port_num);
}

int rdma_resolve_addr(struct rdma_cm_id *cm, struct sockaddr *src, struct sockaddr *dst, int timeout_ms)
{
	struct stag_msg m = {.address.timeout = (uint32_t)timeout_ms};
	socklen_t len = cm_addr_len(dst);

	if (!len || (src && src->sa_family && !cm_addr_len(src)))
		return cm_fail(EAFNOSUPPORT);
	memcpy(m.address.dst, dst, len);
	if (src)
		memcpy(m.address.src, src, cm_addr_len(src));
	if (cm_ask(cm_id(cm), &m, STAG_OP_RESOLVE))
		return -1;
	memcpy(&cm->route.addr.dst_addr, dst, len);
	memcpy(&cm->route.addr.src_addr, m.address.src, STAG_ADDR_LEN);
	if (cm_bound(cm_id(cm), m.address.port_num))
		return -1;
	return cm_complete(cm_id(cm));
}

int rdma_resolve_route(struct rdma_cm_id *cm, int timeout_ms)
{
	struct stag_msg m = {.address.timeout = (uint32_t)timeout_ms};

	if (cm_ask(cm_id(cm), &m, STAG_OP_ROUTE))
		return -1;
	return cm_complete(cm_id(cm));
}

int rdma_listen(struct rdma_cm_id *cm, int backlog)
{
	struct stag_msg m = {.address.backlog = (uint32_t)backlog};

	if (cm_ask(cm_id(cm), &m, STAG_OP_LISTEN))
		return -1;
	memcpy(&cm->route.addr.src_addr, m.address.src, STAG_ADDR_LEN);
	return 0;
}

int rdma_set_option(struct rdma_cm_id *cm, int level, int name, void *value, size_t len)
{
	struct stag_msg m = {.option = {.level = (uint32_t)level, .name = (uint32_t)name, .length = (uint32_t)len}};

	if (len > STAG_OPTION_LEN)
		return cm_fail(EINVAL);
	memcpy(m.option.value, value, len);
	return cm_ask(cm_id(cm), &m, STAG_OP_SET_OPTION);
}

int rdma_notify(struct rdma_cm_id *cm, enum ibv_event_type event)
{
	(void)cm;
	(void)event;
	return 0; // iWARP has no communication established by a first message
}
