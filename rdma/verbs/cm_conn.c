// Connections: connect, accept, reject, disconnect.
#include "cm.h"

#include <string.h>

// depth returns a read depth as a number. RDMA_MAX_RESP_RES stands for the device's most.
static uint32_t depth(struct rdma_cm_id *cm, uint8_t wanted)
{
	struct ibv_device_attr a;

	if (wanted != RDMA_MAX_RESP_RES)
		return wanted;
	if (!cm->verbs || ibv_query_device(cm->verbs, &a))
		return 0;
	return (uint32_t)(a.max_qp_rd_atom < RDMA_MAX_RESP_RES ? a.max_qp_rd_atom : RDMA_MAX_RESP_RES - 1);
}

// put_private stores the private data of a request.
static void put_private(struct stag_msg *m, const void *data, uint8_t len)
{
	if (!data)
		return;
	memcpy(m->private_data, data, len);
	m->private_len = len;
}

// conn_msg translates the parameters of rdma_connect and rdma_accept. Without parameters,
// read depths are the device's most, and for rdma_accept what the peer asked for.
static struct stag_msg conn_msg(struct rdma_cm_id *cm, const struct rdma_conn_param *p)
{
	struct id *id = cm_id(cm);
	struct rdma_conn_param none = {
		.responder_resources = id->responder_resources,
		.initiator_depth = id->initiator_depth,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	struct stag_msg m = {0};

	if (!p)
		p = &none;
	m.conn = (struct stag_conn){
		.qpn = cm->qp ? cm->qp->qp_num : p->qp_num,
		.responder_resources = depth(cm, p->responder_resources),
		.initiator_depth = depth(cm, p->initiator_depth),
		.flow_control = p->flow_control,
		.retry_count = p->retry_count,
		.rnr_retry_count = p->rnr_retry_count,
		.srq = cm->qp ? cm->qp->srq != NULL : p->srq,
	};
	put_private(&m, p->private_data, p->private_data_len);
	return m;
}

// responds reports whether the program ends the set-up with rdma_establish, as programs that
// connect their QPs themselves do over InfiniBand.
static bool responds(const struct rdma_cm_id *cm)
{
	return !cm->qp && cm->verbs && cm->verbs->device->transport_type == IBV_TRANSPORT_IB;
}

int rdma_connect(struct rdma_cm_id *cm, struct rdma_conn_param *param)
{
	struct stag_msg m = conn_msg(cm, param);

	if (responds(cm))
		m.conn.flags = STAG_CONN_RESPONSE;
	if (cm_ask(cm_id(cm), &m, STAG_OP_CONNECT))
		return -1;
	return cm_complete(cm_id(cm));
}

int rdma_accept(struct rdma_cm_id *cm, struct rdma_conn_param *param)
{
	struct stag_msg m = conn_msg(cm, param);

	if (cm_ask(cm_id(cm), &m, STAG_OP_ACCEPT))
		return -1;
	return cm_complete(cm_id(cm));
}

int rdma_establish(struct rdma_cm_id *cm)
{
	struct stag_msg m = {0};

	if (!responds(cm))
		return cm_fail(EINVAL);
	return cm_ask(cm_id(cm), &m, STAG_OP_ESTABLISH);
}

int rdma_reject(struct rdma_cm_id *cm, const void *private_data, uint8_t len)
{
	struct stag_msg m = {0};

	put_private(&m, private_data, len);
	return cm_ask(cm_id(cm), &m, STAG_OP_REJECT);
}

// MPA's reply has no reason, so that a refusal for the vendor's options is one as any other.
int rdma_reject_ece(struct rdma_cm_id *cm, const void *private_data, uint8_t len)
{
	return rdma_reject(cm, private_data, len);
}

int rdma_disconnect(struct rdma_cm_id *cm)
{
	struct stag_msg m = {0};

	if (cm_ask(cm_id(cm), &m, STAG_OP_DISCONNECT))
		return -1;
	return cm_complete(cm_id(cm));
}
