// rsockets: waiting. A socket has two descriptors: the event channel of the connection
// manager, and the completion channel.
#include "cm_rs.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// SHARED_MS is the longest sleep of rpoll. Another thread that waits for the same socket may
// take the event that rpoll sleeps for.
enum { SHARED_MS = 100, FEW = 64 };

// drain takes the events from the completion channel.
static void drain(struct rs *s)
{
	struct ibv_cq *cq;
	void *context;

	while (s->channel && !ibv_get_cq_event(s->channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
}

// look handles everything that has happened.
static void look(struct rs *s)
{
	rs_advance(s);
	rs_progress(s);
}

// arm asks for an event, and looks again at what came before.
static void arm(struct rs *s)
{
	if (!s->cq)
		return;
	ibv_req_notify_cq(s->cq, 0);
	rs_progress(s);
}

// descriptors stores what poll(2) watches for a socket, and returns their number.
static int descriptors(const struct rs *s, struct pollfd *p)
{
	int n = 0;

	if (s->state != RS_GONE)
		p[n++] = (struct pollfd){.fd = s->fd, .events = POLLIN};
	if (s->channel)
		p[n++] = (struct pollfd){.fd = s->channel->fd, .events = POLLIN};
	return n;
}

int rs_wait(struct rs *s, bool (*ready)(const struct rs *s), bool dont)
{
	for (;;) {
		struct pollfd p[2];
		int n, result, error;

		look(s);
		if (ready(s))
			return 0;
		if (dont || s->nonblocking)
			return cm_fail(EAGAIN);
		if (s->sleeping) {
			pthread_cond_wait(&s->progressed, &s->lock);
			continue;
		}
		arm(s);
		if (ready(s))
			return 0;
		n = descriptors(s, p);
		s->sleeping = true;
		pthread_mutex_unlock(&s->lock);
		result = poll(p, (nfds_t)n, -1);
		error = errno;
		pthread_mutex_lock(&s->lock);
		s->sleeping = false;
		drain(s);
		pthread_cond_broadcast(&s->progressed);
		if (result < 0)
			return cm_fail(error);
	}
}

short rs_ready(struct rs *s, short events)
{
	short r = 0;

	if (s->state == RS_LISTENING)
		return (short)(s->request ? events & POLLIN : 0);
	if (s->state == RS_CONNECTING)
		return 0;
	if (rs_can_read(s))
		r |= events & POLLIN;
	if (rs_can_write(s))
		r |= events & POLLOUT;
	if (s->state == RS_GONE && s->first == s->last) // programs give up at POLLHUP, also with octets to read
		r |= POLLHUP;
	if (s->state == RS_FAILED)
		r |= POLLERR;
	return r;
}

// examine sets the results of all descriptors, and returns how many are ready. With sleep it
// also arms the sockets.
static int examine(struct pollfd *fds, nfds_t n, bool sleep)
{
	int ready = 0;

	for (nfds_t i = 0; i < n; i++) {
		struct rs *s = fds[i].fd < 0 ? NULL : rs_find(fds[i].fd);

		fds[i].revents = 0;
		if (s) {
			pthread_mutex_lock(&s->lock);
			drain(s);
			look(s);
			if (sleep)
				arm(s);
			fds[i].revents = rs_ready(s, fds[i].events);
			pthread_mutex_unlock(&s->lock);
		} else if (fds[i].fd >= 0) {
			struct pollfd one = fds[i];

			poll(&one, 1, 0);
			fds[i].revents = one.revents;
		}
		ready += fds[i].revents != 0;
	}
	return ready;
}

// gather stores what poll(2) watches for all descriptors, and returns their number.
static nfds_t gather(struct pollfd *p, const struct pollfd *fds, nfds_t n)
{
	nfds_t k = 0;

	for (nfds_t i = 0; i < n; i++) {
		struct rs *s = fds[i].fd < 0 ? NULL : rs_find(fds[i].fd);

		if (s)
			k += (nfds_t)descriptors(s, p + k);
		else if (fds[i].fd >= 0)
			p[k++] = fds[i];
	}
	return k;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// sleep_on sleeps until something may have happened, or until end (-1: no end). It returns 1, 0
// after the end, or -1.
static int sleep_on(const struct pollfd *fds, nfds_t n, struct pollfd *p, int64_t end)
{
	nfds_t k = gather(p, fds, n);
	int64_t left = end < 0 ? SHARED_MS : end - now_ms();

	if (left <= 0)
		return 0;
	return poll(p, k, (int)(left < SHARED_MS ? left : SHARED_MS)) < 0 ? -1 : 1;
}

int rpoll(struct pollfd *fds, nfds_t n, int timeout)
{
	struct pollfd few[2 * FEW], *p = few;
	int64_t end = timeout < 0 ? -1 : now_ms() + timeout;
	int ready, awake = 1;

	ready = examine(fds, n, false);
	if (ready || !timeout)
		return ready;
	if (n > FEW) {
		p = calloc(2 * n, sizeof *p);
		if (!p)
			return -1;
	}
	while (!(ready = examine(fds, n, true)) && awake > 0)
		awake = sleep_on(fds, n, p, end);
	if (!ready && awake < 0)
		ready = -1;
	if (p != few)
		free(p);
	return ready;
}

// wanted returns what a descriptor's bits in the sets ask for.
static short wanted(int fd, fd_set *r, fd_set *w, fd_set *x)
{
	return (short)((r && FD_ISSET(fd, r) ? POLLIN : 0) | (w && FD_ISSET(fd, w) ? POLLOUT : 0) | (x && FD_ISSET(fd, x) ? POLLPRI : 0));
}

// answer sets the bit of a descriptor in a set if it was asked for and has come.
static int answer(const struct pollfd *p, fd_set *set, short asked, short came)
{
	if (!set || !(p->events & asked))
		return 0;
	if (p->revents & came)
		return 1;
	FD_CLR(p->fd, set);
	return 0;
}

int rselect(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *timeout)
{
	struct pollfd fds[FD_SETSIZE];
	nfds_t k = 0;
	int ready, bits = 0;

	for (int fd = 0; fd < n && fd < FD_SETSIZE; fd++) {
		short events = wanted(fd, r, w, x);

		if (events)
			fds[k++] = (struct pollfd){.fd = fd, .events = events};
	}
	ready = rpoll(fds, k, timeout ? (int)(timeout->tv_sec * 1000 + timeout->tv_usec / 1000) : -1);
	if (ready < 0)
		return -1;
	for (nfds_t i = 0; i < k; i++) {
		bits += answer(&fds[i], r, POLLIN, POLLIN | POLLHUP | POLLERR);
		bits += answer(&fds[i], w, POLLOUT, POLLOUT | POLLERR);
		bits += answer(&fds[i], x, POLLPRI, POLLPRI);
	}
	return bits;
}
