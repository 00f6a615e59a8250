// access tests qp_access_flags. "access -s ADDR FLAGS" serves one connection: it allows FLAGS through its QP, and
// gives every right to its memory. "access -c ADDR OP" tries a write, a read or an add there, and prints the status.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

struct shown {
	uint64_t addr;
	uint32_t rkey;
};

static struct rdma_cm_id *endpoint(const char *addr, int flags)
{
	struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr qp = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	struct rdma_cm_id *id;

	if (rdma_getaddrinfo(addr, "7475", &hints, &found) || rdma_create_ep(&id, found, NULL, &qp))
		die("rdma_create_ep");
	rdma_freeaddrinfo(found);
	return id;
}

static struct ibv_mr *region(struct rdma_cm_id *id, uint64_t *word)
{
	struct ibv_mr *mr = ibv_reg_mr(id->pd, word, sizeof *word,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);

	if (!mr)
		die("ibv_reg_mr");
	return mr;
}

static void serve(const char *addr, int flags)
{
	static uint64_t word = 5;
	struct rdma_cm_id *listener = endpoint(addr, RAI_PASSIVE), *id;
	struct ibv_qp_attr attr = {.qp_access_flags = flags};
	struct shown shown = {.addr = (uintptr_t)&word};
	struct rdma_conn_param param = {.private_data = &shown, .private_data_len = sizeof shown, .responder_resources = 1, .initiator_depth = 1};
	struct rdma_cm_event *event;

	if (rdma_listen(listener, 1) || rdma_get_request(listener, &id))
		die("rdma_get_request");
	shown.rkey = region(id, &word)->rkey;
	if (ibv_modify_qp(id->qp, &attr, IBV_QP_ACCESS_FLAGS))
		die("ibv_modify_qp");
	if (rdma_accept(id, &param))
		die("rdma_accept");
	if (rdma_get_cm_event(id->channel, &event) || event->event != RDMA_CM_EVENT_DISCONNECTED)
		die("rdma_get_cm_event");
	printf("word %llu\n", (unsigned long long)word);
}

static void try(const char *addr, const char *op)
{
	static uint64_t word = 7;
	struct rdma_cm_id *id = endpoint(addr, 0);
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1};
	struct ibv_mr *mr = region(id, &word);
	struct ibv_sge sge = {(uintptr_t)&word, sizeof word, mr->lkey};
	struct ibv_send_wr wr[2] = {{.sg_list = &sge, .num_sge = 1}}, *bad;
	struct ibv_wc wc;
	struct shown shown;
	int n;

	if (rdma_connect(id, &param))
		die("rdma_connect");
	memcpy(&shown, id->event->param.conn.private_data, sizeof shown);
	wr[0].opcode = !strcmp(op, "write") ? IBV_WR_RDMA_WRITE : !strcmp(op, "read") ? IBV_WR_RDMA_READ : IBV_WR_ATOMIC_FETCH_AND_ADD;
	if (wr[0].opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr[0].wr.atomic.remote_addr = shown.addr;
		wr[0].wr.atomic.rkey = shown.rkey;
		wr[0].wr.atomic.compare_add = 2;
	} else {
		wr[0].wr.rdma.remote_addr = shown.addr;
		wr[0].wr.rdma.rkey = shown.rkey;
	}
	wr[1] = (struct ibv_send_wr){.opcode = IBV_WR_RDMA_READ}; // a Write completes before the peer refuses it
	wr[1].wr.rdma.rkey = shown.rkey;
	wr[1].wr.rdma.remote_addr = shown.addr;
	if (!strcmp(op, "write"))
		wr[0].next = &wr[1];
	if (ibv_post_send(id->qp, wr, &bad))
		die("ibv_post_send");
	for (int i = 0; i < (wr[0].next ? 2 : 1); i++) {
		while (!(n = ibv_poll_cq(id->send_cq, 1, &wc)))
			;
		if (n < 0)
			die("ibv_poll_cq");
		printf("%s\n", ibv_wc_status_str(wc.status));
	}
	rdma_disconnect(id);
}

int main(int argc, char **argv)
{
	alarm(20);
	if (argc == 4 && !strcmp(argv[1], "-s"))
		serve(argv[2], atoi(argv[3]));
	else if (argc == 4 && !strcmp(argv[1], "-c"))
		try(argv[2], argv[3]);
	else
		return 2;
	return 0;
}
