// Asynchronous events, and the cookies that name objects in events.
#include "objects.h"

#include <stdlib.h>
#include <unistd.h>

// places has the object of each cookie. A cookie is turn * 2^32 + index. turn counts the
// objects that had the place, so that late events of a destroyed object name nothing.
static struct place {
	struct counted *counted;
	void *object;
	uint32_t turn;
	uint32_t free; // of a free place: the next free one, or 0
} *places;
static uint32_t used, room, first_free;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void events_lock(void)
{
	pthread_mutex_lock(&lock);
}

void events_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

// grow makes room for one more place. Place 0 is not used, so that no cookie is 0.
static bool grow(void)
{
	uint32_t want = room ? 2 * room : 64;
	struct place *p;

	if (used < room)
		return true;
	p = realloc(places, want * sizeof *p);
	if (!p)
		return false;
	places = p;
	room = want;
	if (!used)
		places[used++] = (struct place){0};
	return true;
}

bool counted_enter(struct counted *c, void *object)
{
	uint32_t i;
	bool there = true;

	pthread_mutex_lock(&lock);
	i = first_free;
	if (i) {
		first_free = places[i].free;
	} else if ((there = grow())) {
		i = used++;
		places[i].turn = 0;
	}
	if (there) {
		places[i].counted = c;
		places[i].object = object;
		c->cookie = (uint64_t)places[i].turn << 32 | i;
	}
	pthread_mutex_unlock(&lock);
	return there;
}

void counted_leave(struct counted *c)
{
	uint32_t i = c->cookie;

	pthread_mutex_lock(&lock);
	places[i].counted = NULL;
	places[i].object = NULL;
	places[i].turn++;
	places[i].free = first_free;
	first_free = i;
	pthread_mutex_unlock(&lock);
}

// find returns the place of the cookie, or NULL. lock must be held.
static struct place *find(uint64_t cookie)
{
	uint32_t i = cookie;

	return i < used && places[i].object && places[i].turn == cookie >> 32 ? &places[i] : NULL;
}

void *counted_comp(uint64_t cookie)
{
	struct place *p;
	void *object = NULL;

	pthread_mutex_lock(&lock);
	p = find(cookie);
	if (p) {
		p->counted->comp++;
		object = p->object;
	}
	pthread_mutex_unlock(&lock);
	return object;
}

// counted_async counts an asynchronous event of the object and returns the object.
static void *counted_async(uint64_t cookie)
{
	struct place *p;
	void *object = NULL;

	pthread_mutex_lock(&lock);
	p = find(cookie);
	if (p) {
		p->counted->async++;
		object = p->object;
	}
	pthread_mutex_unlock(&lock);
	return object;
}

int async_open(struct stag_link *l)
{
	struct stag_msg m = {.op = STAG_OP_ASYNC};
	int fd = stag_connect(), error;

	if (fd < 0)
		return -1;
	stag_token(l, m.attach.token);
	if (!stag_send(fd, &m, NULL, 0) && !stag_recv(fd, &m, NULL, 0)) {
		if (!m.err)
			return fd;
		errno = m.err;
	}
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

// element sets what the event is about. It returns false if the object has been destroyed.
static bool element(struct ibv_async_event *e, const struct stag_async *a)
{
	void *object;

	switch (a->kind) {
	case STAG_KIND_CQ:
		object = counted_async(a->cookie);
		e->element.cq = object;
		return object;
	case STAG_KIND_QP:
		object = counted_async(a->cookie);
		e->element.qp = object;
		return object;
	case STAG_KIND_SRQ:
		object = counted_async(a->cookie);
		e->element.srq = object;
		return object;
	}
	e->element.port_num = a->port_num;
	return true;
}

int ibv_get_async_event(struct ibv_context *c, struct ibv_async_event *event)
{
	struct stag_msg m;

	for (;;) {
		if (stag_recv(c->async_fd, &m, NULL, 0)) {
			if (errno != ECONNRESET || to_context(c)->told)
				return -1;
			to_context(c)->told = true;
			stag_look(to_context(c)->link);
			*event = (struct ibv_async_event){.event_type = IBV_EVENT_DEVICE_FATAL};
			return 0;
		}
		event->event_type = m.async.event;
		if (m.op == STAG_OP_ASYNC_EVENT && element(event, &m.async))
			return 0;
	}
}

// acknowledge adds to a count that the destruction of the object waits for.
static void acknowledge(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed, uint32_t n)
{
	pthread_mutex_lock(mutex);
	*completed += n;
	pthread_cond_broadcast(cond);
	pthread_mutex_unlock(mutex);
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR: {
		struct ibv_cq *cq = event->element.cq;

		acknowledge(&cq->mutex, &cq->cond, &cq->async_events_completed, 1);
		return;
	}
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED: {
		struct ibv_qp *qp = event->element.qp;

		acknowledge(&qp->mutex, &qp->cond, &qp->events_completed, 1);
		return;
	}
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED: {
		struct ibv_srq *srq = event->element.srq;

		acknowledge(&srq->mutex, &srq->cond, &srq->events_completed, 1);
		return;
	}
	default:
		return;
	}
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	acknowledge(&cq->mutex, &cq->cond, &cq->comp_events_completed, n);
}
