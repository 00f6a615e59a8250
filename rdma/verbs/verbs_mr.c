// Protection domains, memory regions, and memory windows.
#include "objects.h"

#include <stdlib.h>

struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct stag_msg m = {.op = STAG_OP_PD};
	struct pd *pd = calloc(1, sizeof *pd);

	if (!pd)
		return NULL;
	if (stag_call(stag_link_of(c), &m, NULL, 0, NULL, 0)) {
		free(pd);
		return NULL;
	}
	pd->pd.context = c;
	pd->pd.handle = pd->handle = m.handle;
	return &pd->pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int error = stag_destroy(stag_link_of(pd->context), STAG_KIND_PD, stag_pd_handle(pd), NULL);

	if (!error)
		free(pd);
	return error;
}

uint64_t stag_pd_handle(const struct ibv_pd *pd)
{
	return pd ? ((const struct pd *)pd)->handle : 0;
}

// Rights that the daemon knows. The others change nothing here: any memory is reached as if
// it were registered on demand, pages of any size are right, and relaxed ordering allows
// the order that there is.
enum {
	RIGHTS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
		 IBV_ACCESS_MW_BIND,
	HINTS = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE,
};

static struct ibv_mr *reg(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access)
{
	struct stag_msg m = {.op = STAG_OP_MR};
	struct mr *r;

	if (access & ~(unsigned)(RIGHTS | HINTS | IBV_ACCESS_ZERO_BASED))
		return fail(EOPNOTSUPP);
	if (!length)
		return fail(EINVAL);
	r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	m.mr.pd = stag_pd_handle(pd);
	m.mr.addr = (uintptr_t)addr;
	m.mr.length = length;
	m.mr.iova = access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
	m.mr.access = access & RIGHTS;
	if (stag_call(stag_link_of(pd->context), &m, NULL, 0, NULL, 0)) {
		free(r);
		return NULL;
	}
	r->mr = (struct ibv_mr){pd->context, pd, addr, length, m.handle, m.mr.lkey, m.mr.rkey};
	r->handle = m.handle;
	r->iova = m.mr.iova;
	r->access = access;
	return &r->mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	return reg(pd, addr, length, (uintptr_t)addr, access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access)
{
	return reg(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access)
{
	return reg(pd, addr, length, iova, access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	(void)pd, (void)offset, (void)length, (void)iova, (void)fd, (void)access;
	return fail(EOPNOTSUPP);
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	int error = stag_destroy(stag_link_of(mr->context), STAG_KIND_MR, ((struct mr *)mr)->handle, NULL);

	if (!error)
		free(mr);
	return error;
}

// The region becomes another one with other keys, as verbs.h allows.
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct mr *old = (struct mr *)mr, *new;
	bool moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
	struct ibv_mr *made;
	uint64_t handle;

	if (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	made = reg(flags & IBV_REREG_MR_CHANGE_PD ? pd : mr->pd, moves ? addr : mr->addr, moves ? length : mr->length,
		   moves ? (uintptr_t)addr : old->iova, flags & IBV_REREG_MR_CHANGE_ACCESS ? (unsigned)access : old->access);
	if (!made)
		return IBV_REREG_MR_ERR_CMD;
	new = (struct mr *)made;
	handle = old->handle;
	*old = *new;
	free(new);
	if (stag_destroy(stag_link_of(mr->context), STAG_KIND_MR, handle, NULL))
		stag_debug("the old region of rereg_mr is still in use");
	return 0;
}

// Advice would only make a device's translation faster.
int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list, uint32_t n)
{
	(void)pd, (void)flags, (void)list, (void)n;
	return advice <= IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT ? 0 : EOPNOTSUPP;
}

struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct stag_msg m = {.op = STAG_OP_MW};
	struct mw *w = calloc(1, sizeof *w);

	if (!w)
		return NULL;
	m.mw.pd = stag_pd_handle(pd);
	m.mw.type = type;
	if (stag_call(stag_link_of(pd->context), &m, NULL, 0, NULL, 0)) {
		free(w);
		return NULL;
	}
	w->mw = (struct ibv_mw){pd->context, pd, m.mw.rkey, m.handle, type};
	w->handle = m.handle;
	return &w->mw;
}

int dealloc_mw(struct ibv_mw *mw)
{
	int error = stag_destroy(stag_link_of(mw->context), STAG_KIND_MW, ((struct mw *)mw)->handle, NULL);

	if (!error)
		free(mw);
	return error;
}

// bind_mw binds a window of type 1. The library chooses its next key.
int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *b)
{
	struct ibv_send_wr *bad, wr = {
		.wr_id = b->wr_id,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = b->send_flags,
		.bind_mw = {.mw = mw, .rkey = ibv_inc_rkey(mw->rkey), .bind_info = b->bind_info},
	};
	int error = post_send(qp, &wr, &bad);

	if (!error)
		mw->rkey = wr.bind_mw.rkey;
	return error;
}

// From rdma-core 59 on. The installed verbs.h may be older, so that the structure stands
// here.
struct mr_init_attr {
	size_t length;
	int access;
	uint64_t comp_mask;
	uint64_t iova;
	void *addr;
	int fd;
	uint64_t fd_offset;
	void *dmah, *buf;
};

enum { MR_MASK_IOVA = 1, MR_MASK_ADDR = 2 };

struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct mr_init_attr *a);
struct ibv_mr *ibv_reg_mr_ex(struct ibv_pd *pd, struct mr_init_attr *a)
{
	if (a->comp_mask & ~(uint64_t)(MR_MASK_IOVA | MR_MASK_ADDR))
		return fail(EOPNOTSUPP);
	if (!(a->comp_mask & MR_MASK_ADDR))
		return fail(EINVAL);
	return reg(pd, a->addr, a->length, a->comp_mask & MR_MASK_IOVA ? a->iova : (uintptr_t)a->addr, a->access);
}
