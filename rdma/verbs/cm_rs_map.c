// rsockets: memory that the peer writes to directly.
#include "cm_rs.h"

#include <string.h>
#include <sys/mman.h>

// announce sends a message that takes a credit.
static int announce(struct rs *s, struct rs_header h)
{
	if (!rs_can_write(s) && rs_wait(s, rs_can_write, false))
		return -1;
	if (s->state != RS_OPEN || s->sent_end)
		return cm_fail(ENOTCONN);
	if (rs_send_control(s, h))
		return -1;
	s->credits--;
	return 0;
}

static struct rs_map *free_map(struct rs *s)
{
	for (int i = 0; i < RS_MAPS; i++) {
		if (!s->ours[i].mr)
			return &s->ours[i];
	}
	errno = ENOBUFS;
	return NULL;
}

// offer registers memory and tells the peer.
static off_t offer(struct rs *s, void *buf, size_t len, int access, off_t offset)
{
	struct rs_map *m = free_map(s);
	int error;

	if (!m)
		return -1;
	m->mr = ibv_reg_mr(s->cm->pd, buf, len, access);
	if (!m->mr)
		return -1;
	m->offset = offset == -1 ? (uint64_t)(uintptr_t)buf : (uint64_t)offset;
	m->size = len;
	m->addr = (uint64_t)(uintptr_t)buf;
	m->rkey = m->mr->rkey;
	if (!announce(s, (struct rs_header){.kind = RS_MAP, .rkey = m->rkey, .addr = m->addr, .offset = m->offset, .size = len}))
		return (off_t)m->offset;
	error = errno;
	ibv_dereg_mr(m->mr);
	*m = (struct rs_map){0};
	return cm_fail(error);
}

off_t riomap(int fd, void *buf, size_t len, int prot, int flags, off_t offset)
{
	struct rs *s = rs_find(fd);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	off_t at;

	if (!s)
		return -1;
	if (!len || flags || (prot & ~(PROT_READ | PROT_WRITE)) || !(prot & PROT_WRITE))
		return cm_fail(EINVAL);
	pthread_mutex_lock(&s->lock);
	at = rs_wait(s, rs_settled, false) ? -1 : s->state == RS_OPEN ? offer(s, buf, len, access, offset) : cm_fail(ENOTCONN);
	pthread_mutex_unlock(&s->lock);
	return at;
}

int riounmap(int fd, void *buf, size_t len)
{
	struct rs *s = rs_find(fd);
	int result = cm_fail(EINVAL);

	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock);
	for (int i = 0; i < RS_MAPS; i++) {
		struct rs_map *m = &s->ours[i];

		if (!m->mr || m->addr != (uint64_t)(uintptr_t)buf || m->size != len)
			continue;
		announce(s, (struct rs_header){.kind = RS_UNMAP, .offset = m->offset}); // a peer that is gone needs no word
		ibv_dereg_mr(m->mr);
		*m = (struct rs_map){0};
		result = 0;
		break;
	}
	pthread_mutex_unlock(&s->lock);
	return result;
}

static const struct rs_map *map_at(const struct rs *s, uint64_t offset)
{
	for (int i = 0; i < RS_MAPS; i++) {
		const struct rs_map *m = &s->theirs[i];

		if (m->size && offset >= m->offset && offset - m->offset < m->size)
			return m;
	}
	return NULL;
}

size_t riowrite(int fd, const void *buf, size_t count, off_t offset, int flags)
{
	struct rs *s = rs_find(fd);
	size_t written = 0;

	if (!s)
		return (size_t)-1;
	pthread_mutex_lock(&s->lock);
	rs_progress(s);
	while (written < count) {
		const struct rs_map *m = map_at(s, (uint64_t)offset + written);
		uint64_t at;
		size_t n;

		if (!m) {
			errno = EINVAL;
			break;
		}
		at = (uint64_t)offset + written - m->offset;
		n = count - written < m->size - at ? count - written : m->size - at;
		n = rs_write(s, (const uint8_t *)buf + written, n, m->addr + at, m->rkey, (flags & MSG_DONTWAIT) != 0);
		if (!n)
			break;
		written += n;
	}
	pthread_mutex_unlock(&s->lock);
	return written || !count ? written : (size_t)-1;
}
