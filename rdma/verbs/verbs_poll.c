// Polling of CQs. Nothing here allocates, and a poll of an empty CQ takes no lock.
#include "objects.h"

#include <endian.h>
#include <sched.h>
#include <string.h>

struct qp **stag_qps[(1 << QP_BITS) / QP_PAGE];

// The first polls in a row that find nothing give the processor away. Much later ones look
// whether the daemon still lives.
enum { YIELD = 64, LOOK = 1 << 16 };

// place gives the place in the work queue back that the completion's request had.
static inline void place(struct qp *qp, uint8_t op)
{
	if (op != STAG_WC_RECV && op != STAG_WC_RECV_IMM)
		__atomic_store_n(&qp->sq.returned, qp->sq.returned + 1, __ATOMIC_RELEASE);
	else if (!qp->srq)
		__atomic_store_n(&qp->rq.returned, qp->rq.returned + 1, __ATOMIC_RELEASE);
	else
		__atomic_fetch_add(&qp->srq->returned, 1, __ATOMIC_RELEASE);
}

static inline void convert(const struct stag_cell *e, struct ibv_wc *wc)
{
	wc->wr_id = e->id;
	wc->status = e->status;
	wc->opcode = e->op;
	wc->vendor_err = 0;
	wc->byte_len = e->length;
	wc->imm_data = 0;
	wc->qp_num = e->qp;
	wc->src_qp = 0;
	wc->wc_flags = 0;
	wc->pkey_index = 0;
	wc->slid = 0;
	wc->sl = 0;
	wc->dlid_path_bits = 0;
	if (e->imm) { // 1: 64 bits of RFC 7306 without a length, 2: 32 bits
		wc->imm_data = htobe32(e->invalidated);
		wc->wc_flags = IBV_WC_WITH_IMM;
		if (e->imm == 1)
			wc->byte_len = 0;
	} else if (e->invalidated) {
		wc->invalidated_rkey = e->invalidated;
		wc->wc_flags = IBV_WC_WITH_INV;
	}
}

// resume moves to the ring of the last resize if the completion at head is there. The old
// ring gets no more completions, and positions continue in the new one.
static bool resume(struct cq *cq)
{
	struct cells *n = cq->next;

	if (!n || __atomic_load_n(&n->cell[cq->head & n->mask].seq, __ATOMIC_ACQUIRE) != cq->head + 1)
		return false;
	__atomic_store_n(&cq->now, n, __ATOMIC_RELEASE);
	__atomic_store_n(&cq->next, NULL, __ATOMIC_RELAXED);
	return true;
}

// passed stores that the completion at head has been read.
static inline void passed(struct cq *cq)
{
	__atomic_store_n(&cq->head, cq->head + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&cq->ring->head, cq->head, __ATOMIC_RELEASE);
}

// take moves the oldest completion to wc. It returns false if there is none. A completion of
// a QP that has been destroyed is dropped. The place in the work queue is given back last:
// otherwise a request that is posted at once could overrun a CQ that has just enough room.
static inline bool take(struct cq *cq, struct ibv_wc *wc)
{
	for (;;) {
		const struct cells *now = cq->now;
		const struct stag_cell *e = &now->cell[cq->head & now->mask];
		struct qp *qp;
		uint8_t op;

		if (__atomic_load_n(&e->seq, __ATOMIC_ACQUIRE) != cq->head + 1) {
			if (__builtin_expect(!cq->next, 1) || !resume(cq))
				return false;
			continue;
		}
		qp = qp_of(e->qp);
		if (__builtin_expect(!qp, 0)) {
			passed(cq);
			continue;
		}
		convert(e, wc);
		op = e->op;
		passed(cq);
		place(qp, op);
		return true;
	}
}

// idle is what a poll does that finds nothing. It returns how many completions it has made.
static __attribute__((noinline)) int idle(struct cq *cq, int n, struct ibv_wc *wc)
{
	uint32_t gone = __atomic_load_n(&cq->link->bell->gone, __ATOMIC_ACQUIRE);

	if (gone == STAG_FORKED)
		return -1;
	if (gone)
		return flush(cq, n, wc);
	if (cq->idle % LOOK == 0)
		stag_look(cq->link);
	sched_yield();
	return 0;
}

// empty reports that there is no completion. A wrong answer is the same as that of a poll a
// moment earlier.
static inline bool empty(const struct cq *cq)
{
	uint64_t head = __atomic_load_n(&cq->head, __ATOMIC_RELAXED);
	const struct cells *c = __atomic_load_n(&cq->now, __ATOMIC_ACQUIRE);

	return __atomic_load_n(&c->cell[head & c->mask].seq, __ATOMIC_RELAXED) != head + 1 &&
	       __builtin_expect(!__atomic_load_n(&cq->next, __ATOMIC_RELAXED), 1);
}

// poll_some polls a CQ that seems to have completions.
static __attribute__((noinline)) int poll_some(struct cq *cq, int n, struct ibv_wc *wc)
{
	int got = 0;

	pthread_spin_lock(&cq->lock);
	while (got < n && take(cq, &wc[got]))
		got++;
	pthread_spin_unlock(&cq->lock);
	cq->idle = 0;
	return got;
}

int poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct cq *cq = to_cq(ibv);

	if (!empty(cq))
		return poll_some(cq, n, wc);
	if (__builtin_expect(++cq->idle % YIELD, 1))
		return 0;
	return idle(cq, n, wc);
}

// The fence is between the store to armed and the next poll, whose look at an empty CQ is a
// relaxed load. Without it, a completion that comes between the two could tell nobody.
int notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	uint32_t *armed = &to_cq(ibv)->ring->armed, not = 0;

	if (solicited_only)
		__atomic_compare_exchange_n(armed, &not, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	else
		__atomic_store_n(armed, 2, __ATOMIC_SEQ_CST);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return 0;
}

// cq_forget drops the completions of a QP that is being destroyed. Its number may soon
// belong to another QP, so that their cells get number 0, which no QP has. The places of a
// shared receive queue are given back.
void cq_forget(struct cq *cq, struct qp *qp)
{
	pthread_spin_lock(&cq->lock);
	for (struct cells *c = cq->now; c; c = c == cq->now ? cq->next : NULL)
		for (uint64_t pos = cq->head;; pos++) {
			struct stag_cell *e = &c->cell[pos & c->mask];

			if (pos - cq->head > c->mask || __atomic_load_n(&e->seq, __ATOMIC_ACQUIRE) != pos + 1)
				break;
			if (e->qp != qp->ex.qp_base.qp_num)
				continue;
			if (qp->srq)
				place(qp, e->op);
			e->qp = 0;
		}
	pthread_spin_unlock(&cq->lock);
}

// The functions of ibv_cq_ex.

static inline void enter(struct cq *cq)
{
	if (!cq->single)
		pthread_spin_lock(&cq->lock);
}

static inline void leave(struct cq *cq)
{
	if (!cq->single)
		pthread_spin_unlock(&cq->lock);
}

static inline struct cq *from_ex(struct ibv_cq_ex *ex)
{
	return (struct cq *)ex;
}

static inline int present(struct cq *cq)
{
	cq->ex.wr_id = cq->wc.wr_id;
	cq->ex.status = cq->wc.status;
	return 0;
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	struct cq *cq = from_ex(ex);
	int r;

	if (attr->comp_mask)
		return EINVAL;
	if (!empty(cq)) {
		enter(cq);
		if (take(cq, &cq->wc))
			return present(cq);
		leave(cq);
	}
	if (++cq->idle % YIELD)
		return ENOENT;
	r = idle(cq, 1, &cq->wc);
	if (r <= 0)
		return r ? EIO : ENOENT;
	enter(cq);
	return present(cq);
}

static int next_poll(struct ibv_cq_ex *ex)
{
	struct cq *cq = from_ex(ex);

	return take(cq, &cq->wc) ? present(cq) : ENOENT;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	leave(from_ex(ex));
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex) { return from_ex(ex)->wc.opcode; }
static uint32_t read_vendor_err(struct ibv_cq_ex *ex) { return from_ex(ex)->wc.vendor_err; }
static uint32_t read_byte_len(struct ibv_cq_ex *ex) { return from_ex(ex)->wc.byte_len; }
static __be32 read_imm_data(struct ibv_cq_ex *ex) { return from_ex(ex)->wc.imm_data; }
static uint32_t read_qp_num(struct ibv_cq_ex *ex) { return from_ex(ex)->wc.qp_num; }
static uint32_t read_src_qp(struct ibv_cq_ex *ex) { return from_ex(ex)->wc.src_qp; }
static unsigned int read_wc_flags(struct ibv_cq_ex *ex) { return from_ex(ex)->wc.wc_flags; }
static uint32_t read_slid(struct ibv_cq_ex *ex) { return from_ex(ex)->wc.slid; }
static uint8_t read_sl(struct ibv_cq_ex *ex) { return from_ex(ex)->wc.sl; }
static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex) { return from_ex(ex)->wc.dlid_path_bits; }

void cq_ex_ops(struct cq *cq, uint64_t wc_flags)
{
	struct ibv_cq_ex *ex = &cq->ex;

	ex->start_poll = start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_wc_flags = read_wc_flags;
	if (wc_flags & IBV_WC_EX_WITH_BYTE_LEN)
		ex->read_byte_len = read_byte_len;
	if (wc_flags & IBV_WC_EX_WITH_IMM)
		ex->read_imm_data = read_imm_data;
	if (wc_flags & IBV_WC_EX_WITH_QP_NUM)
		ex->read_qp_num = read_qp_num;
	if (wc_flags & IBV_WC_EX_WITH_SRC_QP)
		ex->read_src_qp = read_src_qp;
	if (wc_flags & IBV_WC_EX_WITH_SLID)
		ex->read_slid = read_slid;
	if (wc_flags & IBV_WC_EX_WITH_SL)
		ex->read_sl = read_sl;
	if (wc_flags & IBV_WC_EX_WITH_DLID_PATH_BITS)
		ex->read_dlid_path_bits = read_dlid_path_bits;
}
