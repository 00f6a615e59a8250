// rsockets: how connections begin and end.
#include "cm_rs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { RESOLVE_MS = 2000, BACKLOG = 1024 };

static const struct { uint32_t magic, buffers, length; } greeting = {0x72737467, RS_BUFFERS, RS_BUFFER_LEN};

// quiet_channel makes an event channel that never blocks. The functions wait in rs_wait.
static struct rdma_event_channel *quiet_channel(void)
{
	struct rdma_event_channel *c = rdma_create_event_channel();

	if (c)
		fcntl(c->fd, F_SETFL, fcntl(c->fd, F_GETFL) | O_NONBLOCK);
	return c;
}

int rsocket(int domain, int type, int protocol)
{
	struct rdma_event_channel *channel;
	struct rdma_cm_id *cm;
	struct rs *s;

	(void)protocol;
	if (domain != AF_INET && domain != AF_INET6)
		return cm_fail(EAFNOSUPPORT);
	if ((type & 0xf) != SOCK_STREAM)
		return cm_fail(EPROTONOSUPPORT);
	channel = quiet_channel();
	if (!channel)
		return -1;
	if (rdma_create_id(channel, &cm, NULL, RDMA_PS_TCP)) {
		rdma_destroy_event_channel(channel);
		return -1;
	}
	s = rs_new(cm);
	if (!s) {
		rdma_destroy_id(cm);
		rdma_destroy_event_channel(channel);
		return -1;
	}
	s->nonblocking = (type & SOCK_NONBLOCK) != 0;
	return s->fd;
}

int rbind(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct rs *s = rs_find(fd);
	struct sockaddr_storage a = {0};

	if (!s)
		return -1;
	memcpy(&a, addr, len < sizeof a ? len : sizeof a);
	if (rdma_bind_addr(s->cm, (struct sockaddr *)&a))
		return -1;
	s->state = RS_BOUND;
	return 0;
}

int rlisten(int fd, int backlog)
{
	struct rs *s = rs_find(fd);

	if (!s)
		return -1;
	if (rdma_listen(s->cm, backlog > 0 ? backlog : BACKLOG))
		return -1;
	s->state = RS_LISTENING;
	return 0;
}

void rs_fail(struct rs *s, int error)
{
	s->error = error;
	s->state = RS_FAILED;
}

// post_receives posts all receives of a new socket.
static int post_receives(struct rs *s)
{
	for (int i = 0; i < RS_BUFFERS + RS_CONTROL; i++) {
		struct ibv_sge e = {
			.addr = (uintptr_t)(s->memory + (size_t)(RS_BUFFERS + RS_CONTROL + i) * RS_BUFFER_LEN),
			.length = RS_BUFFER_LEN,
			.lkey = s->mr->lkey,
		};
		struct ibv_recv_wr wr = {.wr_id = (uint64_t)i, .sg_list = &e, .num_sge = 1}, *bad;

		if (ibv_post_recv(s->cm->qp, &wr, &bad))
			return -1;
	}
	return 0;
}

int rs_open(struct rs *s)
{
	const int each = RS_BUFFERS + RS_CONTROL;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = (uint32_t)each, .max_recv_wr = (uint32_t)each, .max_send_sge = 1, .max_recv_sge = 1},
	};
	size_t len = (size_t)2 * (size_t)each * RS_BUFFER_LEN;

	s->channel = ibv_create_comp_channel(s->cm->verbs);
	if (!s->channel)
		return -1;
	fcntl(s->channel->fd, F_SETFL, fcntl(s->channel->fd, F_GETFL) | O_NONBLOCK);
	s->cq = ibv_create_cq(s->cm->verbs, 2 * each, s, s->channel, 0);
	if (!s->cq)
		return -1;
	attr.send_cq = attr.recv_cq = s->cq;
	s->memory = aligned_alloc(4096, len);
	if (!s->memory)
		return -1;
	memset(s->memory, 0, len);
	if (rdma_create_qp(s->cm, NULL, &attr))
		return -1;
	s->mr = ibv_reg_mr(s->cm->pd, s->memory, len, IBV_ACCESS_LOCAL_WRITE);
	s->credits = RS_BUFFERS;
	return s->mr ? post_receives(s) : -1;
}

