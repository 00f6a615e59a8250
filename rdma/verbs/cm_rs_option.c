// rsockets: options. Sizes are fixed. What a program sets is kept and given back.
#include "cm_rs.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <string.h>

// kept are the options that are kept and have no effect, by place in rs.options.
static const struct { int level, name; } kept[] = {
	{SOL_SOCKET, SO_SNDBUF}, {SOL_SOCKET, SO_RCVBUF}, {SOL_SOCKET, SO_LINGER}, {SOL_SOCKET, SO_KEEPALIVE},
	{SOL_SOCKET, SO_OOBINLINE}, {IPPROTO_TCP, TCP_NODELAY}, {IPPROTO_TCP, TCP_MAXSEG}, {IPPROTO_IPV6, IPV6_V6ONLY},
};

static int place(int level, int name)
{
	for (int i = 0; i < (int)(sizeof kept / sizeof *kept); i++) {
		if (kept[i].level == level && kept[i].name == name)
			return i;
	}
	return -1;
}

int rsetsockopt(int fd, int level, int name, const void *value, socklen_t len)
{
	struct rs *s = rs_find(fd);
	int v = 0, i = place(level, name);

	if (!s)
		return -1;
	memcpy(&v, value, len < sizeof v ? len : sizeof v);
	if (level == SOL_SOCKET && name == SO_REUSEADDR)
		return rdma_set_option(s->cm, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &v, sizeof v);
	if (level == SOL_RDMA) // the queues have one size
		return name >= RDMA_SQSIZE && name <= RDMA_IOMAPSIZE ? 0 : cm_fail(ENOPROTOOPT);
	if (level == IPPROTO_TCP && (name == TCP_KEEPIDLE || name == TCP_KEEPINTVL || name == TCP_KEEPCNT))
		return 0; // the daemon's TCP probes its peers
	if (i < 0)
		return cm_fail(ENOPROTOOPT);
	s->options[i] = v;
	return 0;
}

// rdma_option returns the value of an option of SOL_RDMA, or -1.
static int rdma_option(int name)
{
	switch (name) {
	case RDMA_SQSIZE:
	case RDMA_RQSIZE:
		return RS_BUFFERS;
	case RDMA_INLINE:
		return 0;
	case RDMA_IOMAPSIZE:
		return RS_MAPS;
	}
	return -1;
}

int rgetsockopt(int fd, int level, int name, void *value, socklen_t *len)
{
	struct rs *s = rs_find(fd);
	int v, i = place(level, name);

	if (!s)
		return -1;
	if (level == SOL_SOCKET && name == SO_ERROR) {
		v = s->error;
		s->error = 0;
	} else if (level == SOL_SOCKET && (name == SO_RCVBUF || name == SO_SNDBUF)) {
		v = RS_BUFFERS * RS_BUFFER_LEN;
	} else if (level == SOL_RDMA && rdma_option(name) >= 0) {
		v = rdma_option(name);
	} else if (i >= 0) {
		v = s->options[i];
	} else {
		return cm_fail(ENOPROTOOPT);
	}
	if (*len < sizeof v)
		return cm_fail(EINVAL);
	memcpy(value, &v, sizeof v);
	*len = sizeof v;
	return 0;
}

int rfcntl(int fd, int command, ...)
{
	struct rs *s = rs_find(fd);
	va_list list;
	int argument;

	if (!s)
		return -1;
	switch (command) {
	case F_GETFL:
		return O_RDWR | (s->nonblocking ? O_NONBLOCK : 0);
	case F_SETFL:
		va_start(list, command);
		argument = va_arg(list, int);
		va_end(list);
		s->nonblocking = (argument & O_NONBLOCK) != 0;
		return 0;
	}
	return cm_fail(EOPNOTSUPP);
}
