// Devices, contexts, and what they say about themselves. There is one device.
#include "objects.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Libraries for other vendors' devices look for a pointer behind struct ibv_device, to see
// whether a device is theirs. They find NULL.
static struct {
	struct ibv_device device;
	void *others[16];
} stag0;

// about has the answer of DEVICE of the link with the number of life.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stag_msg about;
static uint32_t life;
static struct ibv_context *cm_context;
static struct ibv_pd *cm_pd;
static uint32_t cm_life;

void device_lock(void)
{
	pthread_mutex_lock(&lock);
}

void device_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

void device_forked(void)
{
	life = cm_life = 0;
	cm_context = NULL;
	cm_pd = NULL;
}

// name sets a text of struct ibv_device.
static void name(char *to, size_t len, const char *directory, const char *from)
{
	size_t n = strlen(directory);

	memcpy(to, directory, n);
	memcpy(to + n, from, strnlen(from, len - n - 1) + 1);
	to[len - 1] = 0;
}

// ask fills about and the device for the present link. lock must be held.
static int ask(struct stag_link *l)
{
	struct stag_msg m = {.op = STAG_OP_DEVICE};
	struct ibv_device *d = &stag0.device;

	if (life == l->life)
		return 0;
	if (stag_call(l, &m, NULL, 0, NULL, 0))
		return -1;
	m.device.name[STAG_NAME_LEN - 1] = m.device.firmware[sizeof m.device.firmware - 1] = 0;
	about = m;
	life = l->life;
	d->node_type = stag_roce() ? IBV_NODE_CA : IBV_NODE_RNIC;
	d->transport_type = stag_roce() ? IBV_TRANSPORT_IB : IBV_TRANSPORT_IWARP;
	name(d->name, sizeof d->name, "", m.device.name);
	name(d->dev_name, sizeof d->dev_name, "", m.device.name);
	name(d->dev_path, sizeof d->dev_path, "/sys/class/infiniband_verbs/", m.device.name);
	name(d->ibdev_path, sizeof d->ibdev_path, "/sys/class/infiniband/", m.device.name);
	return 0;
}

// known returns the present link, about and the device being filled. NULL with errno.
static struct stag_link *known(void)
{
	struct stag_link *l = stag_link();
	int r;

	if (!l)
		return NULL;
	pthread_mutex_lock(&lock);
	r = ask(l);
	pthread_mutex_unlock(&lock);
	return r ? NULL : l;
}

struct ibv_device **ibv_get_device_list(int *num_devices)
{
	struct ibv_device **list = calloc(2, sizeof *list);
	bool there = known() != NULL;

	if (num_devices)
		*num_devices = 0;
	if (!list)
		return NULL;
	if (!there) {
		stag_hint();
		return list;
	}
	list[0] = &stag0.device;
	if (num_devices)
		*num_devices = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

int ibv_get_device_index(struct ibv_device *device)
{
	(void)device;
	return -1; // the kernel has no such device
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	__be64 guid;

	(void)device;
	memcpy(&guid, about.device.guid, sizeof guid);
	return guid;
}

// port asks the daemon about a port. It returns 0 or an errno.
static int port(struct ibv_context *c, uint32_t number, struct stag_port *p)
{
	struct stag_msg m = {.op = STAG_OP_PORT};

	if (number < 1 || number > to_context(c)->device.device.ports)
		return EINVAL;
	m.port.port_num = number;
	if (stag_call(stag_link_of(c), &m, NULL, 0, NULL, 0))
		return errno;
	*p = m.port;
	return 0;
}

// enum_of_mtu returns the largest MTU of verbs.h that fits into IP packets of so many octets.
static enum ibv_mtu enum_of_mtu(uint32_t octets)
{
	int mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && 128u << (mtu + 1) <= octets)
		mtu++;
	return mtu;
}

