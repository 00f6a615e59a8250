// The control connection to the daemon.
#include "core.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "objects.h"

enum { MAX_FDS = 4 };

// present is the link of this process. lock protects present, and is held for the time of
// a request.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stag_link *present;

// enter takes the lock. A thread that is cancelled within a request would keep the lock, and
// leave an answer for the next request, so that it is not cancelled before leave.
static int enter(void)
{
	int state;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	pthread_mutex_lock(&lock);
	return state;
}

static void leave(int state)
{
	pthread_mutex_unlock(&lock);
	pthread_setcancelstate(state, &state);
}

// mappings are the memory that the daemon has passed, so that a child can leave it.
static pthread_mutex_t maplock = PTHREAD_MUTEX_INITIALIZER;
static struct mapping {
	struct mapping *next;
	void *memory;
	size_t len;
} *mappings;

static bool debug, roce;

void stag_debug(const char *format, ...)
{
	int saved = errno;
	char line[512];
	va_list args;

	if (!debug)
		return;
	va_start(args, format);
	vsnprintf(line, sizeof line, format, args);
	va_end(args);
	fprintf(stderr, "stag: %s\n", line);
	errno = saved;
}

bool stag_roce(void)
{
	return roce;
}

// at returns where the daemon listens. secure_getenv ignores the variable in a program with
// more rights than its caller, because the daemon may write to the program's memory.
static const char *at(void)
{
	const char *path = secure_getenv(STAG_SOCKET_VARIABLE);

	return path && *path ? path : STAG_DEFAULT_SOCKET;
}

void stag_hint(void)
{
	const char *name = program_invocation_short_name;

	if (!debug && strcmp(name, "ibv_devices") && strcmp(name, "ibv_devinfo"))
		return;
	fprintf(stderr, "stag: no daemon at %s: start \"stag daemon -i IFACE\" or use \"stag run\"\n", at());
}

