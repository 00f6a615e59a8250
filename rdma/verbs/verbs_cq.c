// Completion channels and completion queues.
#include "objects.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct stag_msg m = {.op = STAG_OP_CHANNEL};
	struct channel *ch = calloc(1, sizeof *ch);
	int fd;

	if (!ch)
		return NULL;
	if (stag_call(stag_link_of(c), &m, NULL, 0, &fd, 1)) {
		free(ch);
		return NULL;
	}
	ch->channel.context = c;
	ch->channel.fd = fd;
	ch->handle = m.handle;
	return &ch->channel;
}

// refs of a channel is the number of its CQs. The lock is that of the context.
static void use(struct ibv_comp_channel *channel, int by)
{
	if (!channel)
		return;
	pthread_mutex_lock(&channel->context->mutex);
	channel->refcnt += by;
	pthread_mutex_unlock(&channel->context->mutex);
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	struct channel *ch = (struct channel *)channel;
	bool busy;
	int error;

	pthread_mutex_lock(&channel->context->mutex);
	busy = channel->refcnt;
	pthread_mutex_unlock(&channel->context->mutex);
	if (busy)
		return EBUSY;
	error = stag_destroy(stag_link_of(channel->context), STAG_KIND_CHANNEL, ch->handle, NULL);
	if (error)
		return error;
	close(channel->fd);
	free(ch);
	return 0;
}

// lay adds the cells in the memory behind fd to the list of the CQ. NULL with errno.
static struct cells *lay(struct cq *cq, int fd, size_t len)
{
	struct stag_cq_ring *r = stag_map(fd, len);
	struct cells *c;
	uint32_t depth;

	if (!r)
		return NULL;
	depth = r->shape.depth;
	c = calloc(1, sizeof *c);
	if (!c || r->shape.version != STAG_LAYOUT_VERSION || r->shape.slot != sizeof *c->cell || !depth ||
	    depth & (depth - 1) || STAG_SLOTS_AT + (uint64_t)depth * sizeof *c->cell > len) {
		errno = c ? EPROTO : ENOMEM;
		free(c);
		stag_unmap(r, len);
		return NULL;
	}
	*c = (struct cells){(struct stag_cell *)((char *)r + STAG_SLOTS_AT), depth - 1, r, len, cq->newest};
	cq->newest = c;
	return c;
}

// make asks the daemon for the CQ.
static bool make(struct cq *cq, uint32_t depth, struct ibv_comp_channel *channel, uint32_t vector)
{
	struct stag_msg m = {.op = STAG_OP_CQ};
	int fd, error;

	m.cq.depth = depth;
	m.cq.vector = vector;
	m.cq.cookie = cq->counted.cookie;
	m.cq.channel = channel ? ((struct channel *)channel)->handle : 0;
	if (stag_call(cq->link, &m, NULL, 0, &fd, 1))
		return false;
	cq->handle = m.handle;
	cq->now = lay(cq, fd, m.cq.length);
	if (cq->now) {
		cq->ring = cq->now->memory;
		return true;
	}
	error = errno;
	stag_destroy(cq->link, STAG_KIND_CQ, cq->handle, NULL);
	errno = error;
	return false;
}

static struct cq *create(struct ibv_context *c, uint32_t depth, void *cq_context, struct ibv_comp_channel *channel,
			 uint32_t vector)
{
	struct cq *cq;
	int error;

	if (!depth || depth > to_context(c)->device.device.max_cqe || vector >= (uint32_t)c->num_comp_vectors)
		return fail(EINVAL);
	cq = aligned_alloc(64, (sizeof *cq + 63) & ~63ul);
	if (!cq)
		return NULL;
	memset(cq, 0, sizeof *cq);
	cq->link = stag_link_of(c);
	if (!counted_enter(&cq->counted, cq)) {
		free(cq);
		return fail(ENOMEM);
	}
	if (!make(cq, depth, channel, vector)) {
		error = errno;
		counted_leave(&cq->counted);
		free(cq);
		return fail(error);
	}
	cq->ex.context = c;
	cq->ex.channel = channel;
	cq->ex.cq_context = cq_context;
	cq->ex.handle = cq->handle;
	cq->ex.cqe = cq->now->mask + 1;
	pthread_mutex_init(&cq->ex.mutex, NULL);
	pthread_cond_init(&cq->ex.cond, NULL);
	pthread_spin_init(&cq->lock, PTHREAD_PROCESS_PRIVATE);
	use(channel, 1);
	return cq;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *c, int depth, void *cq_context, struct ibv_comp_channel *channel,
			     int vector)
{
	struct cq *cq = depth < 1 || vector < 0 ? fail(EINVAL) : create(c, depth, cq_context, channel, vector);

	return cq ? ibv_cq_ex_to_cq(&cq->ex) : NULL;
}

