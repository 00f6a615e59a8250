// The objects of libibverbs.so.1. Each begins with the structure of verbs.h that programs
// see.
#ifndef STAG_OBJECTS_H
#define STAG_OBJECTS_H

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "core.h"

// With some compilers verbs.h has macros of these names.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

// STAG_FORKED is the word gone of a bell page in a child that has left the parent's link.
#define STAG_FORKED 2

struct stag_link {
	struct stag_link *older;
	uint32_t life; // counts the links of this process
	int fd;	       // the control connection, or -1
	int wake;      // the eventfd that wakes the daemon
	uint32_t bits; // in the bell page
	struct stag_bell *bell;
	uint64_t token[2];
};

// stag_look ends the link if the daemon has closed the connection. CQs that are polled and
// stay empty call it now and then.
void stag_look(struct stag_link *l);

// Around fork all locks are held, so that the child finds nothing half done. The device's lock
// comes first, because it is held for the time of a request. device_forked forgets the
// parent's objects that the libraries keep for themselves.
void device_lock(void);
void device_unlock(void);
void device_forked(void);
void events_lock(void);
void events_unlock(void);

// stag_left reports whether this process is a child that has left the link to its parent.
// Locks of the link's objects may be held for ever, by threads of the parent.
static inline bool stag_left(const struct stag_link *l)
{
	return __atomic_load_n(&l->bell->gone, __ATOMIC_ACQUIRE) == STAG_FORKED;
}

// stag_hint tells a person that there is no daemon.
void stag_hint(void);

// Programs see context, at the end of v.
struct context {
	struct stag_link *link;
	struct stag_msg device; // the answer of DEVICE
	bool told;		// the program knows that the daemon has gone
	struct verbs_context v;
};

struct pd {
	struct ibv_pd pd;
	uint64_t handle;
};

struct mr {
	struct ibv_mr mr;
	uint64_t handle;
	uint64_t iova;
	unsigned access;
};

struct mw {
	struct ibv_mw mw;
	uint64_t handle;
};

struct channel {
	struct ibv_comp_channel channel;
	uint64_t handle;
};

// A counted object has events that the program acknowledges. cookie names it in events. The
// daemon keeps the cookie, which is not used again when the object is destroyed.
struct counted {
	uint64_t cookie;
	uint32_t comp;	// completion events that the program has got; for CQs
	uint32_t async; // asynchronous events that the program has got
};

// cells is a completion ring without its first lines, which stay in the first memory of the
// CQ. It does not change, and lives as long as the CQ: a poll that takes no lock may still
// read a ring that another thread has left.
struct cells {
	struct stag_cell *cell;
	uint64_t mask;
	void *memory;
	size_t len;
	struct cells *older;
};

struct cq {
	struct ibv_cq_ex ex;
	_Alignas(64) struct cells *now; // a poll of an empty CQ reads this line only
	struct cells *next;   // after a resize: where completions are that now does not have
	struct cells *newest; // the beginning of the list of all
	struct stag_cq_ring *ring;
	uint64_t head;
	uint32_t idle;	  // empty polls in a row
	bool single;	  // one thread only: no lock
	bool entered;	  // start_poll has succeeded, and end_poll has not been called
	struct ibv_wc wc; // the present completion of start_poll and next_poll
	pthread_spinlock_t lock;
	struct stag_link *link;
	uint64_t handle;
	struct counted counted;
};

struct srq {
	struct ibv_srq srq;
	struct stag_queue_ring *ring;
	uint8_t *slots;
	uint32_t slot, mask, depth, elements;
	uint32_t tail;
	uint32_t returned; // places whose completions have been polled
	uint32_t bit;
	pthread_spinlock_t lock;
	struct stag_link *link;
	size_t len;
	uint64_t handle;
	struct counted counted;
};

// queue is a send queue or a receive queue of a QP, as its poster sees it.
struct queue {
	struct stag_queue_ring *ring;
	uint8_t *slots;
	uint32_t slot, mask, depth, elements;
	uint32_t tail;
	uint32_t free;	   // the position before which there is room for sure
	uint32_t returned; // places whose completions have been polled; pollers write it
	uint32_t flushed;  // position of the next request to flush after the daemon has gone
	pthread_spinlock_t lock;
};

