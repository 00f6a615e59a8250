// When the daemon has ended, nobody completes what was posted. The library then returns the
// requests itself, as flushed.
#include "objects.h"

#include <string.h>

// fill makes a completion of the oldest request of the queue.
static void fill(struct qp *qp, struct queue *q, enum ibv_wc_opcode op, struct ibv_wc *wc)
{
	memset(wc, 0, sizeof *wc);
	memcpy(&wc->wr_id, q->slots + (size_t)(q->flushed & q->mask) * q->slot, sizeof wc->wr_id);
	wc->status = IBV_WC_WR_FLUSH_ERR;
	wc->opcode = op;
	wc->qp_num = qp->ex.qp_base.qp_num;
	q->flushed++;
	__atomic_store_n(&q->returned, q->returned + 1, __ATOMIC_RELEASE);
}

// drain makes up to n completions of the queue.
static int drain(struct qp *qp, struct queue *q, enum ibv_wc_opcode op, int n, struct ibv_wc *wc)
{
	uint32_t head, tail;
	int got = 0;

	if (!q->ring)
		return 0;
	pthread_spin_lock(&q->lock);
	head = __atomic_load_n(&q->ring->done, __ATOMIC_ACQUIRE); // the low half
	tail = q->tail;
	if ((int32_t)(q->flushed - head) < 0)
		q->flushed = head;
	while (got < n && q->flushed != tail)
		fill(qp, q, op, &wc[got++]);
	pthread_spin_unlock(&q->lock);
	return got;
}

int flush(struct cq *cq, int n, struct ibv_wc *wc)
{
	struct ibv_cq *ibv = ibv_cq_ex_to_cq(&cq->ex);
	int got = 0;

	pthread_mutex_lock(&stag_qps_lock);
	for (struct qp *qp = stag_all_qps; qp && got < n; qp = qp->older) {
		const struct ibv_qp *b = &qp->ex.qp_base;

		if (qp->link != cq->link)
			continue;
		if (b->send_cq == ibv)
			got += drain(qp, &qp->sq, IBV_WC_SEND, n - got, wc + got);
		if (b->recv_cq == ibv)
			got += drain(qp, &qp->rq, IBV_WC_RECV, n - got, wc + got);
	}
	pthread_mutex_unlock(&stag_qps_lock);
	return got;
}
