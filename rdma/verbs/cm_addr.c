// rdma_getaddrinfo: names to addresses.
#include "cm.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

// hints_of translates the hints of librdmacm into those of getaddrinfo(3).
static struct addrinfo hints_of(const struct rdma_addrinfo *hints)
{
	struct addrinfo a = {.ai_socktype = SOCK_STREAM};

	if (!hints)
		return a;
	a.ai_family = hints->ai_family;
	if (hints->ai_flags & RAI_PASSIVE)
		a.ai_flags |= AI_PASSIVE;
	if (hints->ai_flags & RAI_NUMERICHOST)
		a.ai_flags |= AI_NUMERICHOST;
	if (hints->ai_qp_type == IBV_QPT_UD || hints->ai_port_space == RDMA_PS_UDP)
		a.ai_socktype = SOCK_DGRAM;
	return a;
}

// copy_addr stores a copy of an address that has room for any address.
static int copy_addr(struct sockaddr **to, socklen_t *to_len, const struct sockaddr *from, socklen_t len)
{
	if (!from || !len)
		return 0;
	*to = calloc(1, sizeof(struct sockaddr_storage));
	if (!*to)
		return -1;
	memcpy(*to, from, len < sizeof(struct sockaddr_storage) ? len : sizeof(struct sockaddr_storage));
	*to_len = len;
	return 0;
}

static int copy_name(char **to, const char *from)
{
	if (!from)
		return 0;
	*to = strdup(from);
	return *to ? 0 : -1;
}

// copy_hints returns what rdma_getaddrinfo returns for neither a node nor a service: the
// hints, unresolved.
static struct rdma_addrinfo *copy_hints(const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo *r = calloc(1, sizeof *r);

	if (!r)
		return NULL;
	r->ai_flags = hints->ai_flags;
	r->ai_family = hints->ai_family;
	r->ai_qp_type = hints->ai_qp_type;
	r->ai_port_space = hints->ai_port_space;
	if (copy_addr(&r->ai_src_addr, &r->ai_src_len, hints->ai_src_addr, hints->ai_src_len) ||
	    copy_addr(&r->ai_dst_addr, &r->ai_dst_len, hints->ai_dst_addr, hints->ai_dst_len)) {
		rdma_freeaddrinfo(r);
		return NULL;
	}
	return r;
}

// one_result makes a result of one address that getaddrinfo(3) has found.
static struct rdma_addrinfo *one_result(const struct addrinfo *a, const struct rdma_addrinfo *hints)
{
	struct rdma_addrinfo *r = calloc(1, sizeof *r);
	int failed;

	if (!r)
		return NULL;
	r->ai_flags = hints ? hints->ai_flags : 0;
	r->ai_family = a->ai_family;
	r->ai_qp_type = a->ai_socktype == SOCK_DGRAM ? IBV_QPT_UD : IBV_QPT_RC;
	r->ai_port_space = a->ai_socktype == SOCK_DGRAM ? RDMA_PS_UDP : RDMA_PS_TCP;
	if (r->ai_flags & RAI_PASSIVE) {
		failed = copy_addr(&r->ai_src_addr, &r->ai_src_len, a->ai_addr, a->ai_addrlen) ||
			 copy_name(&r->ai_src_canonname, a->ai_canonname);
	} else {
		failed = copy_addr(&r->ai_dst_addr, &r->ai_dst_len, a->ai_addr, a->ai_addrlen) ||
			 copy_name(&r->ai_dst_canonname, a->ai_canonname);
		if (hints)
			failed = failed || copy_addr(&r->ai_src_addr, &r->ai_src_len, hints->ai_src_addr, hints->ai_src_len);
	}
	if (failed) {
		rdma_freeaddrinfo(r);
		return NULL;
	}
	return r;
}

// no_result sets errno to the meaning of an error of getaddrinfo(3), and returns that error.
static int no_result(int error)
{
	switch (error) {
	case EAI_SYSTEM:
		break;
	case EAI_MEMORY:
		errno = ENOMEM;
		break;
	case EAI_AGAIN:
		errno = EAGAIN;
		break;
	case EAI_NONAME:
		errno = ENODATA;
		break;
	default:
		errno = EINVAL;
	}
	return error;
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **res)
{
	struct addrinfo wanted = hints_of(hints), *found;
	struct rdma_addrinfo **next = res;
	int error;

	*res = NULL;
	if (!node && !service) {
		if (!hints)
			return cm_fail(EINVAL);
		*res = copy_hints(hints);
		return *res ? 0 : cm_fail(ENOMEM);
	}
	error = getaddrinfo(node, service, &wanted, &found);
	if (error)
		return no_result(error);
	for (struct addrinfo *a = found; a; a = a->ai_next) {
		if (a->ai_family != AF_INET && a->ai_family != AF_INET6)
			continue;
		*next = one_result(a, hints);
		if (!*next)
			break;
		next = &(*next)->ai_next;
	}
	freeaddrinfo(found);
	return *res ? 0 : no_result(EAI_MEMORY);
}

void rdma_freeaddrinfo(struct rdma_addrinfo *res)
{
	while (res) {
		struct rdma_addrinfo *next = res->ai_next;

		free(res->ai_route);
		free(res->ai_connect);
		free(res->ai_src_addr);
		free(res->ai_dst_addr);
		free(res->ai_src_canonname);
		free(res->ai_dst_canonname);
		free(res);
		res = next;
	}
}