int stag_connect(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	const char *path = at();
	int fd, error;

	if (strlen(path) >= sizeof a.sun_path) {
		errno = ENAMETOOLONG;
		return -1;
	}
	strcpy(a.sun_path, path);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (connect(fd, (struct sockaddr *)&a, sizeof a)) {
		error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

int stag_send(int fd, const struct stag_msg *m, const int *fds, int n)
{
	struct iovec v = {(void *)m, sizeof *m};
	union {
		struct cmsghdr align;
		char octets[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} control = {0};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
	ssize_t sent;

	if (n > 0) {
		struct cmsghdr *c;

		h.msg_control = &control;
		h.msg_controllen = CMSG_SPACE(n * sizeof(int));
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n * sizeof(int));
	}
	do
		sent = sendmsg(fd, &h, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent == sizeof *m)
		return 0;
	if (sent >= 0)
		errno = EMSGSIZE;
	return -1;
}

// keep moves the descriptors of c to fds from *have on. It closes those beyond n.
static void keep(const struct cmsghdr *c, int *fds, int n, int *have)
{
	int count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	for (int i = 0; i < count; i++) {
		int fd;

		memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
		if (*have < n)
			fds[(*have)++] = fd;
		else
			close(fd);
	}
}

int stag_recv(int fd, struct stag_msg *m, int *fds, int n)
{
	struct iovec v = {m, sizeof *m};
	union {
		struct cmsghdr align;
		char octets[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} control;
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	ssize_t got;
	int have = 0;

	for (int i = 0; i < n; i++)
		fds[i] = -1;
	do
		got = recvmsg(fd, &h, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -1;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&h); c; c = CMSG_NXTHDR(&h, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
			keep(c, fds, n, &have);
	if (got == sizeof *m)
		return 0;
	for (int i = 0; i < have; i++) {
		close(fds[i]);
		fds[i] = -1;
	}
	errno = got ? EPROTO : ECONNRESET;
	return -1;
}

// remember lets a child of fork leave the memory.
static bool remember(void *memory, size_t len)
{
	struct mapping *m = malloc(sizeof *m);

	if (!m)
		return false;
	pthread_mutex_lock(&maplock);
	*m = (struct mapping){mappings, memory, len};
	mappings = m;
	pthread_mutex_unlock(&maplock);
	return true;
}

static void forget(void *memory)
{
	pthread_mutex_lock(&maplock);
	for (struct mapping **p = &mappings; *p; p = &(*p)->next)
		if ((*p)->memory == memory) {
			struct mapping *m = *p;

			*p = m->next;
			free(m);
			break;
		}
	pthread_mutex_unlock(&maplock);
}

// fits reports whether the memory cannot become shorter than len. An access beyond the end
// of a file would end the process.
static bool fits(int fd, size_t len)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && seals & F_SEAL_SHRINK && !fstat(fd, &st) && (size_t)st.st_size >= len && len;
}

void *stag_map(int fd, size_t len)
{
	void *memory = MAP_FAILED;
	int error = EPROTO;

	if (fits(fd, len)) {
		memory = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
		error = errno;
	}
	if (fd >= 0)
		close(fd);
	if (memory != MAP_FAILED && remember(memory, len))
		return memory;
	if (memory != MAP_FAILED) {
		munmap(memory, len);
		error = ENOMEM;
	}
	errno = error;
	return NULL;
}

void stag_unmap(void *memory, size_t len)
{
	if (!memory)
		return;
	forget(memory);
	munmap(memory, len);
}

// end marks a link as dead. Requests fail, and polling CQs return flushed requests.
static void end(struct stag_link *l)
{
	if (l->fd < 0)
		return;
	close(l->fd);
	l->fd = -1;
	__atomic_store_n(&l->bell->gone, 1, __ATOMIC_RELEASE);
	stag_debug("the connection to the daemon has ended");
}

// ask performs one request. lock must be held.
static int ask(int fd, struct stag_msg *m, const int *send, int nsend, int *got, int ngot)
{
	uint32_t op = m->op;

	if (stag_send(fd, m, send, nsend) || stag_recv(fd, m, got, ngot))
		return -1;
	if (m->op != op) {
		errno = EPROTO;
		return -1;
	}
	return 0;
}

static void close_all(int *fds, int n)
{
	for (int i = 0; i < n; i++)
		if (fds[i] >= 0) {
			close(fds[i]);
			fds[i] = -1;
		}
}

// greet says HELLO, with descriptors of the memory of this process.
static int greet(struct stag_link *l)
{
	struct stag_msg m = {.op = STAG_OP_HELLO};
	int mine[2], got[2], r;

	m.hello.version = STAG_PROTOCOL_VERSION;
	m.hello.layout = STAG_LAYOUT_VERSION;
	m.hello.message_len = sizeof m;
	m.hello.personality = roce ? STAG_PERSONALITY_ROCE : STAG_PERSONALITY_IWARP;
	m.hello.features = STAG_FEATURE_ATOMICS | STAG_FEATURE_IMMEDIATE | STAG_FEATURE_SRQ | STAG_FEATURE_MW |
			   STAG_FEATURE_RESIZE_CQ | STAG_FEATURE_BY_QPN | STAG_FEATURE_COPIED |
			   STAG_FEATURE_MAPPED | STAG_FEATURE_HOLD;
	mine[0] = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	mine[1] = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	if (mine[0] < 0 || mine[1] < 0) {
		stag_debug("/proc/self/mem: %s", strerror(errno));
		close_all(mine, 2);
		return -1;
	}
	r = ask(l->fd, &m, mine, 2, got, 2);
	close_all(mine, 2);
	if (r)
		return -1;
	if (m.err) {
		stag_debug("the daemon refuses this process: %s (protocol %u and layout %u; this library: %u and %u)",
			   strerror(m.err), m.hello.version, m.hello.layout, STAG_PROTOCOL_VERSION, STAG_LAYOUT_VERSION);
		close_all(got, 2);
		errno = m.err;
		return -1;
	}
	l->bell = m.hello.bell_len >= sizeof *l->bell ? stag_map(got[0], m.hello.bell_len) : NULL;
	if (!l->bell) {
		close_all(got + 1, 1);
		errno = EPROTO;
		return -1;
	}
	l->wake = got[1];
	l->bits = m.hello.bell_bits;
	memcpy(l->token, m.hello.token, sizeof l->token);
	return 0;
}

// begin makes a new link. lock must be held.
static struct stag_link *begin(void)
{
	static uint32_t lives;
	struct stag_link *l = calloc(1, sizeof *l);
	int error;

	if (!l)
		return NULL;
	l->older = present;
	l->fd = stag_connect();
	if (l->fd >= 0 && !greet(l)) {
		l->life = ++lives;
		return l;
	}
	error = errno;
	stag_debug("%s: %s", at(), strerror(error));
	if (l->fd >= 0)
		close(l->fd);
	free(l);
	errno = error;
	return NULL;
}

// look ends the link if the daemon has closed the connection. lock must be held.
static void look(struct stag_link *l)
{
	struct pollfd p = {.fd = l->fd};

	if (l->fd >= 0 && poll(&p, 1, 0) == 1 && p.revents & (POLLHUP | POLLERR | POLLNVAL))
		end(l);
}

struct stag_link *stag_link(void)
{
	struct stag_link *l;
	int state = enter();

	if (present)
		look(present);
	if (!present || present->fd < 0) {
		l = begin();
		if (l)
			present = l;
	} else {
		l = present;
	}
	leave(state);
	return l;
}

bool stag_alive(const struct stag_link *l)
{
	return __atomic_load_n(&l->bell->gone, __ATOMIC_ACQUIRE) == 0;
}

void stag_token(const struct stag_link *l, uint64_t token[2])
{
	memcpy(token, l->token, sizeof l->token);
}

void stag_look(struct stag_link *l)
{
	int state = enter();

	look(l);
	leave(state);
}

int stag_call(struct stag_link *l, struct stag_msg *m, const int *send, int nsend, int *got, int ngot)
{
	uint32_t op = m->op;
	int r, state = enter();

	if (l->fd < 0) {
		leave(state);
		errno = ENODEV;
		return -1;
	}
	r = ask(l->fd, m, send, nsend, got, ngot);
	if (r) {
		stag_debug("request %u: %s", op, strerror(errno));
		end(l);
		errno = ENODEV;
	}
	leave(state);
	if (r)
		return -1;
	if (m->err) {
		stag_debug("request %u: the daemon answers: %s", op, strerror(m->err));
		close_all(got, ngot);
		errno = m->err;
		return -1;
	}
	return 0;
}

int stag_destroy(struct stag_link *l, enum stag_kind kind, uint64_t handle, uint32_t *events)
{
	struct stag_msg m = {.op = STAG_OP_DESTROY, .handle = handle};

	if (events)
		*events = 0;
	m.destroy.kind = kind;
	if (stag_call(l, &m, NULL, 0, NULL, 0))
		return errno == ENODEV ? 0 : errno;
	if (events)
		*events = m.destroy.events;
	return 0;
}

// Around fork no request is under way, so that the parent gets its answer.
static void prepare(void)
{
	device_lock();
	pthread_mutex_lock(&stag_qps_lock);
	events_lock();
	pthread_mutex_lock(&lock);
	pthread_mutex_lock(&maplock);
}

static void parent(void)
{
	pthread_mutex_unlock(&maplock);
	pthread_mutex_unlock(&lock);
	events_unlock();
	pthread_mutex_unlock(&stag_qps_lock);
	device_unlock();
}

// child leaves the connection and the memory to the parent. The daemon must see the end of
// the connection when the parent ends. All memory becomes private zeros, and the bell page
// says that the daemon has gone, so that the parent's objects are dead here.
static void child(void)
{
	for (struct mapping *m = mappings; m; m = m->next)
		mmap(m->memory, m->len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	for (struct stag_link *l = present; l; l = l->older) {
		l->bell->gone = STAG_FORKED;
		if (l->fd >= 0) {
			close(l->fd);
			close(l->wake);
			l->fd = -1;
		}
	}
	present = NULL;
	device_forked();
	parent();
}

__attribute__((constructor)) static void start(void)
{
	const char *d = getenv("STAG_DEBUG"), *p = getenv("STAG_PERSONALITY");

	debug = d && *d && strcmp(d, "0");
	roce = p && !strcmp(p, "roce");
	pthread_atfork(prepare, parent, child);
}
