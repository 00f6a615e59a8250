// Functions that this device does not have. They fail with EOPNOTSUPP, as those of other
// devices that lack them. Their arguments do not matter, so that this file does not include
// verbs.h.
#include <errno.h>
#include <stddef.h>

// POINTER defines a function that returns NULL with errno.
#define POINTER(name) \
	void *name(void) { errno = EOPNOTSUPP; return NULL; }

// ERROR defines a function that returns an errno.
#define ERROR(name) \
	int name(void) { return errno = EOPNOTSUPP; }

// MINUS defines a function that returns -1 with errno.
#define MINUS(name) \
	int name(void) { errno = EOPNOTSUPP; return -1; }

// NOTHING defines a function without a result. Only drivers of other devices, and their
// librdmacm, call it.
#define NOTHING(name) \
	void name(void) {}

// Unreliable datagrams and multicast.
POINTER(ibv_create_ah)
POINTER(ibv_create_ah_from_wc)
MINUS(ibv_init_ah_from_wc)
ERROR(ibv_destroy_ah)
ERROR(ibv_attach_mcast)
ERROR(ibv_detach_mcast)
MINUS(ibv_resolve_eth_l2_from_gid)

// Objects of another process.
POINTER(ibv_import_device)
POINTER(ibv_import_pd)
POINTER(ibv_import_mr)
POINTER(ibv_import_dm)
NOTHING(ibv_unimport_pd)
NOTHING(ibv_unimport_mr)
NOTHING(ibv_unimport_dm)

// Enhanced connection establishment.
ERROR(ibv_set_ece)
ERROR(ibv_query_ece)

// Memory of devices, and what came after rdma-core 58.
POINTER(ibv_alloc_dmah)
ERROR(ibv_dealloc_dmah)
MINUS(ibv_dm_export_dmabuf_fd)
POINTER(ibv_alloc_buf)
NOTHING(ibv_free_buf)
POINTER(ibv_reg_buf_mr)
MINUS(ibv_export_buf_dmabuf_fd)
ERROR(_ibv_query_comp_cntr_caps)
POINTER(ibv_create_comp_cntr)
ERROR(ibv_destroy_comp_cntr)
ERROR(ibv_set_comp_cntr)
ERROR(ibv_set_err_comp_cntr)
ERROR(ibv_inc_comp_cntr)
ERROR(ibv_inc_err_comp_cntr)
ERROR(ibv_read_comp_cntr)
ERROR(ibv_read_err_comp_cntr)
ERROR(ibv_qp_attach_comp_cntr)

// The kernel's structures: no program of a stag device has any.
NOTHING(ibv_copy_ah_attr_from_kern)
NOTHING(ibv_copy_path_rec_from_kern)
NOTHING(ibv_copy_path_rec_to_kern)
NOTHING(ibv_copy_qp_attr_from_kern)
NOTHING(ibv_register_driver)
