#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { OBJECTS = 512, CONNECTIONS = 64, MAX_INLINE = 512 };

static struct object objects[OBJECTS];
static struct stag_msg last[64];
static struct pollfd fds[CONNECTIONS];
static bool async[CONNECTIONS];
static int used, wake = -1, stopping = -1;
static struct stag_bell *bell;
static pthread_t thread;
void (*fake_resized)(uint64_t cq);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void die(const char *what)
{
	perror(what);
	exit(2);
}

// memfd makes sealed memory and maps it.
static void *memfd(size_t len, int *fd)
{
	void *p;

	*fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0 || ftruncate(*fd, len) || fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		die("memfd");
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	if (p == MAP_FAILED)
		die("mmap");
	return p;
}

static uint64_t enter(enum stag_kind kind, uint64_t cookie)
{
	for (int i = 1; i < OBJECTS; i++)
		if (!objects[i].kind) {
			objects[i] = (struct object){.kind = kind, .cookie = cookie};
			return i;
		}
	die("too many objects");
	return 0;
}

static uint32_t power(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p *= 2;
	return p;
}

static int hello(struct stag_msg *m, int *give)
{
	bell = memfd(STAG_BELL_LEN, &give[0]);
	wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	give[1] = dup(wake);
	m->hello.token[0] = 7;
	m->hello.bell_len = STAG_BELL_LEN;
	m->hello.bell_bits = STAG_BELL_BITS;
	m->hello.devices = m->hello.ports = 1;
	return 2;
}

static void device(struct stag_msg *m)
{
	struct stag_device *d = &m->device;

	strcpy(d->name, "stag0");
	strcpy(d->firmware, "fake");
	d->features = STAG_FEATURE_SRQ | STAG_FEATURE_MW | STAG_FEATURE_ATOMICS;
	d->ports = 1;
	d->max_qp = d->max_cq = d->max_mr = d->max_pd = d->max_srq = 100;
	d->max_qp_wr = d->max_cqe = d->max_srq_wr = 1 << 16;
	d->max_sge = d->max_srq_sge = 8;
	d->max_inline = MAX_INLINE;
	d->max_rd_atomic = 16;
	d->guid[7] = 42;
}

static int cq(struct stag_msg *m, int *give, bool resize)
{
	uint64_t h = resize ? m->handle : enter(STAG_KIND_CQ, m->cq.cookie);
	uint32_t depth = power(m->cq.depth < 2 ? 2 : m->cq.depth);
	size_t len = STAG_SLOTS_AT + depth * sizeof(struct stag_cell);
	struct stag_cq_ring *r = memfd(len, give);

	r->shape = (struct stag_shape){STAG_LAYOUT_VERSION, depth, sizeof(struct stag_cell), 0, 0};
	objects[h].depth = depth;
	if (resize) {
		objects[h].resized = (uint8_t *)r;
		objects[h].moved = objects[h].tail;
	} else {
		objects[h].memory = (uint8_t *)r;
		objects[h].len = len;
		objects[h].channel = m->cq.channel;
	}
	m->handle = h;
	m->cq.depth = depth;
	m->cq.length = len;
	if (resize && fake_resized)
		fake_resized(h);
	return 1;
}

static size_t lay(struct stag_queue_ring *r, uint32_t depth, uint32_t slot, uint32_t elements, uint32_t inline_len)
{
	if (r)
		r->shape = (struct stag_shape){STAG_LAYOUT_VERSION, depth, slot, elements, inline_len};
	return (STAG_SLOTS_AT + (size_t)power(depth) * slot + 63) & ~63ul;
}

static int qp(struct stag_msg *m, int *give)
{
	struct stag_qp *q = &m->qp;
	uint64_t h = enter(STAG_KIND_QP, q->cookie);
	uint32_t body = q->send_sge * 16 > q->inline_len ? q->send_sge * 16 : q->inline_len;
	uint32_t send = (32 + body + 31) & ~31u, recv = 16 + 16 * q->recv_sge;

	q->send_len = lay(NULL, q->send_depth, send, 0, 0);
	q->recv_offset = q->send_len;
	q->recv_len = q->srq ? 0 : lay(NULL, q->recv_depth, recv, 0, 0);
	q->length = q->send_len + q->recv_len;
	objects[h].memory = memfd(q->length, give);
	objects[h].len = q->length;
	objects[h].recv_at = q->recv_offset;
	lay((void *)objects[h].memory, q->send_depth, send, q->send_sge, q->inline_len);
	if (q->recv_len)
		lay((void *)(objects[h].memory + q->recv_offset), q->recv_depth, recv, q->recv_sge, 0);
	q->qpn = 1000 + h;
	q->bit = h;
	m->handle = h;
	return 1;
}

