// Programs were compiled with some release of verbs.h, and access these structures directly.
// The layouts have not changed since rdma-core 17. This file fails to compile if the
// installed verbs.h has others. The numbers are those of x86-64: on other machines locks have
// other lengths.
#include "objects.h"

#if __SIZEOF_POINTER__ != 8
#error "this library is for 64-bit machines only"
#endif

#ifdef __x86_64__

#define SIZE(type, octets) _Static_assert(sizeof(struct type) == octets, #type)
// New members of these structures come at the end.
#define GROWS(type, octets) _Static_assert(sizeof(struct type) >= octets, #type)
#define AT(type, member, offset) _Static_assert(offsetof(struct type, member) == offset, #type "." #member)

SIZE(ibv_device, 664);
AT(ibv_device, node_type, 16);
AT(ibv_device, transport_type, 20);
AT(ibv_device, name, 24);
AT(ibv_device, dev_name, 88);
AT(ibv_device, dev_path, 152);
AT(ibv_device, ibdev_path, 408);

SIZE(ibv_context, 328);
AT(ibv_context, device, 0);
AT(ibv_context, ops.alloc_mw, 64);
AT(ibv_context, ops.bind_mw, 72);
AT(ibv_context, ops.dealloc_mw, 80);
AT(ibv_context, ops.poll_cq, 96);
AT(ibv_context, ops.req_notify_cq, 104);
AT(ibv_context, ops.post_srq_recv, 168);
AT(ibv_context, ops.post_send, 208);
AT(ibv_context, ops.post_recv, 216);
AT(ibv_context, cmd_fd, 264);
AT(ibv_context, async_fd, 268);
AT(ibv_context, num_comp_vectors, 272);
AT(ibv_context, abi_compat, 320);

// verbs_context grows at its beginning: the distance to the end counts.
#define BEFORE_END(member, octets) \
	_Static_assert(sizeof(struct verbs_context) - offsetof(struct verbs_context, member) == octets, #member)
BEFORE_END(context, 328);
BEFORE_END(sz, 336);
BEFORE_END(close_xrcd, 352);
BEFORE_END(open_xrcd, 360);
BEFORE_END(create_srq_ex, 368);
BEFORE_END(get_srq_num, 376);
BEFORE_END(create_qp_ex, 384);
BEFORE_END(open_qp, 392);
BEFORE_END(query_device_ex, 432);
BEFORE_END(priv, 440);
BEFORE_END(create_cq_ex, 448);
BEFORE_END(advise_mr, 640);
BEFORE_END(query_port, 648);

SIZE(ibv_pd, 16);
SIZE(ibv_mr, 48);
SIZE(ibv_mw, 32);
SIZE(ibv_cq, 128);
AT(ibv_cq, cqe, 28);
AT(ibv_cq, comp_events_completed, 120);
GROWS(ibv_cq_ex, 288);
AT(ibv_cq_ex, status, 132);
AT(ibv_cq_ex, wr_id, 136);
AT(ibv_cq_ex, start_poll, 144);
AT(ibv_cq_ex, read_completion_wallclock_ns, 280);
SIZE(ibv_qp, 160);
AT(ibv_qp, qp_num, 52);
AT(ibv_qp, state, 56);
GROWS(ibv_qp_ex, 352);
AT(ibv_qp_ex, wr_id, 168);
AT(ibv_qp_ex, wr_atomic_cmp_swp, 184);
AT(ibv_qp_ex, wr_start, 320);
AT(ibv_qp_ex, wr_abort, 336);
SIZE(ibv_srq, 128);
SIZE(ibv_comp_channel, 16);
SIZE(ibv_ah, 24);
SIZE(ibv_wc, 48);
SIZE(ibv_sge, 16);
SIZE(ibv_send_wr, 128);
SIZE(ibv_recv_wr, 32);
SIZE(ibv_qp_init_attr, 64);
GROWS(ibv_qp_init_attr_ex, 136);
SIZE(ibv_qp_attr, 144);
SIZE(ibv_srq_init_attr, 24);
SIZE(ibv_device_attr, 232);
GROWS(ibv_device_attr_ex, 400);
GROWS(ibv_port_attr, 52);
SIZE(ibv_gid_entry, 32);
SIZE(ibv_async_event, 16);

#endif // __x86_64__

// Elements go to a ring as they are.
_Static_assert(sizeof(struct ibv_sge) == sizeof(struct stag_element), "elements");
_Static_assert(offsetof(struct ibv_sge, lkey) == offsetof(struct stag_element, lkey), "elements");
