// Queue pairs.
#include "objects.h"

#include <stdlib.h>
#include <string.h>

pthread_mutex_t stag_qps_lock = PTHREAD_MUTEX_INITIALIZER;
struct qp *stag_all_qps;

// enter adds the QP to the table and to the list. It returns false without memory.
static bool enter(struct qp *qp)
{
	uint32_t number = qp->ex.qp_base.qp_num;
	struct qp ***page;
	bool there;

	if (number >> QP_BITS)
		return false;
	page = &stag_qps[number / QP_PAGE];
	pthread_mutex_lock(&stag_qps_lock);
	if (!*page)
		__atomic_store_n(page, calloc(QP_PAGE, sizeof **page), __ATOMIC_RELEASE);
	there = *page != NULL;
	if (there) {
		__atomic_store_n(&(*page)[number % QP_PAGE], qp, __ATOMIC_RELEASE);
		qp->older = stag_all_qps;
		if (qp->older)
			qp->older->newer = qp;
		stag_all_qps = qp;
	}
	pthread_mutex_unlock(&stag_qps_lock);
	return there;
}

static void leave(struct qp *qp)
{
	uint32_t number = qp->ex.qp_base.qp_num;
	struct qp **place = &stag_qps[number / QP_PAGE][number % QP_PAGE];

	pthread_mutex_lock(&stag_qps_lock);
	if (*place == qp) // in a child of fork, another QP may have the number
		__atomic_store_n(place, NULL, __ATOMIC_RELEASE);
	if (qp->older)
		qp->older->newer = qp->newer;
	if (qp->newer)
		qp->newer->older = qp->older;
	else
		stag_all_qps = qp->older;
	pthread_mutex_unlock(&stag_qps_lock);
}

// lay makes q the queue of the ring. It returns false if the ring does not fit into len.
static bool lay(struct queue *q, void *memory, size_t len, size_t fixed)
{
	struct stag_queue_ring *r = memory;
	uint32_t slots = 1;

	if (len < sizeof *r || r->shape.version != STAG_LAYOUT_VERSION || !r->shape.depth || r->shape.depth > 1u << 30)
		return false;
	while (slots < r->shape.depth)
		slots *= 2;
	if (r->shape.slot < fixed + r->shape.elements * sizeof(struct stag_element) ||
	    r->shape.slot < fixed + r->shape.inline_len || STAG_SLOTS_AT + (uint64_t)slots * r->shape.slot > len)
		return false;
	*q = (struct queue){
		.ring = r,
		.slots = (uint8_t *)memory + STAG_SLOTS_AT,
		.slot = r->shape.slot,
		.mask = slots - 1,
		.depth = r->shape.depth,
		.elements = r->shape.elements,
		.free = r->shape.depth,
	};
	return true;
}

static bool lay_both(struct qp *qp, const struct stag_qp *a)
{
	uint8_t *memory = qp->memory;

	if (a->send_len > a->length || !lay(&qp->sq, memory, a->send_len, sizeof(struct stag_send_slot)))
		return false;
	qp->inline_len = qp->sq.ring->shape.inline_len;
	if (qp->srq)
		return true;
	return a->recv_offset % 64 == 0 && a->recv_offset <= a->length && a->recv_len <= a->length - a->recv_offset &&
	       lay(&qp->rq, memory + a->recv_offset, a->recv_len, sizeof(struct stag_recv_slot));
}

static inline uint32_t at_least_1(uint32_t n)
{
	return n ? n : 1;
}

// make asks the daemon for the QP, and maps its rings. It returns false with errno.
static bool make(struct qp *qp, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct stag_msg m = {.op = STAG_OP_QP};
	int fd;

	m.qp.pd = stag_pd_handle(pd);
	m.qp.send_cq = stag_cq_handle(a->send_cq);
	m.qp.recv_cq = stag_cq_handle(a->recv_cq);
	m.qp.srq = stag_srq_handle(a->srq);
	m.qp.cookie = qp->counted.cookie;
	m.qp.flags = a->sq_sig_all ? STAG_QP_SIGNAL_ALL : 0;
	m.qp.type = a->qp_type;
	m.qp.send_depth = at_least_1(a->cap.max_send_wr);
	m.qp.recv_depth = a->srq ? 0 : at_least_1(a->cap.max_recv_wr);
	m.qp.send_sge = at_least_1(a->cap.max_send_sge);
	m.qp.recv_sge = a->srq ? 0 : at_least_1(a->cap.max_recv_sge);
	m.qp.inline_len = a->cap.max_inline_data;
	if (stag_call(qp->link, &m, NULL, 0, &fd, 1))
		return false;
	qp->handle = m.handle;
	qp->bit = m.qp.bit;
	qp->len = m.qp.length;
	qp->ex.qp_base.qp_num = m.qp.qpn;
	qp->memory = stag_map(fd, qp->len);
	if (qp->memory && qp->bit < qp->link->bits && lay_both(qp, &m.qp)) {
		a->cap = (struct ibv_qp_cap){
			.max_send_wr = m.qp.send_depth,
			.max_recv_wr = a->srq ? 0 : m.qp.recv_depth,
			.max_send_sge = qp->sq.elements,
			.max_recv_sge = a->srq ? 0 : qp->rq.elements,
			.max_inline_data = qp->inline_len,
		};
		return true;
	}
	stag_unmap(qp->memory, qp->len);
	stag_destroy(qp->link, STAG_KIND_QP, qp->handle, NULL);
	errno = EPROTO;
	return false;
}