// These are the flags that create_cq_ex can give.
enum {
	WC_FLAGS = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP |
		   IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_DLID_PATH_BITS,
	CQ_MASK = IBV_CQ_INIT_ATTR_MASK_FLAGS,
	CQ_FLAGS = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
};

struct ibv_cq_ex *create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a)
{
	uint32_t flags = a->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? a->flags : 0;
	struct cq *cq;

	if (a->wc_flags & ~(uint64_t)WC_FLAGS || a->comp_mask & ~CQ_MASK || flags & ~CQ_FLAGS)
		return fail(EOPNOTSUPP);
	cq = create(c, a->cqe, a->cq_context, a->channel, a->comp_vector);
	if (!cq)
		return NULL;
	cq->single = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
	cq_ex_ops(cq, a->wc_flags);
	return &cq->ex;
}

// unknown is the next ring of a CQ during a resize. It makes the CQ look as if it had
// completions, so that a poll waits for the lock. The daemon may have put a completion into the
// new ring already. A poll that missed it could be the last before the program sleeps.
static struct cells unknown;

// grow asks the daemon for a larger ring, and returns 0 or an errno. The lock must be held.
static int grow(struct cq *cq, int depth)
{
	struct stag_msg m = {.op = STAG_OP_RESIZE_CQ, .handle = cq->handle};
	struct cells *next = NULL;
	int fd, error = 0;

	__atomic_store_n(&cq->next, &unknown, __ATOMIC_SEQ_CST);
	m.cq.depth = depth;
	if (stag_call(cq->link, &m, NULL, 0, &fd, 1) || !(next = lay(cq, fd, m.cq.length)))
		error = errno;
	__atomic_store_n(&cq->next, next, __ATOMIC_SEQ_CST);
	if (next)
		cq->ex.cqe = next->mask + 1;
	return error;
}

// A CQ that is large enough keeps its size, as with other adapters.
int ibv_resize_cq(struct ibv_cq *ibv, int depth)
{
	struct cq *cq = to_cq(ibv);
	int error = EBUSY; // completions wait in the ring before the last resize

	if (depth < 1 || (uint32_t)depth > to_context(ibv->context)->device.device.max_cqe)
		return EINVAL;
	if (depth <= ibv->cqe)
		return 0;
	pthread_spin_lock(&cq->lock);
	if (!cq->next)
		error = grow(cq, depth);
	pthread_spin_unlock(&cq->lock);
	return error;
}

// settle waits until the program has acknowledged all events that it has got.
static void settle(struct cq *cq)
{
	pthread_mutex_lock(&cq->ex.mutex);
	while (cq->ex.comp_events_completed != cq->counted.comp || cq->ex.async_events_completed != cq->counted.async)
		pthread_cond_wait(&cq->ex.cond, &cq->ex.mutex);
	pthread_mutex_unlock(&cq->ex.mutex);
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct cq *cq = to_cq(ibv);
	int error = stag_destroy(cq->link, STAG_KIND_CQ, cq->handle, NULL);

	if (error)
		return error;
	counted_leave(&cq->counted);
	if (!stag_left(cq->link)) {
		settle(cq);
		use(ibv->channel, -1);
	}
	for (struct cells *c = cq->newest; c;) {
		struct cells *older = c->older;

		stag_unmap(c->memory, c->len);
		free(c);
		c = older;
	}
	pthread_spin_destroy(&cq->lock);
	pthread_mutex_destroy(&cq->ex.mutex);
	pthread_cond_destroy(&cq->ex.cond);
	free(cq);
	return 0;
}

// An event of a CQ that has been destroyed is skipped.
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context)
{
	uint64_t cookie;
	struct cq *found;
	ssize_t n;

	do {
		n = read(channel->fd, &cookie, sizeof cookie);
		if (n != sizeof cookie) {
			if (n >= 0)
				errno = EIO; // the daemon has gone
			return -1;
		}
		found = counted_comp(cookie);
	} while (!found);
	*cq = ibv_cq_ex_to_cq(&found->ex);
	*cq_context = found->ex.cq_context;
	return 0;
}

uint64_t stag_cq_handle(const struct ibv_cq *cq)
{
	return cq ? to_cq(cq)->handle : 0;
}
