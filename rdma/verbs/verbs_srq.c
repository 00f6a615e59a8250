// Shared receive queues.
#include "objects.h"

#include <stdlib.h>
#include <string.h>

// lay maps the ring behind fd. It returns false with errno.
static bool lay(struct srq *q, int fd, size_t len)
{
	struct stag_queue_ring *r = stag_map(fd, len);
	uint32_t slots = 1;

	if (!r)
		return false;
	while (slots < r->shape.depth && slots < 1u << 30)
		slots *= 2;
	if (r->shape.version != STAG_LAYOUT_VERSION || !r->shape.depth || r->shape.depth > slots ||
	    r->shape.slot < sizeof(struct stag_recv_slot) + r->shape.elements * sizeof(struct stag_element) ||
	    STAG_SLOTS_AT + (uint64_t)slots * r->shape.slot > len) {
		stag_unmap(r, len);
		errno = EPROTO;
		return false;
	}
	q->ring = r;
	q->len = len;
	q->slots = (uint8_t *)r + STAG_SLOTS_AT;
	q->slot = r->shape.slot;
	q->mask = slots - 1;
	q->depth = r->shape.depth;
	q->elements = r->shape.elements;
	return true;
}

// make asks the daemon for the queue. It returns false with errno.
static bool make(struct srq *q, struct ibv_pd *pd, struct ibv_srq_attr *a)
{
	struct stag_msg m = {.op = STAG_OP_SRQ};
	int fd;

	m.srq.pd = stag_pd_handle(pd);
	m.srq.cookie = q->counted.cookie;
	m.srq.depth = a->max_wr;
	m.srq.sge = a->max_sge ? a->max_sge : 1;
	if (stag_call(q->link, &m, NULL, 0, &fd, 1))
		return false;
	q->handle = m.handle;
	q->bit = m.srq.bit;
	if (q->bit < q->link->bits && lay(q, fd, m.srq.length)) {
		a->max_wr = q->depth;
		a->max_sge = q->elements;
		return true;
	}
	stag_destroy(q->link, STAG_KIND_SRQ, q->handle, NULL);
	errno = EPROTO;
	return false;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a)
{
	struct srq *q;
	int error;

	if (!a->attr.max_wr)
		return fail(EINVAL);
	q = aligned_alloc(64, (sizeof *q + 63) & ~63ul);
	if (!q)
		return NULL;
	memset(q, 0, sizeof *q);
	q->link = stag_link_of(pd->context);
	if (!counted_enter(&q->counted, q)) {
		free(q);
		return fail(ENOMEM);
	}
	if (!make(q, pd, &a->attr)) {
		error = errno;
		counted_leave(&q->counted);
		free(q);
		return fail(error);
	}
	q->srq.context = pd->context;
	q->srq.srq_context = a->srq_context;
	q->srq.pd = pd;
	q->srq.handle = q->handle;
	pthread_mutex_init(&q->srq.mutex, NULL);
	pthread_cond_init(&q->srq.cond, NULL);
	pthread_spin_init(&q->lock, PTHREAD_PROCESS_PRIVATE);
	return &q->srq;
}

struct ibv_srq *create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *a)
{
	bool typed = a->comp_mask & IBV_SRQ_INIT_ATTR_TYPE;

	(void)c;
	if (!(a->comp_mask & IBV_SRQ_INIT_ATTR_PD))
		return fail(EINVAL);
	if ((typed && a->srq_type != IBV_SRQT_BASIC) || a->comp_mask & ~(IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD))
		return fail(EOPNOTSUPP);
	return ibv_create_srq(a->pd, (struct ibv_srq_init_attr *)a); // the one begins as the other
}

_Static_assert(offsetof(struct ibv_srq_init_attr_ex, attr) == offsetof(struct ibv_srq_init_attr, attr),
	       "ibv_srq_init_attr_ex begins as ibv_srq_init_attr");

int get_srq_num(struct ibv_srq *srq, uint32_t *number)
{
	(void)srq, (void)number;
	return EOPNOTSUPP; // only queues for XRC have numbers
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *a, int mask)
{
	struct stag_msg m = {.op = STAG_OP_MODIFY_SRQ, .handle = to_srq(srq)->handle};

	_Static_assert(IBV_SRQ_MAX_WR == STAG_SRQ_DEPTH && IBV_SRQ_LIMIT == STAG_SRQ_LIMIT, "ibv_srq_attr_mask");
	m.srq.mask = mask;
	m.srq.depth = a->max_wr;
	m.srq.limit = a->srq_limit;
	return stag_call(to_srq(srq)->link, &m, NULL, 0, NULL, 0) ? errno : 0;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *a)
{
	struct stag_msg m = {.op = STAG_OP_QUERY_SRQ, .handle = to_srq(srq)->handle};

	if (stag_call(to_srq(srq)->link, &m, NULL, 0, NULL, 0))
		return errno;
	*a = (struct ibv_srq_attr){to_srq(srq)->depth, to_srq(srq)->elements, m.srq.limit};
	return 0;
}

// settle waits until the program has acknowledged all events that it has got.
static void settle(struct srq *q)
{
	pthread_mutex_lock(&q->srq.mutex);
	while (q->srq.events_completed != q->counted.async)
		pthread_cond_wait(&q->srq.cond, &q->srq.mutex);
	pthread_mutex_unlock(&q->srq.mutex);
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	struct srq *q = to_srq(srq);
	int error = stag_destroy(q->link, STAG_KIND_SRQ, q->handle, NULL);

	if (error)
		return error;
	counted_leave(&q->counted);
	if (!stag_left(q->link))
		settle(q);
	stag_unmap(q->ring, q->len);
	pthread_spin_destroy(&q->lock);
	pthread_mutex_destroy(&srq->mutex);
	pthread_cond_destroy(&srq->cond);
	free(q);
	return 0;
}

uint64_t stag_srq_handle(const struct ibv_srq *srq)
{
	return srq ? to_srq(srq)->handle : 0;
}
