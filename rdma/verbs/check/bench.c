// The program measures posting and polling in CPU time of the thread, against a transport that is an
// array of memory. Each figure is the best of many rounds.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <infiniband/verbs.h>

#include "fake.h"

enum { ROUNDS = 400, EACH = 1000 };

static struct ibv_context *c;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static uint64_t qh, ch;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

// best calls prepare and then step EACH times, and prints the least time of a call of step.
static void best(const char *what, void (*prepare)(void), void (*step)(void))
{
	double least = 1e9;

	for (int r = 0; r < ROUNDS; r++) {
		double from, took;

		if (prepare)
			prepare();
		from = now();
		for (int i = 0; i < EACH; i++)
			step();
		took = (now() - from) / EACH;
		if (took < least)
			least = took;
	}
	printf("%-44s %6.1f ns\n", what, least);
}

static struct ibv_sge sge = {.addr = 4096, .length = 64, .lkey = 1};

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void post(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	if (ibv_post_send(qp, wr, &bad))
		fail("post_send");
}

static void post_one(void)
{
	struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};

	post(&wr);
}

static void post_inline(void)
{
	static char data[64];
	struct ibv_sge one = {(uintptr_t)data, sizeof data, 0};
	struct ibv_send_wr wr = {.sg_list = &one, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE};

	post(&wr);
}

static void post_ex(void)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);

	x->wr_id = 7;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_start(x);
	ibv_wr_rdma_write(x, 1, 4096);
	ibv_wr_set_sge(x, 1, 4096, 64);
	if (ibv_wr_complete(x))
		fail("wr_complete");
}

static void post_recv(void)
{
	struct ibv_recv_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1}, *bad;

	if (ibv_post_recv(qp, &wr, &bad))
		fail("post_recv");
}

// all_silent says that the transport has completed everything without completions.
static void all_silent(void)
{
	struct stag_queue_ring *s = fake_send_ring(qh);

	s->done = (uint64_t)s->tail << 32 | s->tail;
}

static void complete(uint8_t op)
{
	for (int i = 0; i < EACH; i++)
		fake_complete(ch, (struct stag_cell){.id = i, .op = op, .length = 64, .qp = qp->qp_num});
}

static void receives(void)
{
	complete(STAG_WC_RECV);
}

static void nothing(void) {}

static void poll_empty(void)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(cq, 1, &wc))
		fail("poll");
}

static void poll_one(void)
{
	struct ibv_wc wc;

	if (ibv_poll_cq(cq, 1, &wc) != 1)
		fail("poll");
}

static void drain(void)
{
	struct ibv_wc wc[64];

	while (ibv_poll_cq(cq, 64, wc) > 0) {
	}
}

// returned polls a completion for each receive that post_recv has posted.
static void returned(void)
{
	struct stag_queue_ring *r = fake_recv_ring(qh);

	while (r->done != r->tail) {
		fake_complete(ch, (struct stag_cell){.op = STAG_WC_RECV, .qp = qp->qp_num});
		r->done++;
		poll_one();
	}
}

int main(int argc, char **argv)
{
	struct ibv_device **list;
	struct ibv_qp_init_attr_ex a = {
		.cap = {2 * EACH, 2 * EACH, 1, 1, 64}, .qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};

	fake_start(argc > 1 ? argv[1] : "/tmp");
	list = ibv_get_device_list(NULL);
	if (!list || !list[0] || !(c = ibv_open_device(list[0])) || !(cq = ibv_create_cq(c, 4096, NULL, NULL, 0)))
		fail("open");
	a.pd = ibv_alloc_pd(c);
	a.send_cq = a.recv_cq = cq;
	qp = ibv_create_qp_ex(c, &a);
	if (!qp)
		fail("create_qp_ex");
	qh = qp->handle;
	ch = cq->handle;

	best("the loop of this program", NULL, nothing);
	best("ibv_poll_cq, empty", NULL, poll_empty);
	best("ibv_poll_cq, one completion", receives, poll_one);
	drain();
	best("ibv_post_send, one Send of one element", all_silent, post_one);
	best("ibv_post_send, 64 octets inline", all_silent, post_inline);
	best("wr_start, wr_rdma_write, set_sge, complete", all_silent, post_ex);
	best("ibv_post_recv, one element", returned, post_recv);
	fake_stop();
	return 0;
}
