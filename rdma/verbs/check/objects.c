// The device, events, regions and windows.
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static void device(void)
{
	struct ibv_device_attr a;
	struct ibv_port_attr p;
	struct ibv_gid_entry e;
	union ibv_gid g;

	WANT(!strcmp(ibv_get_device_name(c->device), "stag0"));
	WANT(c->device->transport_type == IBV_TRANSPORT_IWARP && c->device->node_type == IBV_NODE_RNIC);
	WANT(ibv_get_device_guid(c->device) == htobe64(42));
	WANT(!ibv_query_device(c, &a) && a.max_sge == 8 && a.atomic_cap == IBV_ATOMIC_HCA && a.phys_port_cnt == 1);
	WANT(!ibv_query_port(c, 1, &p) && p.state == IBV_PORT_ACTIVE && p.active_mtu == IBV_MTU_1024);
	WANT(p.link_layer == IBV_LINK_LAYER_ETHERNET && p.active_speed == 32 && p.active_width == 1);
	WANT(ibv_query_port(c, 2, &p) == EINVAL);
	WANT(!ibv_query_gid(c, 1, 0, &g) && g.raw[12] == 10 && ibv_query_gid(c, 1, 1, &g) == -1);
	WANT(ibv_query_gid_table(c, &e, 1, 0) == 1 && e.gid.raw[12] == 10);
	WANT(ibv_query_gid_table(c, &e, 0, 0) == -EINVAL); // no room
	WANT(ibv_query_gid_ex(c, 1, 7, &e, 0) == ENODATA);
}

static void events(void)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(c);
	struct ibv_cq *first = ibv_create_cq(c, 8, &first, ch, 0), *second = new_cq(8, ch), *got;
	struct ibv_qp *qp = new_qp(first, NULL, 8, 0), *other = new_qp(second, NULL, 8, 0);
	struct stag_cq_ring *r = (struct stag_cq_ring *)fake_object(first->handle)->memory;
	struct pollfd p = {ch->fd, POLLIN, 0};
	void *context;

	WANT(!ibv_req_notify_cq(first, 1) && r->armed == 1 && !ibv_req_notify_cq(first, 0) && r->armed == 2);
	WANT(!ibv_req_notify_cq(first, 1) && r->armed == 2); // stays armed for all
	WANT(poll(&p, 1, 0) == 0);
	complete(first, qp, 1, STAG_WC_SEND);
	complete(first, qp, 2, STAG_WC_SEND); // one event for each arming
	WANT(!ibv_get_cq_event(ch, &got, &context) && got == first && context == &first && poll(&p, 1, 0) == 0);
	WANT(ibv_destroy_comp_channel(ch) == EBUSY);
	// An event of a CQ that has been destroyed is skipped, and is none of the CQ that has
	// its place.
	ibv_req_notify_cq(second, 0);
	complete(second, other, 1, STAG_WC_SEND);
	WANT(!ibv_destroy_qp(other) && !ibv_destroy_cq(second));
	second = new_cq(8, ch);
	fcntl(ch->fd, F_SETFL, O_NONBLOCK);
	WANT(ibv_get_cq_event(ch, &got, &context) == -1 && errno == EAGAIN);
	ibv_ack_cq_events(first, 1);
	WANT(!ibv_destroy_cq(second) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(first) && !ibv_destroy_comp_channel(ch));
}

static int ended; // the CQ has been destroyed

static void *destroy(void *cq)
{
	__atomic_store_n(&ended, 1 + ibv_destroy_cq(cq), __ATOMIC_RELEASE);
	return NULL;
}

// The destruction of a CQ waits until its events are acknowledged.
static void unacknowledged(void)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(c);
	struct ibv_cq *cq = new_cq(8, ch), *got;
	struct ibv_qp *qp = new_qp(cq, NULL, 8, 0);
	uint64_t handle = cq->handle;
	pthread_t thread;
	void *context;

	ibv_req_notify_cq(cq, 0);
	complete(cq, qp, 1, STAG_WC_SEND);
	WANT(!ibv_get_cq_event(ch, &got, &context) && !ibv_destroy_qp(qp));
	WANT(!pthread_create(&thread, NULL, destroy, cq));
	while (__atomic_load_n(&fake_object(handle)->kind, __ATOMIC_ACQUIRE)) // the daemon has not destroyed it yet
		usleep(1000);
	usleep(100000);
	WANT(!__atomic_load_n(&ended, __ATOMIC_ACQUIRE));
	ibv_ack_cq_events(cq, 1);
	WANT(!pthread_join(thread, NULL) && ended == 1 && !ibv_destroy_comp_channel(ch));
}

