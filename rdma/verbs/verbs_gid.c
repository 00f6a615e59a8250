// GIDs and partition keys of ports.
#include "objects.h"

#include <arpa/inet.h>
#include <string.h>

// gid_entry asks for one entry of a table of GIDs. It returns 0 or an errno.
static int gid_entry(struct ibv_context *c, uint32_t number, uint32_t index, struct ibv_gid_entry *e)
{
	struct stag_msg m = {.op = STAG_OP_GID};

	if (number < 1 || number > to_context(c)->device.device.ports)
		return EINVAL;
	m.gid.port_num = number;
	m.gid.index = index;
	if (stag_call(stag_link_of(c), &m, NULL, 0, NULL, 0))
		return errno;
	*e = (struct ibv_gid_entry){
		.gid_index = index,
		.port_num = number,
		.gid_type = stag_roce() ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_IB,
		.ndev_ifindex = m.gid.ifindex,
	};
	memcpy(e->gid.raw, m.gid.gid, sizeof e->gid.raw);
	return 0;
}

int ibv_query_gid(struct ibv_context *c, uint8_t number, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry e = {0};
	int error = gid_entry(c, number, index, &e);

	if (error) {
		errno = error;
		return -1;
	}
	*gid = e.gid;
	return 0;
}

int _ibv_query_gid_ex(struct ibv_context *c, uint32_t number, uint32_t index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t len)
{
	struct ibv_gid_entry e = {0};
	int error;

	if (flags || len < sizeof e)
		return EINVAL;
	error = gid_entry(c, number, index, &e);
	if (error)
		return error;
	memset(entry, 0, len);
	*entry = e;
	return 0;
}

// put_gids adds the table of a port to the first *n entries. It returns 0 or an errno.
static int put_gids(struct ibv_context *c, uint32_t number, char *entries, size_t max, size_t len, size_t *n)
{
	struct ibv_gid_entry e;
	int error;

	for (uint32_t i = 0; !(error = gid_entry(c, number, i, &e)); i++) {
		if (*n == max)
			return EINVAL;
		memset(entries + *n * len, 0, len);
		memcpy(entries + *n * len, &e, sizeof e);
		++*n;
	}
	return error == ENODATA ? 0 : error;
}

ssize_t _ibv_query_gid_table(struct ibv_context *c, struct ibv_gid_entry *entries, size_t max, uint32_t flags,
			     size_t len)
{
	size_t n = 0;

	if (flags || len < sizeof *entries)
		return -EINVAL;
	for (uint32_t number = 1; number <= to_context(c)->device.device.ports; number++) {
		int error = put_gids(c, number, (char *)entries, max, len, &n);

		if (error)
			return -error;
	}
	return n;
}

// The types of this function are those of sysfs: 0 for InfiniBand and version 1 of RoCE.
int stag_query_gid_type(struct ibv_context *c, uint8_t number, unsigned index, unsigned *type);
int stag_query_gid_type(struct ibv_context *c, uint8_t number, unsigned index, unsigned *type)
{
	struct ibv_gid_entry e = {0};
	int error = gid_entry(c, number, index, &e);

	if (error) {
		errno = error;
		return -1;
	}
	*type = e.gid_type == IBV_GID_TYPE_ROCE_V2;
	return 0;
}

int ibv_query_pkey(struct ibv_context *c, uint8_t number, int index, __be16 *pkey)
{
	if (number < 1 || number > to_context(c)->device.device.ports || index) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htons(0xffff);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *c, uint8_t number, __be16 pkey)
{
	__be16 only;

	if (ibv_query_pkey(c, number, 0, &only))
		return -1;
	if (pkey == only)
		return 0;
	errno = EINVAL;
	return -1;
}
