// The private nodes of libibverbs.so.1. The libraries for other vendors' devices, which
// perftest, libfabric and UCX load, import their names. The nodes exist so that these
// libraries load. A node has the names of all releases that have it.
//
// 34: rdma-core 34 to 56; 57: 57 and 58; 59: 59 to 63; 64: from 64 on.
#include <stdio.h>
#include <stdlib.h>

#include "objects.h"

#define NODES(X, name) X(34, name) X(57, name) X(59, name) X(64, name)

// VERSION exports the function at as name in a node.
#define VERSION(node, name, at)                              \
	__asm__(".globl stag_" #node "_" #name "\n"          \
		".set stag_" #node "_" #name ", " #at "\n"   \
		".symver stag_" #node "_" #name ", " #name "@IBVERBS_PRIVATE_" #node);

// A driver registers itself when its library is loaded. It is never asked, as there is no
// device of the kernel.
void stag_register_driver(const void *ops);
void stag_register_driver(const void *ops)
{
	(void)ops;
}

VERSION(34, verbs_register_driver_34, stag_register_driver)
VERSION(57, verbs_register_driver_57, stag_register_driver)
VERSION(59, verbs_register_driver_59, stag_register_driver)
VERSION(64, verbs_register_driver_64, stag_register_driver)

// Programs of rdma-core ask for the type of a GID.
int stag_query_gid_type(struct ibv_context *c, uint8_t number, unsigned index, unsigned *type);
int stag_private_query_gid_type(struct ibv_context *c, uint8_t number, unsigned index, unsigned *type);
int stag_private_query_gid_type(struct ibv_context *c, uint8_t number, unsigned index, unsigned *type)
{
	return stag_query_gid_type(c, number, index, type);
}

#define GID_TYPE(node, name) VERSION(node, name, stag_private_query_gid_type)
NODES(GID_TYPE, ibv_query_gid_type)

// A driver that is asked about our device says that the device is not its own, and logs that.
void stag_no_log(void);
void stag_no_log(void)
{
}

#define LOG(node, name) VERSION(node, name, stag_no_log)
// Only a driver with a device calls the other functions.
void stag_no_device(void);
void stag_no_device(void)
{
	fputs("stag: a driver of another vendor's device has called libibverbs, which has no such device\n", stderr);
	abort();
}

#define NONE(node, name) VERSION(node, name, stag_no_device)
NODES(NONE, __ioctl_final_num_attrs)
NODES(LOG, __verbs_log)
NODES(NONE, _verbs_init_and_alloc_context)
NODES(NONE, execute_ioctl)
NODES(NONE, ibv_cmd_advise_mr)
NODES(NONE, ibv_cmd_alloc_dm)
NODES(NONE, ibv_cmd_alloc_dmah)
NODES(NONE, ibv_cmd_alloc_mw)
NODES(NONE, ibv_cmd_alloc_pd)
NODES(NONE, ibv_cmd_attach_mcast)
NODES(NONE, ibv_cmd_close_xrcd)
NODES(NONE, ibv_cmd_create_ah)
NODES(NONE, ibv_cmd_create_counters)
NODES(NONE, ibv_cmd_create_cq)
NODES(NONE, ibv_cmd_create_cq_ex)
NODES(NONE, ibv_cmd_create_cq_ex2)
NODES(NONE, ibv_cmd_create_flow)
NODES(NONE, ibv_cmd_create_flow_action_esp)
NODES(NONE, ibv_cmd_create_qp)
NODES(NONE, ibv_cmd_create_qp_ex)
NODES(NONE, ibv_cmd_create_qp_ex2)
NODES(NONE, ibv_cmd_create_rwq_ind_table)
NODES(NONE, ibv_cmd_create_srq)
NODES(NONE, ibv_cmd_create_srq_ex)
NODES(NONE, ibv_cmd_create_wq)
NODES(NONE, ibv_cmd_dealloc_mw)
NODES(NONE, ibv_cmd_dealloc_pd)
NODES(NONE, ibv_cmd_dereg_mr)
NODES(NONE, ibv_cmd_destroy_ah)
NODES(NONE, ibv_cmd_destroy_counters)
NODES(NONE, ibv_cmd_destroy_cq)
NODES(NONE, ibv_cmd_destroy_flow)
NODES(NONE, ibv_cmd_destroy_flow_action)
NODES(NONE, ibv_cmd_destroy_qp)
NODES(NONE, ibv_cmd_destroy_rwq_ind_table)
NODES(NONE, ibv_cmd_destroy_srq)
NODES(NONE, ibv_cmd_destroy_wq)
NODES(NONE, ibv_cmd_detach_mcast)
NODES(NONE, ibv_cmd_export_dmabuf_fd)
NODES(NONE, ibv_cmd_free_dm)
NODES(NONE, ibv_cmd_free_dmah)
NODES(NONE, ibv_cmd_get_context)
NODES(NONE, ibv_cmd_modify_cq)
NODES(NONE, ibv_cmd_modify_flow_action_esp)
NODES(NONE, ibv_cmd_modify_qp)
NODES(NONE, ibv_cmd_modify_qp_ex)
NODES(NONE, ibv_cmd_modify_srq)
NODES(NONE, ibv_cmd_modify_wq)
NODES(NONE, ibv_cmd_open_qp)
NODES(NONE, ibv_cmd_open_xrcd)
NODES(NONE, ibv_cmd_poll_cq)
NODES(NONE, ibv_cmd_post_recv)
NODES(NONE, ibv_cmd_post_send)
NODES(NONE, ibv_cmd_post_srq_recv)
NODES(NONE, ibv_cmd_query_context)
NODES(NONE, ibv_cmd_query_device)
NODES(NONE, ibv_cmd_query_device_any)
NODES(NONE, ibv_cmd_query_mr)
NODES(NONE, ibv_cmd_query_port)
NODES(NONE, ibv_cmd_query_port_speed)
NODES(NONE, ibv_cmd_query_qp)
NODES(NONE, ibv_cmd_query_srq)
NODES(NONE, ibv_cmd_read_counters)
NODES(NONE, ibv_cmd_reg_dm_mr)
NODES(NONE, ibv_cmd_reg_dmabuf_mr)
NODES(NONE, ibv_cmd_reg_mr)
NODES(NONE, ibv_cmd_reg_mr_ex)
NODES(NONE, ibv_cmd_req_notify_cq)
NODES(NONE, ibv_cmd_rereg_mr)
NODES(NONE, ibv_cmd_resize_cq)
NODES(NONE, ibv_dmabuf_heap_alloc)
NODES(NONE, ibv_dmabuf_heap_cc_shared_init)
NODES(NONE, ibv_dmabuf_heap_destroy)
NODES(NONE, ibv_dmabuf_heap_free)
NODES(NONE, ibv_read_ibdev_sysfs_file)
NODES(NONE, ibv_wr_opcode_str)
NODES(NONE, verbs_allow_disassociate_destroy)
NODES(NONE, verbs_init_cq)
NODES(NONE, verbs_open_device)
NODES(NONE, verbs_set_ops)
NODES(NONE, verbs_uninit_context)
