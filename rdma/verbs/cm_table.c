// The ids of the process by their handles. An event names the handle of its id: an event of
// an id that is gone meets no memory that is in use again.
#include "cm.h"

enum { BUCKETS = 1024 };

pthread_mutex_t cm_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acknowledged = PTHREAD_COND_INITIALIZER;
static struct id *buckets[BUCKETS];

static struct id **bucket(uint64_t handle)
{
	return &buckets[handle % BUCKETS];
}

void cm_enter(struct id *id)
{
	pthread_mutex_lock(&cm_lock);
	id->next = *bucket(id->handle);
	*bucket(id->handle) = id;
	pthread_mutex_unlock(&cm_lock);
}

void cm_leave(struct id *id)
{
	pthread_mutex_lock(&cm_lock);
	for (struct id **p = bucket(id->handle); *p; p = &(*p)->next) {
		if (*p == id) {
			*p = id->next;
			break;
		}
	}
	while (id->given)
		pthread_cond_wait(&acknowledged, &cm_lock);
	pthread_mutex_unlock(&cm_lock);
}

struct id *cm_take(const struct stag_link *link, uint64_t handle)
{
	struct id *id;

	pthread_mutex_lock(&cm_lock);
	for (id = *bucket(handle); id && (id->handle != handle || id->link != link); id = id->next)
		;
	if (id)
		id->given++;
	pthread_mutex_unlock(&cm_lock);
	return id;
}

struct id *cm_untold(struct rdma_event_channel *channel)
{
	struct id *found = NULL;

	pthread_mutex_lock(&cm_lock);
	for (int i = 0; i < BUCKETS && !found; i++) {
		for (struct id *id = buckets[i]; id && !found; id = id->next) {
			if (id->pub.channel == channel && !id->told)
				found = id;
		}
	}
	if (found) {
		found->told = true;
		found->given++;
	}
	pthread_mutex_unlock(&cm_lock);
	return found;
}

void cm_acknowledged(struct id *id)
{
	pthread_mutex_lock(&cm_lock);
	if (!--id->given)
		pthread_cond_broadcast(&acknowledged);
	pthread_mutex_unlock(&cm_lock);
}