// The daemon marks every completion with the number of its QP. A completion finds its QP by
// the number, so that the table must have it before the first one comes.
static struct qp *create(struct ibv_context *c, struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct ibv_qp *b;
	struct qp *qp;
	int error;

	if (a->qp_type != IBV_QPT_RC)
		return fail(EOPNOTSUPP);
	if (!a->send_cq || !a->recv_cq || a->cap.max_inline_data > to_context(c)->device.device.max_inline)
		return fail(EINVAL);
	qp = aligned_alloc(64, (sizeof *qp + 63) & ~63ul);
	if (!qp)
		return NULL;
	memset(qp, 0, sizeof *qp);
	qp->link = stag_link_of(c);
	qp->srq = a->srq ? to_srq(a->srq) : NULL;
	qp->always = a->sq_sig_all ? STAG_SEND_SIGNALED : 0;
	if (!counted_enter(&qp->counted, qp)) {
		free(qp);
		return fail(ENOMEM);
	}
	if (!make(qp, pd, a)) {
		error = errno;
		counted_leave(&qp->counted);
		free(qp);
		return fail(error);
	}
	b = &qp->ex.qp_base;
	b->context = c;
	b->qp_context = a->qp_context;
	b->pd = pd;
	b->send_cq = a->send_cq;
	b->recv_cq = a->recv_cq;
	b->srq = a->srq;
	b->handle = qp->handle;
	b->state = IBV_QPS_RESET;
	b->qp_type = a->qp_type;
	pthread_mutex_init(&b->mutex, NULL);
	pthread_cond_init(&b->cond, NULL);
	pthread_spin_init(&qp->sq.lock, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_init(&qp->rq.lock, PTHREAD_PROCESS_PRIVATE);
	qp->init = *a;
	if (enter(qp))
		return qp;
	ibv_destroy_qp(b);
	return fail(ENOMEM);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	struct qp *qp = create(pd->context, pd, a);

	return qp ? &qp->ex.qp_base : NULL;
}

// These are the operations that create_qp_ex can give.
enum {
	QP_MASK = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	QP_OPS = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
		 IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
		 IBV_QP_EX_WITH_SEND_WITH_INV,
};

struct ibv_qp *create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a)
{
	bool ops = a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	struct qp *qp;

	if (!(a->comp_mask & IBV_QP_INIT_ATTR_PD))
		return fail(EINVAL);
	if (a->comp_mask & ~QP_MASK || (a->comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS && a->create_flags) ||
	    (ops && a->send_ops_flags & ~(uint64_t)QP_OPS))
		return fail(EOPNOTSUPP);
	qp = create(c, a->pd, (struct ibv_qp_init_attr *)a); // the one begins as the other
	if (!qp)
		return NULL;
	qp->is_ex = ops;
	if (ops)
		qp_ex_ops(qp);
	return &qp->ex.qp_base;
}

_Static_assert(offsetof(struct ibv_qp_init_attr_ex, sq_sig_all) == offsetof(struct ibv_qp_init_attr, sq_sig_all),
	       "ibv_qp_init_attr_ex begins as ibv_qp_init_attr");

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	return to_qp(qp)->is_ex ? &to_qp(qp)->ex : NULL;
}

// settle waits until the program has acknowledged all events that it has got.
static void settle(struct qp *qp)
{
	struct ibv_qp *b = &qp->ex.qp_base;

	pthread_mutex_lock(&b->mutex);
	while (b->events_completed != qp->counted.async)
		pthread_cond_wait(&b->cond, &b->mutex);
	pthread_mutex_unlock(&b->mutex);
}

