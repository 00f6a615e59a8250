// Posting of requests. A post fills slots of a ring, moves the tail, and rings the bell once.
#include "objects.h"

#include <endian.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

void stag_wake(struct stag_link *l)
{
	uint64_t one = 1;
	int saved = errno;

	if (write(l->wake, &one, sizeof one) != sizeof one) // EAGAIN: it has been woken already
		errno = saved;
}

// room reports whether the queue has a place for the request at position tail. A place is
// free when its completion has been polled, or at once if there is none.
static inline bool room(struct queue *q, uint32_t tail)
{
	if (__builtin_expect((int32_t)(q->free - tail) > 0, 1))
		return true;
	q->free = (uint32_t)(__atomic_load_n(&q->ring->done, __ATOMIC_ACQUIRE) >> 32) +
		  __atomic_load_n(&q->returned, __ATOMIC_ACQUIRE) + q->depth;
	return (int32_t)(q->free - tail) > 0;
}

static inline void *slot(struct queue *q, uint32_t pos)
{
	return q->slots + (size_t)(pos & q->mask) * q->slot;
}

// next_slot returns the slot for the request at position tail, or NULL without room.
struct stag_send_slot *next_slot(struct qp *qp, uint32_t tail)
{
	return room(&qp->sq, tail) ? slot(&qp->sq, tail) : NULL;
}

// copy_inline copies the data that the list names to the slot. It returns 0 or an errno.
static inline int copy_inline(struct qp *qp, struct stag_send_slot *s, const struct ibv_sge *list, int n,
			      uint32_t *len)
{
	uint8_t *body = (uint8_t *)(s + 1);
	uint32_t have = 0;

	for (int i = 0; i < n; i++) {
		if (list[i].length > qp->inline_len - have)
			return EINVAL;
		memcpy(body + have, (const void *)(uintptr_t)list[i].addr, list[i].length);
		have += list[i].length;
	}
	*len = have;
	return 0;
}

static inline int payload(struct qp *qp, struct stag_send_slot *s, const struct ibv_send_wr *wr)
{
	uint32_t len;
	int error;

	if (wr->send_flags & IBV_SEND_INLINE) {
		error = copy_inline(qp, s, wr->sg_list, wr->num_sge, &len);
		if (error)
			return error;
		s->inline_data = len != 0;
		s->length = len;
		return 0;
	}
	if ((uint32_t)wr->num_sge > qp->sq.elements)
		return EINVAL;
	s->elements = wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++)
		((struct ibv_sge *)(s + 1))[i] = wr->sg_list[i];
	return 0;
}

// immediate moves the length of inline data to the place that it has beside Immediate Data.
static int immediate(struct stag_send_slot *s, __be32 imm)
{
	if (s->inline_data) {
		if (s->length > MAX_INLINE_IMM)
			return EINVAL;
		s->elements = s->length;
	}
	s->invalidate = be32toh(imm);
	s->length = 0;
	return 0;
}

static int atomics(struct stag_send_slot *s, const struct ibv_send_wr *wr)
{
	struct stag_operands *o = (struct stag_operands *)((char *)(s + 1) + sizeof(struct stag_element));

	if (wr->num_sge != 1 || s->inline_data)
		return EINVAL;
	s->remote = wr->wr.atomic.remote_addr;
	s->rkey = wr->wr.atomic.rkey;
	o->compare_add = wr->wr.atomic.compare_add;
	o->swap = wr->wr.atomic.swap;
	return 0;
}

// fill_bind fills what a bind has. Only the remote rights concern the window. It returns 0
// or an errno.
int fill_bind(struct stag_send_slot *s, const struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *b)
{
	if (!mw || (b->length && !b->mr) || b->length > UINT32_MAX)
		return EINVAL;
	s->rkey = rkey;
	s->elements = 1;
	*(struct stag_element *)(s + 1) = (struct stag_element){b->addr, b->length, b->mr ? b->mr->lkey : 0};
	s->length = b->mw_access_flags & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
					  IBV_ACCESS_ZERO_BASED);
	return 0;
}

// fill copies the request to the slot. It returns 0 or an errno.
static inline int fill(struct qp *qp, struct stag_send_slot *s, const struct ibv_send_wr *wr)
{
	int error;

	s->id = wr->wr_id;
	s->remote = wr->wr.rdma.remote_addr;
	s->rkey = wr->wr.rdma.rkey;
	s->invalidate = 0;
	s->length = 0;
	s->op = wr->opcode;
	s->flags = (wr->send_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)) | qp->always;
	s->elements = 0;
	s->inline_data = 0;
	if (wr->opcode == IBV_WR_BIND_MW)
		return fill_bind(s, wr->bind_mw.mw, wr->bind_mw.rkey, &wr->bind_mw.bind_info);
	if (wr->opcode == IBV_WR_LOCAL_INV) {
		s->invalidate = wr->invalidate_rkey;
		return 0;
	}
	error = payload(qp, s, wr);
	if (error)
		return error;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_SEND:
		return 0;
	case IBV_WR_RDMA_READ:
		return s->inline_data ? EINVAL : 0;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND_WITH_IMM:
		return immediate(s, wr->imm_data);
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return atomics(s, wr);
	case IBV_WR_SEND_WITH_INV:
		s->invalidate = wr->invalidate_rkey;
		return 0;
	default:
		return EINVAL;
	}
}