static int srq(struct stag_msg *m, int *give)
{
	uint64_t h = enter(STAG_KIND_SRQ, m->srq.cookie);
	uint32_t slot = 16 + 16 * m->srq.sge;
	size_t len = lay(NULL, m->srq.depth, slot, 0, 0);

	objects[h].memory = memfd(len, give);
	objects[h].len = len;
	lay((void *)objects[h].memory, m->srq.depth, slot, m->srq.sge, 0);
	for (uint32_t i = 0; i < power(m->srq.depth); i++)
		fake_recv_slot((void *)objects[h].memory, i)->free = i;
	m->handle = h;
	m->srq.bit = h;
	m->srq.length = len;
	return 1;
}

static int channel(struct stag_msg *m, int *give)
{
	m->handle = enter(STAG_KIND_CHANNEL, 0);
	if (pipe2(objects[m->handle].pipe, O_CLOEXEC))
		die("pipe");
	give[0] = dup(objects[m->handle].pipe[0]);
	return 1;
}

static void destroy(struct stag_msg *m)
{
	struct object *o = &objects[m->handle % OBJECTS];

	if (o->kind == m->destroy.kind)
		o->kind = 0;
	else
		m->err = EINVAL;
}

// answer turns the request into its answer, and returns how many descriptors go with it.
static int answer(struct stag_msg *m, int *give)
{
	switch (m->op) {
	case STAG_OP_HELLO:
		return hello(m, give);
	case STAG_OP_DEVICE:
		device(m);
		return 0;
	case STAG_OP_PORT:
		m->port = (struct stag_port){.port_num = 1, .state = 4, .mtu = 1500, .gids = 1, .speed = 25000};
		return 0;
	case STAG_OP_GID:
		m->err = m->gid.index ? ENODATA : 0;
		m->gid.gid[10] = m->gid.gid[11] = 0xff;
		m->gid.gid[12] = 10;
		return 0;
	case STAG_OP_PD:
		m->handle = enter(STAG_KIND_PD, 0);
		return 0;
	case STAG_OP_MR:
		m->handle = enter(STAG_KIND_MR, 0);
		m->mr.lkey = m->mr.rkey = 256 * m->handle;
		return 0;
	case STAG_OP_MW:
		m->handle = enter(STAG_KIND_MW, 0);
		m->mw.rkey = 256 * m->handle + 255;
		return 0;
	case STAG_OP_CHANNEL:
		return channel(m, give);
	case STAG_OP_CQ:
	case STAG_OP_RESIZE_CQ:
		return cq(m, give, m->op == STAG_OP_RESIZE_CQ);
	case STAG_OP_QP:
		return qp(m, give);
	case STAG_OP_SRQ:
		return srq(m, give);
	case STAG_OP_MODIFY_QP:
	case STAG_OP_QUERY_QP:
	case STAG_OP_MODIFY_SRQ:
	case STAG_OP_QUERY_SRQ:
	case STAG_OP_ASYNC:
		return 0;
	case STAG_OP_DESTROY:
		destroy(m);
		return 0;
	}
	m->err = EOPNOTSUPP;
	return 0;
}

static void reply(int fd, struct stag_msg *m, int *give, int n)
{
	struct iovec v = {m, sizeof *m};
	union {
		struct cmsghdr align;
		char octets[CMSG_SPACE(2 * sizeof(int))];
	} control = {0};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};

	if (n) {
		struct cmsghdr *c;

		h.msg_control = &control;
		h.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), give, n * sizeof(int));
	}
	if (sendmsg(fd, &h, MSG_NOSIGNAL) != sizeof *m)
		perror("answer");
	for (int i = 0; i < n; i++)
		close(give[i]);
}

// drop closes the connection at i.
static void drop(int i)
{
	close(fds[i].fd);
	fds[i] = fds[--used];
	async[i] = async[used];
}