int ibv_destroy_qp(struct ibv_qp *b)
{
	struct qp *qp = to_qp(b);
	int error = stag_destroy(qp->link, STAG_KIND_QP, qp->handle, NULL);

	if (error)
		return error;
	counted_leave(&qp->counted);
	leave(qp);
	if (!stag_left(qp->link)) {
		cq_forget(to_cq(b->send_cq), qp);
		if (b->recv_cq != b->send_cq)
			cq_forget(to_cq(b->recv_cq), qp);
		settle(qp);
	}
	stag_unmap(qp->memory, qp->len);
	pthread_spin_destroy(&qp->sq.lock);
	pthread_spin_destroy(&qp->rq.lock);
	pthread_mutex_destroy(&b->mutex);
	pthread_cond_destroy(&b->cond);
	free(qp);
	return 0;
}

// put copies what the mask names to the message.
static void put(struct stag_qp_attr *to, const struct ibv_qp_attr *a, int mask)
{
	to->mask = mask;
	to->state = a->qp_state;
	to->cur_state = a->cur_qp_state;
	to->dest_qpn = a->dest_qp_num;
	to->rq_psn = a->rq_psn;
	to->sq_psn = a->sq_psn;
	to->access = a->qp_access_flags;
	to->port_num = a->port_num;
	to->path_mtu = a->path_mtu;
	to->max_rd_atomic = a->max_rd_atomic;
	to->max_dest_rd_atomic = a->max_dest_rd_atomic;
	to->min_rnr_timer = a->min_rnr_timer;
	to->timeout = a->timeout;
	to->retry_cnt = a->retry_cnt;
	to->rnr_retry = a->rnr_retry;
	if (mask & IBV_QP_AV) {
		to->sgid_index = a->ah_attr.grh.sgid_index;
		if (!(mask & IBV_QP_PORT))
			to->port_num = a->ah_attr.port_num;
		memcpy(to->dgid, a->ah_attr.grh.dgid.raw, sizeof to->dgid);
	}
}

int ibv_modify_qp(struct ibv_qp *b, struct ibv_qp_attr *a, int mask)
{
	struct stag_msg m = {.op = STAG_OP_MODIFY_QP, .handle = to_qp(b)->handle};

	put(&m.qp_attr, a, mask);
	if (stag_call(to_qp(b)->link, &m, NULL, 0, NULL, 0))
		return errno;
	if (mask & IBV_QP_STATE)
		b->state = a->qp_state;
	return 0;
}

int ibv_query_qp(struct ibv_qp *b, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	struct qp *qp = to_qp(b);
	struct stag_msg m = {.op = STAG_OP_QUERY_QP, .handle = qp->handle};
	const struct stag_qp_attr *q = &m.qp_attr;
	enum ibv_qp_state state;

	m.qp_attr.mask = mask;
	if (stag_call(qp->link, &m, NULL, 0, NULL, 0))
		return errno;
	// Adapters for iWARP say that a new QP is in the state INIT.
	state = q->state == IBV_QPS_RESET && !stag_roce() ? IBV_QPS_INIT : q->state;
	*a = (struct ibv_qp_attr){
		.qp_state = state,
		.cur_qp_state = state,
		.path_mtu = q->path_mtu,
		.dest_qp_num = q->dest_qpn,
		.rq_psn = q->rq_psn,
		.sq_psn = q->sq_psn,
		.qp_access_flags = q->access,
		.cap = qp->init.cap,
		.port_num = q->port_num,
		.max_rd_atomic = q->max_rd_atomic,
		.max_dest_rd_atomic = q->max_dest_rd_atomic,
		.min_rnr_timer = q->min_rnr_timer,
		.timeout = q->timeout,
		.retry_cnt = q->retry_cnt,
		.rnr_retry = q->rnr_retry,
	};
	a->ah_attr.is_global = 1;
	a->ah_attr.port_num = q->port_num;
	a->ah_attr.grh.sgid_index = q->sgid_index;
	memcpy(a->ah_attr.grh.dgid.raw, q->dgid, sizeof q->dgid);
	b->state = state;
	if (init)
		*init = qp->init;
	return 0;
}

int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags)
{
	(void)qp, (void)op, (void)flags;
	return 0; // no promise
}

uint64_t stag_qp_handle(const struct ibv_qp *qp)
{
	return qp ? to_qp(qp)->handle : 0;
}

void stag_qp_state(struct ibv_qp *qp, enum ibv_qp_state state)
{
	qp->state = state;
}
