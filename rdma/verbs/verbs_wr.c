// Posting by the functions of ibv_qp_ex. wr_start takes the lock of the send queue, and
// wr_complete or wr_abort releases it. An error in between makes wr_complete fail, and
// nothing is posted.
#include "objects.h"

#include <endian.h>
#include <string.h>

static inline struct qp *of(struct ibv_qp_ex *ex)
{
	return (struct qp *)ex;
}

static void wrong(struct qp *qp, int error)
{
	if (!qp->wr.error)
		qp->wr.error = error;
	qp->wr.slot = NULL;
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct qp *qp = of(ex);

	pthread_spin_lock(&qp->sq.lock);
	qp->wr = (struct building){.tail = qp->sq.tail};
}

static int wr_complete(struct ibv_qp_ex *ex)
{
	struct qp *qp = of(ex);

	if (!qp->wr.error) {
		post_built(qp, qp->wr.tail);
		return 0;
	}
	pthread_spin_unlock(&qp->sq.lock);
	return qp->wr.error;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	pthread_spin_unlock(&of(ex)->sq.lock);
}

// begin begins a request of the operation. It returns its slot, or NULL after an error.
static inline struct stag_send_slot *begin(struct qp *qp, enum stag_wr op)
{
	struct stag_send_slot *s;

	if (qp->wr.error)
		return NULL;
	s = next_slot(qp, qp->wr.tail);
	if (!s) {
		wrong(qp, ENOMEM);
		return NULL;
	}
	*s = (struct stag_send_slot){
		.id = qp->ex.wr_id,
		.op = op,
		.flags = (qp->ex.wr_flags & (IBV_SEND_FENCE | IBV_SEND_SIGNALED | IBV_SEND_SOLICITED)) | qp->always,
	};
	qp->wr.tail++;
	qp->wr.slot = s;
	qp->wr.immediate = qp->wr.atomic = false;
	return s;
}

// begin_remote begins a request that names memory of the peer.
static inline struct stag_send_slot *begin_remote(struct qp *qp, enum stag_wr op, uint32_t rkey, uint64_t remote)
{
	struct stag_send_slot *s = begin(qp, op);

	if (s) {
		s->rkey = rkey;
		s->remote = remote;
	}
	return s;
}

static inline void set_imm(struct qp *qp, struct stag_send_slot *s, __be32 imm)
{
	if (!s)
		return;
	s->invalidate = be32toh(imm);
	qp->wr.immediate = true;
}

static void wr_send(struct ibv_qp_ex *ex)
{
	begin(of(ex), STAG_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	set_imm(of(ex), begin(of(ex), STAG_WR_SEND_IMM), imm);
}

static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct stag_send_slot *s = begin(of(ex), STAG_WR_SEND_INVALIDATE);

	if (s)
		s->invalidate = rkey;
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote)
{
	begin_remote(of(ex), STAG_WR_WRITE, rkey, remote);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote, __be32 imm)
{
	set_imm(of(ex), begin_remote(of(ex), STAG_WR_WRITE_IMM, rkey, remote), imm);
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote)
{
	begin_remote(of(ex), STAG_WR_READ, rkey, remote);
}

static void operate(struct qp *qp, enum stag_wr op, uint32_t rkey, uint64_t remote, uint64_t compare_add,
		    uint64_t swap)
{
	struct stag_send_slot *s = begin_remote(qp, op, rkey, remote);
	struct stag_operands *o;

	if (!s)
		return;
	o = (struct stag_operands *)((char *)(s + 1) + sizeof(struct stag_element));
	o->compare_add = compare_add;
	o->swap = swap;
	qp->wr.atomic = true;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote, uint64_t compare, uint64_t swap)
{
	operate(of(ex), STAG_WR_COMPARE_SWAP, rkey, remote, compare, swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote, uint64_t add)
{
	operate(of(ex), STAG_WR_FETCH_ADD, rkey, remote, add, 0);
}

static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey)
{
	struct stag_send_slot *s = begin(of(ex), STAG_WR_LOCAL_INVALIDATE);

	if (s)
		s->invalidate = rkey;
}

static void wr_bind_mw(struct ibv_qp_ex *ex, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *b)
{
	struct stag_send_slot *s = begin(of(ex), STAG_WR_BIND_MW);

	if (s && fill_bind(s, mw, rkey, b))
		wrong(of(ex), EINVAL);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list)
{
	struct qp *qp = of(ex);
	struct stag_send_slot *s = qp->wr.slot;

	if (!s)
		return;
	if (n > qp->sq.elements || (qp->wr.atomic && n != 1)) {
		wrong(qp, EINVAL);
		return;
	}
	s->elements = n;
	for (size_t i = 0; i < n; i++)
		((struct ibv_sge *)(s + 1))[i] = list[i];
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr, uint32_t length)
{
	struct stag_send_slot *s = of(ex)->wr.slot;

	if (!s)
		return;
	s->elements = 1;
	*(struct stag_element *)(s + 1) = (struct stag_element){addr, length, lkey};
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list)
{
	struct qp *qp = of(ex);
	struct stag_send_slot *s = qp->wr.slot;
	size_t have = 0, most = qp->wr.immediate && qp->inline_len > MAX_INLINE_IMM ? MAX_INLINE_IMM : qp->inline_len;

	if (!s)
		return;
	for (size_t i = 0; i < n; i++) {
		if (list[i].length > most - have || qp->wr.atomic || s->op == STAG_WR_READ) {
			wrong(qp, EINVAL);
			return;
		}
		memcpy((uint8_t *)(s + 1) + have, list[i].addr, list[i].length);
		have += list[i].length;
	}
	s->inline_data = have != 0;
	if (qp->wr.immediate)
		s->elements = have;
	else
		s->length = have;
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf one = {addr, length};

	wr_set_inline_data_list(ex, 1, &one);
}

void qp_ex_ops(struct qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_send_inv = wr_send_inv;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_local_inv = wr_local_inv;
	ex->wr_bind_mw = wr_bind_mw;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
}
