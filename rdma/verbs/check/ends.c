// Fork, and the end of the daemon.
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

// in_child is what a child of fork can do: its parent's objects are dead, and a connection of
// its own works.
static int in_child(struct ibv_qp *qp, struct ibv_cq *cq)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *own = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_wc wc;
	int r = 0;

	for (int i = 0; i < 64 && !r; i++)
		r = ibv_poll_cq(cq, 1, &wc);
	if (r != -1)
		return 1;
	post(qp, 99, 0); // nobody sees it
	if (!own || !ibv_alloc_pd(own))
		return 2;
	if (ibv_destroy_qp(qp) || ibv_destroy_cq(cq)) // frees memory only
		return 3;
	return 0;
}

static void child(void)
{
	struct ibv_cq *cq = new_cq(8, NULL);
	struct ibv_qp *qp = new_qp(cq, NULL, 8, 0);
	struct stag_bell *b = fake_bell();
	struct ibv_wc wc;
	int status;
	pid_t pid;

	WANT(!post(qp, 1, 0));
	complete(cq, qp, 1, STAG_WC_SEND);
	b->bits[qp->handle / 64] = 0;
	pid = fork();
	if (!pid)
		_exit(in_child(qp, cq));
	WANT(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	WANT(WEXITSTATUS(status) == 0);
	WANT(fake_send_ring(qp->handle)->tail == 1 && b->bits[qp->handle / 64] == 0);
	WANT(ibv_poll_cq(cq, 1, &wc) == 1 && wc.wr_id == 1);
	WANT(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

// Requests that were posted to a daemon that has died come back as flushed.
static void dead_daemon(void)
{
	struct ibv_cq *cq = new_cq(8, NULL);
	struct ibv_qp *qp = new_qp(cq, NULL, 8, 0);
	struct ibv_async_event e;
	struct ibv_wc wc[8];
	int n = 0;

	WANT(!post(qp, 1, 0) && !post(qp, 2, 0) && !post(qp, 3, 0) && !receive(qp, 4));
	fake_send_ring(qp->handle)->done = 1;
	complete(cq, qp, 1, STAG_WC_SEND);
	fake_stop();
	WANT(!ibv_get_async_event(c, &e) && e.event_type == IBV_EVENT_DEVICE_FATAL);
	WANT(ibv_poll_cq(cq, 8, wc) == 1 && wc[0].status == IBV_WC_SUCCESS);
	for (int i = 0; i < 64 && !n; i++)
		n = ibv_poll_cq(cq, 8, wc);
	WANT(n == 3);
	for (int i = 0; i < 3; i++)
		WANT(wc[i].wr_id == (unsigned)i + 2 && wc[i].status == IBV_WC_WR_FLUSH_ERR && wc[i].qp_num == qp->qp_num);
	WANT(!ibv_alloc_pd(c) && errno == ENODEV);
	WANT(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

static void no_daemon(void)
{
	int n = 7;
	struct ibv_device **list = ibv_get_device_list(&n);

	WANT(list && n == 0 && !list[0]);
	ibv_free_device_list(list);
}

// A program finds the next daemon, also if it has not noticed the end of the last one.
static void next_daemon(void)
{
	struct ibv_device **list;
	struct ibv_context *x;

	for (int i = 0; i < 2; i++) {
		fake_start(directory);
		list = ibv_get_device_list(NULL);
		WANT(list && list[0] && (x = ibv_open_device(list[0])) && ibv_alloc_pd(x));
		ibv_free_device_list(list);
		fake_stop();
	}
}

void test_ends(void)
{
	RUN(child);
	RUN(dead_daemon);
	RUN(no_daemon);
	RUN(next_daemon);
}