// publish makes the requests before tail known to the daemon.
static inline void publish(struct queue *q, uint32_t tail)
{
	q->tail = tail;
	__atomic_store_n(&q->ring->tail, tail, __ATOMIC_RELEASE);
}

int post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *qp = to_qp(ibv);
	struct queue *q = &qp->sq;
	int error = 0;
	uint32_t tail;

	pthread_spin_lock(&q->lock);
	for (tail = q->tail; wr; wr = wr->next, tail++) {
		if (__builtin_expect(!room(q, tail), 0)) {
			error = ENOMEM;
			break;
		}
		error = fill(qp, slot(q, tail), wr);
		if (__builtin_expect(error, 0))
			break;
	}
	publish(q, tail);
	pthread_spin_unlock(&q->lock);
	ring_bell(qp->link, qp->bit);
	if (error)
		*bad = wr;
	return error;
}

// post_built posts the requests before tail, which the functions of ibv_qp_ex have filled.
// The lock of the queue must be held; post_built releases it.
void post_built(struct qp *qp, uint32_t tail)
{
	publish(&qp->sq, tail);
	pthread_spin_unlock(&qp->sq.lock);
	ring_bell(qp->link, qp->bit);
}

// receive copies a receive to the slot.
static inline void receive(struct stag_recv_slot *s, const struct ibv_recv_wr *wr)
{
	s->id = wr->wr_id;
	s->elements = wr->num_sge;
	for (int i = 0; i < wr->num_sge; i++)
		((struct ibv_sge *)(s + 1))[i] = wr->sg_list[i];
}

// tell rings the bell after a post of receives if a message waits for one. Otherwise the
// daemon looks at the ring when a message arrives.
static inline void tell(struct stag_link *l, struct stag_queue_ring *r, uint32_t bit)
{
	if (__atomic_load_n(&r->waits, __ATOMIC_SEQ_CST))
		ring_bell(l, bit);
}

int post_recv(struct ibv_qp *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *qp = to_qp(ibv);
	struct queue *q = &qp->rq;
	int error = 0;
	uint32_t tail;

	if (!q->ring) { // receives come from a shared queue
		*bad = wr;
		return EINVAL;
	}
	pthread_spin_lock(&q->lock);
	for (tail = q->tail; wr; wr = wr->next, tail++) {
		if (__builtin_expect(!room(q, tail), 0)) {
			error = ENOMEM;
			break;
		}
		if ((uint32_t)wr->num_sge > q->elements) {
			error = EINVAL;
			break;
		}
		receive(slot(q, tail), wr);
	}
	q->tail = tail;
	__atomic_store_n(&q->ring->tail, tail, __ATOMIC_SEQ_CST);
	pthread_spin_unlock(&q->lock);
	tell(qp->link, q->ring, qp->bit);
	if (error)
		*bad = wr;
	return error;
}

// srq_slot returns the slot for the receive at position pos, or NULL without room. The daemon
// may be copying an older receive from the slot for a moment.
static struct stag_recv_slot *srq_slot(struct srq *q, uint32_t pos)
{
	struct stag_recv_slot *s = (struct stag_recv_slot *)(q->slots + (size_t)(pos & q->mask) * q->slot);

	if (pos - __atomic_load_n(&q->returned, __ATOMIC_ACQUIRE) >= q->depth)
		return NULL;
	while (__atomic_load_n(&s->free, __ATOMIC_ACQUIRE) != pos) {
		if (!stag_alive(q->link))
			return NULL;
		sched_yield();
	}
	return s;
}

int post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct srq *q = to_srq(ibv);
	int error = 0;
	uint32_t tail;

	pthread_spin_lock(&q->lock);
	for (tail = q->tail; wr; wr = wr->next, tail++) {
		struct stag_recv_slot *s;

		if ((uint32_t)wr->num_sge > q->elements) {
			error = EINVAL;
			break;
		}
		s = srq_slot(q, tail);
		if (!s) {
			error = ENOMEM;
			break;
		}
		receive(s, wr);
	}
	q->tail = tail;
	__atomic_store_n(&q->ring->tail, tail, __ATOMIC_SEQ_CST);
	pthread_spin_unlock(&q->lock);
	tell(q->link, q->ring, q->bit);
	if (error)
		*bad = wr;
	return error;
}