// building is what the functions of ibv_qp_ex have collected since wr_start.
struct building {
	uint32_t tail; // position behind the last request
	int error;
	struct stag_send_slot *slot;
	bool immediate, atomic;
};

struct qp {
	struct ibv_qp_ex ex; // must be first
	struct queue sq;
	struct queue rq;
	struct srq *srq;
	bool is_ex;
	uint32_t inline_len;
	uint32_t bit;
	uint8_t always; // flags of every send request
	struct building wr;
	struct stag_link *link;
	void *memory;
	size_t len;
	uint64_t handle;
	struct counted counted;
	struct ibv_qp_init_attr init;
	struct qp *older, *newer; // in the list of all QPs
};

static inline struct cq *to_cq(const struct ibv_cq *cq) { return (struct cq *)cq; }
static inline struct qp *to_qp(const struct ibv_qp *qp) { return (struct qp *)qp; }
static inline struct srq *to_srq(const struct ibv_srq *srq) { return (struct srq *)srq; }

static inline struct context *to_context(const struct ibv_context *c)
{
	return (struct context *)((char *)c - offsetof(struct context, v.context));
}

// stag_wake wakes the daemon, which has said that it sleeps.
void stag_wake(struct stag_link *l);

// ring_bell tells the daemon that the queue of the bit has new requests.
static inline void ring_bell(struct stag_link *l, uint32_t bit)
{
	__atomic_fetch_or(&l->bell->bits[bit / 64], 1ull << bit % 64, __ATOMIC_SEQ_CST);
	if (__builtin_expect(__atomic_load_n(&l->bell->asleep, __ATOMIC_SEQ_CST), 0))
		stag_wake(l);
}

// The table of QPs by number, which pollers read without a lock.
#define QP_BITS 24 // octets of a QP number that count
#define QP_PAGE 4096
extern struct qp **stag_qps[(1 << QP_BITS) / QP_PAGE];

static inline struct qp *qp_of(uint32_t number)
{
	struct qp **page;

	if (number >> QP_BITS)
		return NULL;
	page = __atomic_load_n(&stag_qps[number / QP_PAGE], __ATOMIC_ACQUIRE);
	return page ? __atomic_load_n(&page[number % QP_PAGE], __ATOMIC_ACQUIRE) : NULL;
}

// fail sets errno and returns NULL.
static inline void *fail(int error)
{
	errno = error;
	return NULL;
}

// verbs_events.c: cookies. counted_enter gives the object a cookie; it returns false without
// memory. After counted_leave no event finds the object. counted_comp returns the CQ of a
// completion event and counts the event, or returns NULL.
bool counted_enter(struct counted *c, void *object);
void counted_leave(struct counted *c);
void *counted_comp(uint64_t cookie);

// async_open returns the descriptor of a connection for asynchronous events.
int async_open(struct stag_link *l);

// verbs_poll.c
int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int notify_cq(struct ibv_cq *cq, int solicited_only);
void cq_ex_ops(struct cq *cq, uint64_t wc_flags);
void cq_forget(struct cq *cq, struct qp *qp);

// verbs_flush.c: flush returns up to n completions of requests that died with the daemon.
int flush(struct cq *cq, int n, struct ibv_wc *wc);

// verbs_post.c
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
struct stag_send_slot *next_slot(struct qp *qp, uint32_t tail);
void post_built(struct qp *qp, uint32_t tail);
int fill_bind(struct stag_send_slot *s, const struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *b);

// The length of inline data of a request with Immediate Data has one octet in the slot.
enum { MAX_INLINE_IMM = 255 };

// verbs_wr.c
void qp_ex_ops(struct qp *qp);

// verbs_cq.c, verbs_qp.c, verbs_srq.c, verbs_mr.c: members of the context.
struct ibv_cq_ex *create_cq_ex(struct ibv_context *c, struct ibv_cq_init_attr_ex *a);
struct ibv_qp *create_qp_ex(struct ibv_context *c, struct ibv_qp_init_attr_ex *a);
struct ibv_srq *create_srq_ex(struct ibv_context *c, struct ibv_srq_init_attr_ex *a);
int get_srq_num(struct ibv_srq *srq, uint32_t *number);
int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *list, uint32_t n);
struct ibv_mw *alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int dealloc_mw(struct ibv_mw *mw);

// The list of all QPs, and its lock.
extern pthread_mutex_t stag_qps_lock;
extern struct qp *stag_all_qps;

#endif