void rs_close(struct rs *s)
{
	if (s->cm->qp)
		rdma_destroy_qp(s->cm);
	for (int i = 0; i < RS_MAPS; i++) {
		if (s->ours[i].mr)
			ibv_dereg_mr(s->ours[i].mr);
	}
	if (s->mr)
		ibv_dereg_mr(s->mr);
	if (s->cq)
		ibv_destroy_cq(s->cq);
	if (s->channel)
		ibv_destroy_comp_channel(s->channel);
	free(s->memory);
}

static struct rdma_conn_param hello(void)
{
	return (struct rdma_conn_param){
		.private_data = &greeting, .private_data_len = sizeof greeting, .retry_count = 7, .rnr_retry_count = 7,
	};
}

// greeted reports whether the peer is an rsocket of this library.
static bool greeted(const struct rdma_cm_event *e)
{
	return e->param.conn.private_data && e->param.conn.private_data_len >= sizeof greeting &&
	       !memcmp(e->param.conn.private_data, &greeting, sizeof greeting);
}

static int connect_on(struct rs *s)
{
	struct rdma_conn_param p = hello();

	return rs_open(s) || rdma_connect(s->cm, &p) ? -1 : 0;
}

// on handles an event of a socket that connects or is open.
static void on(struct rs *s, const struct rdma_cm_event *e)
{
	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (rdma_resolve_route(s->cm, RESOLVE_MS))
			rs_fail(s, errno);
		return;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (connect_on(s))
			rs_fail(s, errno);
		return;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (!cm_id(s->cm)->passive && !greeted(e))
			rs_fail(s, EPROTO);
		else
			s->state = RS_OPEN;
		return;
	case RDMA_CM_EVENT_REJECTED:
		rs_fail(s, ECONNREFUSED);
		return;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		rs_fail(s, e->status < 0 ? -e->status : ECONNREFUSED);
		return;
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		s->got_end = true;
		s->state = RS_GONE;
		return;
	default:
		return;
	}
}

void rs_advance(struct rs *s)
{
	struct rdma_cm_event *e;

	while (!s->request && !rdma_get_cm_event(s->cm->channel, &e)) {
		if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			s->request = e->id;
			s->request_event = e;
			return;
		}
		if (s->channel && e->event == RDMA_CM_EVENT_DISCONNECTED)
			rs_progress(s); // what arrived before the end
		on(s, e);
		rdma_ack_cm_event(e);
	}
}

static bool asked(const struct rs *s) { return s->request || s->state == RS_GONE; }

bool rs_settled(const struct rs *s) { return s->state != RS_CONNECTING; }

// admit answers a request. NULL: it is refused.
static struct rs *admit(struct rdma_cm_id *cm, const struct rdma_cm_event *e)
{
	struct rdma_conn_param p = hello();
	struct rdma_event_channel *channel = quiet_channel();
	struct rs *s;

	if (!channel || rdma_migrate_id(cm, channel)) {
		if (channel)
			rdma_destroy_event_channel(channel);
		rdma_reject(cm, NULL, 0);
		return NULL;
	}
	s = greeted(e) ? rs_new(cm) : NULL;
	if (!s) {
		rdma_reject(cm, NULL, 0);
		return NULL;
	}
	s->state = RS_CONNECTING;
	p.responder_resources = e->param.conn.responder_resources;
	p.initiator_depth = e->param.conn.initiator_depth;
	if (rs_open(s) || rdma_accept(cm, &p)) {
		rdma_reject(cm, NULL, 0);
		rs_close(s);
		rs_forget(s);
		free(s);
		return NULL;
	}
	return s;
}

// established waits until an accepted socket is open.
static bool established(struct rs *s)
{
	bool open;

	pthread_mutex_lock(&s->lock);
	open = !rs_wait(s, rs_settled, false) && s->state != RS_FAILED;
	pthread_mutex_unlock(&s->lock);
	return open;
}

static void give_addr(const struct sockaddr *from, struct sockaddr *addr, socklen_t *len)
{
	socklen_t n = cm_addr_len(from);

	if (!addr || !len)
		return;
	memcpy(addr, from, n < *len ? n : *len);
	*len = n;
}