// speed sets the width and speed of InfiniBand that come nearest.
static void speed(struct ibv_port_attr *a, uint32_t mbps)
{
	static const struct {
		uint32_t mbps;
		uint8_t width, speed;
	} table[] = {
		{2500, 1, 1}, {10000, 2, 1}, {20000, 2, 2}, {25000, 1, 32},
		{40000, 2, 4}, {50000, 2, 16}, {100000, 2, 32}, {200000, 2, 64}, {400000, 2, 128},
	};
	size_t i = 0;

	while (i + 1 < sizeof table / sizeof *table && table[i + 1].mbps <= mbps)
		i++;
	a->active_width = table[i].width;
	a->active_speed = table[i].speed;
}

static int query_port(struct ibv_context *c, uint8_t number, struct ibv_port_attr *attr, size_t len)
{
	struct ibv_port_attr a = {0};
	struct stag_port p = {0};
	int error = port(c, number, &p);

	if (error)
		return error;
	a.state = p.state;
	a.max_mtu = IBV_MTU_4096;
	a.active_mtu = enum_of_mtu(p.mtu);
	a.gid_tbl_len = p.gids;
	a.port_cap_flags = stag_roce() ? IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS : IBV_PORT_CM_SUP;
	a.max_msg_sz = 1u << 31;
	a.pkey_tbl_len = 1;
	a.max_vl_num = 1;
	a.phys_state = p.state == IBV_PORT_ACTIVE ? 5 : 3;
	a.link_layer = IBV_LINK_LAYER_ETHERNET;
	speed(&a, p.speed ? p.speed : 10000);
	memset(attr, 0, len);
	memcpy(attr, &a, len < sizeof a ? len : sizeof a);
	return 0;
}

// From rdma-core 62 on. The speed is in units of 100 Mbit/s.
int ibv_query_port_speed(struct ibv_context *c, uint32_t number, uint64_t *units);
int ibv_query_port_speed(struct ibv_context *c, uint32_t number, uint64_t *units)
{
	struct stag_port p = {0};
	int error = port(c, number, &p);

	if (error)
		return error;
	if (!p.speed)
		return EOPNOTSUPP;
	*units = p.speed / 100;
	return 0;
}

