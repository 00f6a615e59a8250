// Rings: places, slots, bells and completions.
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static void places_of_sends(void)
{
	struct ibv_cq *cq = new_cq(8, NULL);
	struct ibv_qp *qp = new_qp(cq, NULL, 3, 0);
	struct stag_queue_ring *r = fake_send_ring(qp->handle);
	struct ibv_wc wc;

	WANT(!post(qp, 1, IBV_SEND_SIGNALED) && !post(qp, 2, IBV_SEND_SIGNALED) && !post(qp, 3, IBV_SEND_SIGNALED));
	WANT(post(qp, 4, 0) == ENOMEM && r->tail == 3);
	r->done = 1; // completed, but the completion has not been polled
	complete(cq, qp, 1, STAG_WC_SEND);
	WANT(post(qp, 4, 0) == ENOMEM);
	WANT(ibv_poll_cq(cq, 1, &wc) == 1 && wc.wr_id == 1 && wc.opcode == IBV_WC_SEND);
	WANT(!post(qp, 4, 0) && post(qp, 5, 0) == ENOMEM);
	complete(cq, qp, 2, STAG_WC_SEND);
	complete(cq, qp, 3, STAG_WC_SEND);
	r->done = 1ull << 32 | 4; // the last one is silent
	WANT(!post(qp, 5, 0) && post(qp, 6, 0) == ENOMEM);
	WANT(ibv_poll_cq(cq, 1, &wc) == 1 && ibv_poll_cq(cq, 1, &wc) == 1);
	WANT(!post(qp, 6, 0) && !post(qp, 7, 0) && post(qp, 8, 0) == ENOMEM && r->tail == 7);
	WANT(fake_send_slot(qp->handle, 6)->id == 7);
	WANT(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

static void places_of_receives(void)
{
	struct ibv_cq *cq = new_cq(8, NULL);
	struct ibv_qp *qp = new_qp(cq, NULL, 2, 0);
	struct stag_queue_ring *r = fake_recv_ring(qp->handle);
	struct ibv_wc wc[2];

	WANT(!receive(qp, 1) && !receive(qp, 2) && receive(qp, 3) == ENOMEM && r->tail == 2);
	r->done = 2;
	WANT(receive(qp, 3) == ENOMEM);
	complete(cq, qp, 1, STAG_WC_RECV);
	WANT(ibv_poll_cq(cq, 2, wc) == 1 && wc[0].opcode == IBV_WC_RECV && wc[0].byte_len == 5);
	WANT(!receive(qp, 3) && receive(qp, 4) == ENOMEM);
	WANT(fake_recv_slot(r, 2)->id == 3 && fake_recv_slot(r, 2)->elements == 1);
	WANT(((struct stag_element *)(fake_recv_slot(r, 2) + 1))->addr == 8192);
	WANT(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

// same compares two slots, and len octets of their bodies.
static bool same(const struct stag_send_slot *a, const struct stag_send_slot *b, size_t len)
{
	return !memcmp(a, b, sizeof *a + len);
}

// Each operation leaves the same slot by ibv_post_send and by the functions of ibv_qp_ex.
static void slots(void)
{
	struct ibv_cq *cq = new_cq(64, NULL);
	struct ibv_qp *qp = new_qp(cq, NULL, 64, 0);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);
	static char data[256] = "data";
	struct ibv_sge e = {4096, 10, 3}, in = {(uintptr_t)data, sizeof data - 1, 0};
	struct ibv_send_wr *bad, wr = {.wr_id = 9, .sg_list = &e, .num_sge = 1, .send_flags = IBV_SEND_FENCE | IBV_SEND_SOLICITED};
	uint32_t pos = 0;
	struct stag_send_slot *s;

	WANT(x);
	x->wr_id = 9;
	x->wr_flags = wr.send_flags;
#define BOTH(call, len)                                                                                  \
	WANT(!ibv_post_send(qp, &wr, &bad));                                                             \
	ibv_wr_start(x);                                                                                 \
	call;                                                                                            \
	if (wr.send_flags & IBV_SEND_INLINE)                                                             \
		ibv_wr_set_inline_data(x, data, sizeof data - 1);                                        \
	else if (wr.num_sge)                                                                             \
		ibv_wr_set_sge(x, e.lkey, e.addr, e.length);                                             \
	WANT(!ibv_wr_complete(x));                                                                       \
	s = fake_send_slot(qp->handle, pos);                                                             \
	WANT(s->id == 9 && s->op == wr.opcode && s->flags == (STAG_SEND_FENCE | STAG_SEND_SOLICITED));   \
	WANT(same(s, fake_send_slot(qp->handle, pos + 1), len));                                         \
	pos += 2

	wr.opcode = IBV_WR_SEND;
	BOTH(ibv_wr_send(x), 16);
	WANT(s->elements == 1 && s->invalidate == 0);
	wr.imm_data = htonl(77);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	BOTH(ibv_wr_send_imm(x, htonl(77)), 16);
	WANT(s->invalidate == 77 && s->length == 0 && s->elements == 1);
	wr.wr.rdma.remote_addr = 5000;
	wr.wr.rdma.rkey = 6;
	wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	BOTH(ibv_wr_rdma_write_imm(x, 6, 5000, htonl(77)), 16);
	wr.opcode = IBV_WR_RDMA_WRITE;
	BOTH(ibv_wr_rdma_write(x, 6, 5000), 16);
	WANT(s->remote == 5000 && s->rkey == 6);
	wr.opcode = IBV_WR_RDMA_READ;
	BOTH(ibv_wr_rdma_read(x, 6, 5000), 16);
	memset(&wr.wr, 0, sizeof wr.wr);
	wr.wr.atomic.remote_addr = 5000;
	wr.wr.atomic.rkey = 6;
	wr.wr.atomic.compare_add = 11;
	wr.wr.atomic.swap = 12;
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	BOTH(ibv_wr_atomic_cmp_swp(x, 6, 5000, 11, 12), 32);
	WANT(((uint64_t *)(s + 1))[2] == 11 && ((uint64_t *)(s + 1))[3] == 12);
	wr.wr.atomic.swap = 0;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	BOTH(ibv_wr_atomic_fetch_add(x, 6, 5000, 11), 24);
	memset(&wr.wr, 0, sizeof wr.wr);
	wr.invalidate_rkey = 88;
	wr.opcode = IBV_WR_SEND_WITH_INV;
	BOTH(ibv_wr_send_inv(x, 88), 16);
	WANT(s->invalidate == 88);
	wr.num_sge = 0;
	wr.opcode = IBV_WR_LOCAL_INV;
	BOTH(ibv_wr_local_inv(x, 88), 0);

	// inline
	wr.num_sge = 1;
	wr.sg_list = &in;
	wr.send_flags |= IBV_SEND_INLINE;
	wr.opcode = IBV_WR_SEND;
	BOTH(ibv_wr_send(x), sizeof data - 1);
	WANT(s->inline_data == 1 && s->length == 255 && s->elements == 0 && !strcmp((char *)(s + 1), "data"));
	wr.imm_data = htonl(78);
	wr.opcode = IBV_WR_SEND_WITH_IMM;
	BOTH(ibv_wr_send_imm(x, htonl(78)), sizeof data - 1);
	WANT(s->inline_data == 1 && s->elements == 255 && s->length == 0 && s->invalidate == 78);
	in.length++; // one octet too much beside Immediate Data
	WANT(ibv_post_send(qp, &wr, &bad) == EINVAL && bad == &wr);
	wr.opcode = IBV_WR_SEND;
	in.length = 301;
	WANT(ibv_post_send(qp, &wr, &bad) == EINVAL);
	WANT(fake_send_ring(qp->handle)->tail == pos);
#undef BOTH
	WANT(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

// An error between wr_start and wr_complete posts nothing, and so does wr_abort.
static void nothing_built(void)
{
	struct ibv_cq *cq = new_cq(8, NULL);
	struct ibv_qp *qp = new_qp(cq, NULL, 2, 1);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);
	char data[301] = "";

	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_set_inline_data(x, data, sizeof data);
	ibv_wr_send(x);
	WANT(ibv_wr_complete(x) == EINVAL);
	ibv_wr_start(x);
	for (int i = 0; i < 3; i++) {
		ibv_wr_send(x);
		ibv_wr_set_sge(x, 1, 0, 0);
	}
	WANT(ibv_wr_complete(x) == ENOMEM);
	ibv_wr_start(x);
	ibv_wr_send(x);
	ibv_wr_abort(x);
	WANT(fake_send_ring(qp->handle)->tail == 0);
	WANT(!post(qp, 1, 0) && fake_send_slot(qp->handle, 0)->flags == STAG_SEND_SIGNALED); // sq_sig_all
	WANT(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

static void bell(void)
{
	struct ibv_cq *cq = new_cq(8, NULL);
	struct ibv_qp *qp = new_qp(cq, NULL, 8, 0);
	struct stag_bell *b = fake_bell();
	uint64_t bit = 1ull << qp->handle % 64, *word = &b->bits[qp->handle / 64];

	*word = 0;
	fake_woken();
	WANT(!post(qp, 1, 0) && *word == bit && fake_woken() == 0);
	b->asleep = 1;
	WANT(!post(qp, 2, 0) && fake_woken() == 1);
	b->asleep = 0;
	*word = 0;
	WANT(!receive(qp, 1) && *word == 0);
	fake_recv_ring(qp->handle)->waits = 1; // a message waits for a receive
	WANT(!receive(qp, 2) && *word == bit);
	WANT(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

static void completions(void)
{
	struct ibv_cq *cq = new_cq(4, NULL);
	struct ibv_qp *qp = new_qp(cq, NULL, 8, 0);
	struct stag_cq_ring *r = (struct stag_cq_ring *)fake_object(cq->handle)->memory;
	struct stag_cell e = {.id = 5, .op = STAG_WC_RECV, .imm = 2, .invalidated = 77, .length = 9, .qp = qp->qp_num};
	struct ibv_wc wc[4];

	WANT(cq->cqe == 4 && ibv_poll_cq(cq, 4, wc) == 0);
	fake_complete(cq->handle, e);
	e.imm = 1;
	e.op = STAG_WC_RECV_IMM;
	fake_complete(cq->handle, e);
	e.imm = 0;
	e.op = STAG_WC_RECV;
	fake_complete(cq->handle, e);
	e.status = IBV_WC_WR_FLUSH_ERR;
	e.invalidated = 0;
	fake_complete(cq->handle, e);
	WANT(ibv_poll_cq(cq, 3, wc) == 3 && r->head == 3);
	WANT(wc[0].opcode == IBV_WC_RECV && wc[0].imm_data == htonl(77) && wc[0].byte_len == 9 && wc[0].wc_flags == IBV_WC_WITH_IMM);
	WANT(wc[1].opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc[1].imm_data == htonl(77) && wc[1].byte_len == 0);
	WANT(wc[2].wc_flags == IBV_WC_WITH_INV && wc[2].invalidated_rkey == 77 && wc[2].qp_num == qp->qp_num);
	WANT(ibv_poll_cq(cq, 4, wc) == 1 && wc[0].status == IBV_WC_WR_FLUSH_ERR && wc[0].wr_id == 5);
	for (int i = 0; i < 100; i++) { // round and round
		complete(cq, qp, i, STAG_WC_RECV);
		WANT(ibv_poll_cq(cq, 4, wc) == 1 && wc[0].wr_id == (unsigned)i && ibv_poll_cq(cq, 4, wc) == 0);
	}
	WANT(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

static void extended_cq(void)
{
	struct ibv_cq_init_attr_ex a = {.cqe = 8, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM};
	struct ibv_cq_ex *x = ibv_create_cq_ex(c, &a);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(x);
	struct ibv_qp *qp = new_qp(cq, NULL, 8, 0);
	struct ibv_poll_cq_attr none = {0};

	WANT(x && ibv_start_poll(x, &none) == ENOENT);
	fake_complete(cq->handle, (struct stag_cell){.id = 1, .op = STAG_WC_RECV, .imm = 2, .invalidated = 77, .length = 9, .qp = qp->qp_num});
	complete(cq, qp, 2, STAG_WC_SEND);
	WANT(!ibv_start_poll(x, &none) && x->wr_id == 1 && x->status == IBV_WC_SUCCESS);
	WANT(ibv_wc_read_opcode(x) == IBV_WC_RECV && ibv_wc_read_byte_len(x) == 9 && ibv_wc_read_imm_data(x) == htonl(77));
	WANT(!ibv_next_poll(x) && x->wr_id == 2 && ibv_wc_read_opcode(x) == IBV_WC_SEND && ibv_wc_read_qp_num(x) == qp->qp_num);
	WANT(ibv_next_poll(x) == ENOENT);
	ibv_end_poll(x);
	WANT(ibv_start_poll(x, &none) == ENOENT);
	a.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	WANT(!ibv_create_cq_ex(c, &a) && errno == EOPNOTSUPP);
	WANT(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

static void resize(void)
{
	struct ibv_cq *cq = new_cq(4, NULL);
	struct ibv_qp *qp = new_qp(cq, NULL, 8, 0);
	struct stag_cq_ring *r = (struct stag_cq_ring *)fake_object(cq->handle)->memory;
	struct ibv_wc wc[16];

	for (int i = 0; i < 3; i++)
		complete(cq, qp, i, STAG_WC_SEND);
	WANT(ibv_poll_cq(cq, 1, wc) == 1 && wc[0].wr_id == 0);
	WANT(!ibv_resize_cq(cq, 3) && cq->cqe == 4); // it is large enough
	WANT(!ibv_resize_cq(cq, 9) && cq->cqe == 16);
	for (int i = 3; i < 12; i++)
		complete(cq, qp, i, STAG_WC_SEND);
	WANT(ibv_poll_cq(cq, 16, wc) == 11 && r->head == 12);
	for (int i = 0; i < 11; i++)
		WANT(wc[i].wr_id == (unsigned)i + 1);
	for (int i = 0; i < 40; i++) {
		complete(cq, qp, i, STAG_WC_SEND);
		WANT(ibv_poll_cq(cq, 16, wc) == 1 && wc[0].wr_id == (unsigned)i);
	}
	WANT(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

// polled is the CQ that another thread polls once, and what it got.
static struct {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	pthread_t thread;
	int got; // -1: the poll has not ended
} polled;

static void *poll_once(void *unused)
{
	struct ibv_wc wc;

	__atomic_store_n(&polled.got, ibv_poll_cq(polled.cq, 1, &wc), __ATOMIC_RELEASE);
	return unused;
}

// during_resize adds a completion to the new ring, and gives another thread 50 ms to poll.
static void during_resize(uint64_t cq)
{
	(void)cq;
	complete(polled.cq, polled.qp, 7, STAG_WC_SEND);
	pthread_create(&polled.thread, NULL, poll_once, NULL);
	for (int i = 0; i < 50 && __atomic_load_n(&polled.got, __ATOMIC_ACQUIRE) < 0; i++)
		usleep(1000);
}

// A poll during a resize finds a completion that is in the new ring only. The program may have
// got its event.
static void poll_during_resize(void)
{
	polled.cq = new_cq(4, NULL);
	polled.qp = new_qp(polled.cq, NULL, 8, 0);
	polled.got = -1;
	fake_resized = during_resize;
	WANT(!ibv_resize_cq(polled.cq, 9));
	fake_resized = NULL;
	pthread_join(polled.thread, NULL);
	WANT(polled.got == 1);
	WANT(!ibv_destroy_qp(polled.qp) && !ibv_destroy_cq(polled.cq));
}

// Completions of a destroyed QP are dropped, also if another QP gets its number.
static void destroyed_qp(void)
{
	struct ibv_cq *cq = new_cq(8, NULL);
	struct ibv_qp *old = new_qp(cq, NULL, 8, 0), *stays = new_qp(cq, NULL, 8, 0), *new;
	uint32_t number = old->qp_num;
	struct ibv_wc wc[8];

	complete(cq, old, 1, STAG_WC_SEND);
	complete(cq, stays, 2, STAG_WC_SEND);
	complete(cq, old, 3, STAG_WC_SEND);
	WANT(!ibv_destroy_qp(old));
	new = new_qp(cq, NULL, 8, 0);
	WANT(new->qp_num == number);
	complete(cq, new, 4, STAG_WC_SEND);
	WANT(ibv_poll_cq(cq, 8, wc) == 2 && wc[0].wr_id == 2 && wc[1].wr_id == 4 && ibv_poll_cq(cq, 8, wc) == 0);
	WANT(!ibv_destroy_qp(new) && !ibv_destroy_qp(stays) && !ibv_destroy_cq(cq));
}

static void shared_queue(void)
{
	struct ibv_srq_init_attr a = {.attr = {2, 2, 0}};
	struct ibv_srq *srq = ibv_create_srq(pd, &a);
	struct ibv_cq *cq = new_cq(8, NULL);
	struct ibv_qp *qp = new_qp(cq, srq, 4, 0);
	struct stag_queue_ring *r = (struct stag_queue_ring *)fake_object(srq->handle)->memory;
	struct ibv_recv_wr wr = {0}, *bad;
	struct ibv_wc wc;

	WANT(ibv_post_recv(qp, &wr, &bad) == EINVAL);
	WANT(!receive_shared(srq, 1) && !receive_shared(srq, 2) && receive_shared(srq, 3) == ENOMEM && r->tail == 2);
	fake_recv_slot(r, 0)->free = 2; // the transport has copied the slot
	WANT(receive_shared(srq, 3) == ENOMEM);
	complete(cq, qp, 1, STAG_WC_RECV);
	WANT(ibv_poll_cq(cq, 1, &wc) == 1 && !receive_shared(srq, 3) && receive_shared(srq, 4) == ENOMEM);
	WANT(fake_recv_slot(r, 2)->id == 3 && r->tail == 3);
	// The place of a completion that is dropped with its QP is free, too.
	fake_recv_slot(r, 1)->free = 3;
	complete(cq, qp, 2, STAG_WC_RECV);
	WANT(!ibv_destroy_qp(qp) && ibv_poll_cq(cq, 1, &wc) == 0);
	WANT(!receive_shared(srq, 4) && receive_shared(srq, 5) == ENOMEM);
	WANT(!ibv_destroy_srq(srq) && !ibv_destroy_cq(cq));
}

void test_queues(void)
{
	RUN(places_of_sends);
	RUN(places_of_receives);
	RUN(slots);
	RUN(nothing_built);
	RUN(bell);
	RUN(completions);
	RUN(extended_cq);
	RUN(resize);
	RUN(poll_during_resize);
	RUN(destroyed_qp);
	RUN(shared_queue);
}