int raccept(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct rs *l = rs_find(fd), *s;
	struct rdma_cm_id *cm;
	struct rdma_cm_event *e;

	if (!l)
		return -1;
	if (l->state != RS_LISTENING)
		return cm_fail(EINVAL);
	pthread_mutex_lock(&l->lock);
	if (rs_wait(l, asked, false) || !l->request) {
		pthread_mutex_unlock(&l->lock);
		return l->state == RS_GONE ? cm_fail(ENODEV) : -1;
	}
	cm = l->request;
	e = l->request_event;
	l->request = NULL;
	pthread_mutex_unlock(&l->lock);
	s = admit(cm, e);
	rdma_ack_cm_event(e);
	if (!s) {
		struct rdma_event_channel *own = cm->channel != l->cm->channel ? cm->channel : NULL;

		rdma_destroy_id(cm);
		if (own)
			rdma_destroy_event_channel(own);
		return cm_fail(ECONNABORTED);
	}
	if (!established(s)) {
		rclose(s->fd);
		return cm_fail(ECONNABORTED);
	}
	give_addr(&cm->route.addr.dst_addr, addr, len);
	return s->fd;
}

int rconnect(int fd, const struct sockaddr *addr, socklen_t len)
{
	struct rs *s = rs_find(fd);
	struct sockaddr_storage to = {0};
	int result = -1;

	if (!s)
		return -1;
	if (s->state != RS_NEW && s->state != RS_BOUND)
		return cm_fail(s->state == RS_CONNECTING ? EALREADY : EISCONN);
	memcpy(&to, addr, len < sizeof to ? len : sizeof to);
	pthread_mutex_lock(&s->lock);
	s->state = RS_CONNECTING;
	if (rdma_resolve_addr(s->cm, NULL, (struct sockaddr *)&to, RESOLVE_MS)) {
		rs_fail(s, errno);
	} else if (!rs_wait(s, rs_settled, false)) {
		result = s->state == RS_OPEN ? 0 : cm_fail(s->error);
	} else if (errno == EAGAIN) {
		errno = EINPROGRESS;
	}
	pthread_mutex_unlock(&s->lock);
	return result;
}

static bool drained(const struct rs *s) { return s->sends == s->sends_done || s->state != RS_OPEN; }

int rshutdown(int fd, int how)
{
	struct rs *s = rs_find(fd);

	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock);
	if (how == SHUT_RD || how == SHUT_RDWR)
		s->no_reads = true;
	if ((how == SHUT_WR || how == SHUT_RDWR) && s->state == RS_OPEN && !s->sent_end) {
		if (!rs_send_control(s, (struct rs_header){.kind = RS_END}))
			s->sent_end = true;
	}
	pthread_mutex_unlock(&s->lock);
	return 0;
}

int rclose(int fd)
{
	struct rs *s = rs_find(fd);
	struct rdma_event_channel *channel;

	if (!s)
		return -1;
	rshutdown(fd, SHUT_RDWR);
	pthread_mutex_lock(&s->lock);
	s->nonblocking = false;
	if (s->state == RS_OPEN && !rs_wait(s, drained, false) && s->state == RS_OPEN)
		rdma_disconnect(s->cm);
	pthread_mutex_unlock(&s->lock);
	rs_forget(s);
	channel = s->cm->channel;
	if (s->request) {
		rdma_reject(s->request, NULL, 0);
		rdma_ack_cm_event(s->request_event);
		rdma_destroy_id(s->request);
	}
	rs_close(s);
	rdma_destroy_id(s->cm);
	rdma_destroy_event_channel(channel);
	free(s);
	return 0;
}

int rgetpeername(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct rs *s = rs_find(fd);

	if (!s)
		return -1;
	if (s->state != RS_OPEN && s->state != RS_CONNECTING)
		return cm_fail(ENOTCONN);
	give_addr(&s->cm->route.addr.dst_addr, addr, len);
	return 0;
}

int rgetsockname(int fd, struct sockaddr *addr, socklen_t *len)
{
	struct rs *s = rs_find(fd);

	if (!s)
		return -1;
	give_addr(&s->cm->route.addr.src_addr, addr, len);
	return 0;
}
