// Tests of libibverbs.so.1 against a transport that is the test itself. Each prints a line
// "ok NAME" or "FAIL NAME"; the exit status is the number of failures.
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "check.h"

const char *directory;
struct ibv_context *c;
struct ibv_pd *pd;
const char *why;
static int failed;

struct ibv_cq *new_cq(int depth, struct ibv_comp_channel *ch)
{
	return ibv_create_cq(c, depth, NULL, ch, 0);
}

struct ibv_qp *new_qp(struct ibv_cq *cq, struct ibv_srq *srq, int depth, int all)
{
	struct ibv_qp_init_attr_ex a = {
		.send_cq = cq, .recv_cq = cq, .srq = srq, .cap = {depth, depth, 2, 2, 300}, .qp_type = IBV_QPT_RC,
		.sq_sig_all = all, .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};

	return ibv_create_qp_ex(c, &a);
}

int post(struct ibv_qp *qp, uint64_t id, unsigned flags)
{
	struct ibv_sge e = {4096, 10, 3};
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &e, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = flags}, *bad;
	int error = ibv_post_send(qp, &wr, &bad);

	return error && bad != &wr ? -1 : error;
}

int receive(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge e = {8192, 20, 4};
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &e, .num_sge = 1}, *bad;

	return ibv_post_recv(qp, &wr, &bad);
}

int receive_shared(struct ibv_srq *srq, uint64_t id)
{
	struct ibv_recv_wr wr = {.wr_id = id}, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

void complete(struct ibv_cq *cq, struct ibv_qp *qp, uint64_t id, uint8_t op)
{
	fake_complete(cq->handle, (struct stag_cell){.id = id, .op = op, .length = 5, .qp = qp->qp_num});
}

void run(const char *name, void (*test)(void))
{
	why = NULL;
	test();
	if (why)
		printf("FAIL %s: %s (errno: %m)\n", name, why);
	else
		printf("ok %s\n", name);
	failed += why != NULL;
}

int main(int argc, char **argv)
{
	struct ibv_device **list;

	alarm(120); // ends a test that hangs
	setvbuf(stdout, NULL, _IOLBF, 0);
	directory = argc > 1 ? argv[1] : "/tmp";
	fake_start(directory);
	list = ibv_get_device_list(NULL);
	if (!list || !list[0] || !(c = ibv_open_device(list[0])) || !(pd = ibv_alloc_pd(c))) {
		perror("open");
		return 1;
	}
	ibv_free_device_list(list);
	test_objects();
	test_queues();
	test_ends();
	return failed;
}
