// The queues of an identifier.
#include "cm.h"

#include <rdma/rdma_verbs.h>
#include <string.h>

// The connection manager lets the peer do everything that regions and windows give it a right to.
enum { CM_ACCESS = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

// make_cq makes a CQ with a channel of its own for the identifier, as programs expect that
// pass no CQ.
static int make_cq(struct rdma_cm_id *cm, uint32_t depth, struct ibv_comp_channel **channel, struct ibv_cq **cq)
{
	*channel = ibv_create_comp_channel(cm->verbs);
	if (!*channel)
		return -1;
	*cq = ibv_create_cq(cm->verbs, (int)(depth ? depth : 1), cm, *channel, 0);
	if (*cq)
		return 0;
	ibv_destroy_comp_channel(*channel);
	*channel = NULL;
	return -1;
}

static void drop_cq(struct ibv_comp_channel **channel, struct ibv_cq **cq, bool *own)
{
	if (!*own)
		return;
	ibv_destroy_cq(*cq);
	ibv_destroy_comp_channel(*channel);
	*cq = NULL;
	*channel = NULL;
	*own = false;
}

static void drop_cqs(struct rdma_cm_id *cm)
{
	struct id *id = cm_id(cm);

	drop_cq(&cm->recv_cq_channel, &cm->recv_cq, &id->own_recv_cq);
	drop_cq(&cm->send_cq_channel, &cm->send_cq, &id->own_send_cq);
}

// choose_cqs fills in the CQs that attr leaves out.
static int choose_cqs(struct rdma_cm_id *cm, struct ibv_qp_init_attr_ex *attr)
{
	struct id *id = cm_id(cm);

	if (!attr->recv_cq && !cm->recv_cq) {
		if (make_cq(cm, attr->cap.max_recv_wr, &cm->recv_cq_channel, &cm->recv_cq))
			return -1;
		id->own_recv_cq = true;
	}
	if (!attr->send_cq && !cm->send_cq) {
		if (make_cq(cm, attr->cap.max_send_wr, &cm->send_cq_channel, &cm->send_cq))
			return -1;
		id->own_send_cq = true;
	}
	if (!attr->recv_cq)
		attr->recv_cq = cm->recv_cq;
	if (!attr->send_cq)
		attr->send_cq = cm->send_cq;
	return 0;
}

static int check(struct rdma_cm_id *cm, struct ibv_qp_init_attr_ex *attr)
{
	if (cm->qp || !cm->verbs)
		return cm_fail(EINVAL);
	if (attr->qp_type && attr->qp_type != IBV_QPT_RC)
		return cm_fail(EOPNOTSUPP);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || !attr->pd) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = cm->pd;
	}
	if (!attr->pd || attr->pd->context->device != cm->verbs->device)
		return cm_fail(EINVAL);
	if (!attr->srq)
		attr->srq = cm->srq;
	attr->qp_type = IBV_QPT_RC;
	return 0;
}

int rdma_create_qp_ex(struct rdma_cm_id *cm, struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = cm->port_num, .qp_access_flags = CM_ACCESS};
	struct ibv_qp *qp;
	int error;

	if (check(cm, attr))
		return -1;
	if (choose_cqs(cm, attr)) {
		error = errno;
		drop_cqs(cm);
		return cm_fail(error);
	}
	qp = ibv_create_qp_ex(cm->verbs, attr);
	if (!qp) {
		error = errno;
		drop_cqs(cm);
		return cm_fail(error);
	}
	error = ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	if (error) {
		ibv_destroy_qp(qp);
		drop_cqs(cm);
		return cm_fail(error);
	}
	cm->qp = qp;
	cm->pd = qp->pd;
	return 0;
}

int rdma_create_qp(struct rdma_cm_id *cm, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {0};
	int result;

	memcpy(&ex, attr, sizeof *attr); // the extended attributes begin with these
	if (pd) {
		ex.comp_mask = IBV_QP_INIT_ATTR_PD;
		ex.pd = pd;
	}
	result = rdma_create_qp_ex(cm, &ex);
	memcpy(attr, &ex, sizeof *attr);
	return result;
}

void rdma_destroy_qp(struct rdma_cm_id *cm)
{
	if (!cm->qp)
		return;
	ibv_destroy_qp(cm->qp);
	cm->qp = NULL;
	drop_cqs(cm);
}

int rdma_create_srq_ex(struct rdma_cm_id *cm, struct ibv_srq_init_attr_ex *attr)
{
	struct ibv_srq_init_attr plain = {.srq_context = attr->srq_context, .attr = attr->attr};
	struct ibv_pd *pd = (attr->comp_mask & IBV_SRQ_INIT_ATTR_PD) ? attr->pd : NULL;
	int result;

	if ((attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) && attr->srq_type != IBV_SRQT_BASIC)
		return cm_fail(EOPNOTSUPP);
	result = rdma_create_srq(cm, pd, &plain);
	attr->attr = plain.attr;
	return result;
}

int rdma_create_srq(struct rdma_cm_id *cm, struct ibv_pd *pd, struct ibv_srq_init_attr *attr)
{
	struct ibv_srq *srq;

	if (cm->srq || !cm->verbs)
		return cm_fail(EINVAL);
	if (!pd)
		pd = cm->pd;
	srq = ibv_create_srq(pd, attr);
	if (!srq)
		return -1;
	cm->pd = pd;
	cm->srq = srq;
	return 0;
}

void rdma_destroy_srq(struct rdma_cm_id *cm)
{
	if (!cm->srq)
		return;
	ibv_destroy_srq(cm->srq);
	cm->srq = NULL;
}

// The connection manager brings a QP through its states. A program that calls ibv_modify_qp
// itself gets attributes that change the state and nothing else, as iWARP adapters give.
int rdma_init_qp_attr(struct rdma_cm_id *cm, struct ibv_qp_attr *attr, int *mask)
{
	enum ibv_qp_state state = attr->qp_state;

	memset(attr, 0, sizeof *attr);
	attr->qp_state = state;
	*mask = IBV_QP_STATE;
	switch (state) {
	case IBV_QPS_INIT:
		attr->port_num = cm->port_num;
		attr->qp_access_flags = CM_ACCESS;
		*mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
		return 0;
	case IBV_QPS_RTR:
	case IBV_QPS_RTS:
		return 0;
	default:
		return cm_fail(EINVAL);
	}
}