// The structure of this function ends before the members that came later.
int ibv_query_port(struct ibv_context *c, uint8_t number, struct _compat_ibv_port_attr *attr)
{
	return query_port(c, number, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	const struct stag_device *d = &to_context(c)->device.device;

	*a = (struct ibv_device_attr){
		.max_mr_size = d->max_mr_size,
		.page_size_cap = d->page_size_cap,
		.vendor_id = d->vendor_id,
		.vendor_part_id = d->vendor_part,
		.max_qp = d->max_qp,
		.max_qp_wr = d->max_qp_wr,
		.max_sge = d->max_sge,
		.max_sge_rd = d->max_sge_rd,
		.max_cq = d->max_cq,
		.max_cqe = d->max_cqe,
		.max_mr = d->max_mr,
		.max_pd = d->max_pd,
		.max_qp_rd_atom = d->max_rd_atomic,
		.max_qp_init_rd_atom = d->max_rd_atomic,
		.max_res_rd_atom = d->max_rd_atomic > 0x7fffffff / d->max_qp ? 0x7fffffff : d->max_rd_atomic * d->max_qp,
		.max_mw = d->features & STAG_FEATURE_MW ? d->max_mw : 0,
		.max_srq = d->features & STAG_FEATURE_SRQ ? d->max_srq : 0,
		.max_srq_wr = d->features & STAG_FEATURE_SRQ ? d->max_srq_wr : 0,
		.max_srq_sge = d->features & STAG_FEATURE_SRQ ? d->max_srq_sge : 0,
		.atomic_cap = d->features & STAG_FEATURE_ATOMICS ? IBV_ATOMIC_HCA : IBV_ATOMIC_NONE,
		.max_pkeys = 1,
		.phys_port_cnt = d->ports,
	};
	if (d->features & STAG_FEATURE_MW)
		a->device_cap_flags |= IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B;
	memcpy(a->fw_ver, d->firmware, sizeof d->firmware);
	memcpy(&a->node_guid, d->guid, sizeof d->guid);
	a->sys_image_guid = a->node_guid;
	return 0;
}

static int query_device_ex(struct ibv_context *c, const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t len)
{
	struct ibv_device_attr_ex a = {0};
	int error;

	if (input && input->comp_mask)
		return EINVAL;
	if (len < sizeof a.orig_attr)
		return EINVAL;
	error = ibv_query_device(c, &a.orig_attr);
	if (error)
		return error;
	a.phys_port_cnt_ex = a.orig_attr.phys_port_cnt;
	memset(attr, 0, len);
	memcpy(attr, &a, len < sizeof a ? len : sizeof a);
	return 0;
}

struct stag_link *stag_link_of(const struct ibv_context *c)
{
	return to_context(c)->link;
}

// members sets the functions that programs call through the context.
static void members(struct verbs_context *v)
{
	v->sz = sizeof *v;
	v->query_port = query_port;
	v->query_device_ex = query_device_ex;
	v->create_cq_ex = create_cq_ex;
	v->create_qp_ex = create_qp_ex;
	v->create_srq_ex = create_srq_ex;
	v->get_srq_num = get_srq_num;
	v->advise_mr = advise_mr;
	v->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	v->context.ops.poll_cq = poll_cq;
	v->context.ops.req_notify_cq = notify_cq;
	v->context.ops.post_send = post_send;
	v->context.ops.post_recv = post_recv;
	v->context.ops.post_srq_recv = post_srq_recv;
	v->context.ops.alloc_mw = alloc_mw;
	v->context.ops.bind_mw = bind_mw;
	v->context.ops.dealloc_mw = dealloc_mw;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct stag_link *l = known();
	struct context *x;
	struct ibv_context *c;

	if (!l)
		return NULL;
	x = calloc(1, sizeof *x);
	if (!x)
		return NULL;
	x->link = l;
	x->device = about;
	c = &x->v.context;
	members(&x->v);
	c->device = device;
	c->cmd_fd = -1;
	c->num_comp_vectors = 1;
	c->async_fd = async_open(l);
	if (c->async_fd < 0) {
		free(x);
		return NULL;
	}
	pthread_mutex_init(&c->mutex, NULL);
	return c;
}

int ibv_close_device(struct ibv_context *c)
{
	if (c == cm_context)
		return 0;
	close(c->async_fd);
	pthread_mutex_destroy(&c->mutex);
	free(to_context(c));
	return 0;
}

struct ibv_context *stag_cm_context(void)
{
	struct stag_link *l = known();
	struct ibv_context *c;

	if (!l)
		return NULL;
	pthread_mutex_lock(&lock);
	c = cm_life == l->life ? cm_context : NULL;
	pthread_mutex_unlock(&lock);
	if (c)
		return c;
	c = ibv_open_device(&stag0.device);
	if (!c)
		return NULL;
	pthread_mutex_lock(&lock);
	if (cm_life == l->life) { // another thread was faster
		struct ibv_context *mine = c;

		c = cm_context;
		pthread_mutex_unlock(&lock);
		ibv_close_device(mine);
		return c;
	}
	cm_context = c;
	cm_pd = NULL;
	cm_life = l->life;
	pthread_mutex_unlock(&lock);
	return c;
}

struct ibv_pd *stag_cm_pd(void)
{
	struct ibv_context *c = stag_cm_context();
	struct ibv_pd *pd, *mine;

	if (!c)
		return NULL;
	pthread_mutex_lock(&lock);
	pd = cm_pd && cm_pd->context == c ? cm_pd : NULL;
	pthread_mutex_unlock(&lock);
	if (pd)
		return pd;
	mine = ibv_alloc_pd(c);
	if (!mine)
		return NULL;
	pthread_mutex_lock(&lock);
	if (!cm_pd || cm_pd->context != c) {
		cm_pd = mine;
		mine = NULL;
	}
	pd = cm_pd;
	pthread_mutex_unlock(&lock);
	if (mine)
		ibv_dealloc_pd(mine);
	return pd;
}