static void asynchronous(void)
{
	struct ibv_cq *cq = new_cq(8, NULL);
	struct ibv_qp *qp = new_qp(cq, NULL, 8, 0);
	struct ibv_async_event e;

	fake_async(&(struct stag_async){.event = IBV_EVENT_CQ_ERR, .kind = STAG_KIND_CQ, .cookie = fake_object(cq->handle)->cookie});
	WANT(!ibv_get_async_event(c, &e) && e.event_type == IBV_EVENT_CQ_ERR && e.element.cq == cq);
	ibv_ack_async_event(&e);
	fake_async(&(struct stag_async){.event = IBV_EVENT_QP_FATAL, .kind = STAG_KIND_QP, .cookie = fake_object(qp->handle)->cookie});
	WANT(!ibv_get_async_event(c, &e) && e.event_type == IBV_EVENT_QP_FATAL && e.element.qp == qp);
	ibv_ack_async_event(&e);
	// The event of a QP that has been destroyed is skipped.
	fake_async(&(struct stag_async){.event = IBV_EVENT_QP_FATAL, .kind = STAG_KIND_QP, .cookie = fake_object(qp->handle)->cookie});
	WANT(!ibv_destroy_qp(qp));
	fake_async(&(struct stag_async){.event = IBV_EVENT_PORT_ERR, .port_num = 1});
	WANT(!ibv_get_async_event(c, &e) && e.event_type == IBV_EVENT_PORT_ERR && e.element.port_num == 1);
	ibv_ack_async_event(&e);
	WANT(!ibv_destroy_cq(cq));
}

static void regions(void)
{
	static char memory[100];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	const struct stag_mr *asked = &fake_last(STAG_OP_MR)->mr;
	uint32_t key;

	WANT(mr && mr->addr == memory && mr->lkey && asked->access == IBV_ACCESS_LOCAL_WRITE && asked->iova == (uintptr_t)memory);
	key = mr->lkey;
	WANT(!ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 10, 20, 0) && mr->length == 20 && mr->lkey != key);
	WANT(asked->addr == (uintptr_t)memory + 10 && asked->access == IBV_ACCESS_LOCAL_WRITE);
	WANT(!ibv_dereg_mr(mr));
	mr = ibv_reg_mr_iova(pd, memory, 10, 4711, 0);
	WANT(mr && asked->iova == 4711 && !ibv_dereg_mr(mr));
	WANT(!ibv_reg_mr(pd, memory, 0, 0) && errno == EINVAL);
	WANT(!ibv_reg_mr(pd, memory, 1, 1 << 18) && errno == EOPNOTSUPP);
	WANT(!ibv_reg_dmabuf_mr(pd, 0, 1, 0, 0, 0) && errno == EOPNOTSUPP);
}

static void windows(void)
{
	static char memory[100];
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	struct ibv_cq *cq = new_cq(8, NULL);
	struct ibv_qp *qp = new_qp(cq, NULL, 8, 0);
	struct ibv_mw_bind b = {.wr_id = 1, .bind_info = {mr, (uintptr_t)memory, 50, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_LOCAL_WRITE}};
	uint32_t before = mw->rkey;
	struct stag_send_slot *s;

	WANT(!ibv_bind_mw(qp, mw, &b) && mw->rkey == (before & ~255u)); // the key wraps around
	s = fake_send_slot(qp->handle, 0);
	WANT(s->op == STAG_WR_BIND_MW && s->rkey == mw->rkey && s->length == IBV_ACCESS_REMOTE_READ && s->elements == 1);
	WANT(((struct stag_element *)(s + 1))->lkey == mr->lkey && ((struct stag_element *)(s + 1))->length == 50);
	WANT(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_dealloc_mw(mw) && !ibv_dereg_mr(mr));
}

static void *busy(void *unused)
{
	for (;;) {
		ibv_dealloc_pd(ibv_alloc_pd(c));
		pthread_testcancel();
	}
	return unused;
}

// A thread that is cancelled within a call leaves no lock and no answer behind.
static void cancelled(void)
{
	for (int i = 0; i < 50; i++) {
		pthread_t thread;
		struct ibv_pd *p;

		WANT(!pthread_create(&thread, NULL, busy, NULL));
		usleep(100 + 10 * i);
		WANT(!pthread_cancel(thread) && !pthread_join(thread, NULL));
		WANT((p = ibv_alloc_pd(c)) && !ibv_dealloc_pd(p));
	}
}

void test_objects(void)
{
	RUN(device);
	RUN(events);
	RUN(unacknowledged);
	RUN(asynchronous);
	RUN(regions);
	RUN(windows);
	RUN(cancelled);
}