static void serve(int i)
{
	struct stag_msg m;
	int give[2], n;

	if (recv(fds[i].fd, &m, sizeof m, 0) != sizeof m) {
		drop(i);
		return;
	}
	async[i] |= m.op == STAG_OP_ASYNC;
	n = answer(&m, give);
	last[m.op % 64] = m;
	reply(fds[i].fd, &m, give, n);
}

static void *run(void *unused)
{
	for (;;) {
		if (poll(fds, used, -1) < 0)
			continue;
		pthread_mutex_lock(&lock);
		if (fds[0].revents)
			break;
		if (fds[1].revents) {
			int fd = accept4(fds[1].fd, NULL, NULL, SOCK_CLOEXEC);

			async[used] = false;
			fds[used++] = (struct pollfd){fd, POLLIN, 0};
		}
		for (int i = used - 1; i >= 2; i--)
			if (fds[i].revents)
				serve(i);
		pthread_mutex_unlock(&lock);
	}
	while (used > 1)
		drop(used - 1);
	pthread_mutex_unlock(&lock);
	return unused;
}

void fake_start(const char *directory)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof a.sun_path, "%s/fake.sock", directory);
	unlink(a.sun_path);
	if (bind(fd, (struct sockaddr *)&a, sizeof a) || listen(fd, 8))
		die(a.sun_path);
	stopping = eventfd(0, EFD_CLOEXEC);
	fds[0] = (struct pollfd){stopping, POLLIN, 0};
	fds[1] = (struct pollfd){fd, POLLIN, 0};
	used = 2;
	setenv(STAG_SOCKET_VARIABLE, a.sun_path, 1);
	if (pthread_create(&thread, NULL, run, NULL))
		die("thread");
}

void fake_stop(void)
{
	uint64_t one = 1;

	if (write(stopping, &one, sizeof one) != sizeof one)
		die("stop");
	pthread_join(thread, NULL);
	unlink(getenv(STAG_SOCKET_VARIABLE));
}

struct object *fake_object(uint64_t handle)
{
	return &objects[handle];
}

struct stag_bell *fake_bell(void)
{
	return bell;
}

uint64_t fake_woken(void)
{
	uint64_t n;

	return read(wake, &n, sizeof n) == sizeof n ? n : 0;
}

struct stag_msg *fake_last(enum stag_op op)
{
	return &last[op % 64];
}

void fake_async(const struct stag_async *a)
{
	struct stag_msg m = {.op = STAG_OP_ASYNC_EVENT, .async = *a};

	pthread_mutex_lock(&lock);
	for (int i = 2; i < used; i++)
		if (async[i])
			reply(fds[i].fd, &m, NULL, 0);
	pthread_mutex_unlock(&lock);
}

struct stag_queue_ring *fake_send_ring(uint64_t qp)
{
	return (struct stag_queue_ring *)objects[qp].memory;
}

struct stag_queue_ring *fake_recv_ring(uint64_t qp)
{
	return (struct stag_queue_ring *)(objects[qp].memory + objects[qp].recv_at);
}

static void *slot(struct stag_queue_ring *r, uint32_t pos)
{
	return (uint8_t *)r + STAG_SLOTS_AT + (size_t)(pos & (power(r->shape.depth) - 1)) * r->shape.slot;
}

struct stag_send_slot *fake_send_slot(uint64_t qp, uint32_t pos)
{
	return slot(fake_send_ring(qp), pos);
}

struct stag_recv_slot *fake_recv_slot(struct stag_queue_ring *r, uint32_t pos)
{
	return slot(r, pos);
}

void fake_complete(uint64_t cq, struct stag_cell c)
{
	struct object *o = &objects[cq];
	struct stag_cq_ring *r = (struct stag_cq_ring *)(o->resized && o->tail >= o->moved ? o->resized : o->memory);
	struct stag_cell *to = (struct stag_cell *)((uint8_t *)r + STAG_SLOTS_AT) + (o->tail & (r->shape.depth - 1));

	c.seq = to->seq;
	*to = c;
	__atomic_store_n(&to->seq, ++o->tail, __ATOMIC_RELEASE);
	r = (struct stag_cq_ring *)o->memory;
	if (__atomic_load_n(&r->armed, __ATOMIC_SEQ_CST) && o->channel) {
		__atomic_store_n(&r->armed, 0, __ATOMIC_SEQ_CST);
		if (write(objects[o->channel].pipe[1], &o->cookie, sizeof o->cookie) != sizeof o->cookie)
			die("pipe");
	}
}
