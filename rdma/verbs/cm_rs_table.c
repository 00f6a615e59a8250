// The table of rsockets. A socket has the number of the descriptor of its event channel.
#include "cm_rs.h"

#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rs *sockets[RS_MAX];

struct rs *rs_new(struct rdma_cm_id *cm)
{
	struct rs *s;

	if (cm->channel->fd >= RS_MAX) {
		errno = EMFILE;
		return NULL;
	}
	s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->progressed, NULL);
	s->cm = cm;
	s->fd = cm->channel->fd;
	cm->context = s;
	pthread_mutex_lock(&lock);
	sockets[s->fd] = s;
	pthread_mutex_unlock(&lock);
	return s;
}

struct rs *rs_find(int fd)
{
	struct rs *s = NULL;

	if (fd >= 0 && fd < RS_MAX) {
		pthread_mutex_lock(&lock);
		s = sockets[fd];
		pthread_mutex_unlock(&lock);
	}
	if (!s)
		errno = EBADF;
	return s;
}

void rs_forget(struct rs *s)
{
	pthread_mutex_lock(&lock);
	sockets[s->fd] = NULL;
	pthread_mutex_unlock(&lock);
}
