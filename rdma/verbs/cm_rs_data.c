// rsockets: octets, credits, and writes into the peer's memory.
#include "cm_rs.h"

#include <string.h>
#include <sys/uio.h>

enum { SLOTS = RS_BUFFERS + RS_CONTROL };

static const uint64_t sent_mark = 1ull << 63; // in wr_id: a completion of a Send or Write

static uint8_t *send_buffer(const struct rs *s, uint32_t i) { return s->memory + (size_t)(i % SLOTS) * RS_BUFFER_LEN; }
static uint8_t *recv_buffer(const struct rs *s, uint32_t i) { return s->memory + (size_t)(SLOTS + i) * RS_BUFFER_LEN; }

static struct rs_header header_of(const struct rs *s, uint32_t i)
{
	struct rs_header h;

	memcpy(&h, recv_buffer(s, i), sizeof h);
	return h;
}

static bool has_slot(const struct rs *s) { return s->sends - s->sends_done < SLOTS; }

// lose ends a connection that the peer or the adapter has ended.
static void lose(struct rs *s, enum ibv_wc_status status)
{
	s->got_end = true;
	if (s->state != RS_OPEN && s->state != RS_CONNECTING)
		return;
	s->state = RS_GONE;
	if (status != IBV_WC_WR_FLUSH_ERR)
		s->error = ECONNRESET;
}

// repost gives a receive buffer back to the QP.
static void repost(struct rs *s, uint32_t i)
{
	struct ibv_sge e = {.addr = (uintptr_t)recv_buffer(s, i), .length = RS_BUFFER_LEN, .lkey = s->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &e, .num_sge = 1}, *bad;

	if (ibv_post_recv(s->cm->qp, &wr, &bad))
		lose(s, IBV_WC_GENERAL_ERR);
}

// post sends the message in the next send buffer.
static int post(struct rs *s, uint32_t length)
{
	struct ibv_sge e = {.addr = (uintptr_t)send_buffer(s, s->sends), .length = length, .lkey = s->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = sent_mark, .sg_list = &e, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	int error = ibv_post_send(s->cm->qp, &wr, &bad);

	if (error)
		return cm_fail(error);
	s->sends++;
	return 0;
}

int rs_send_control(struct rs *s, struct rs_header h)
{
	if (!has_slot(s))
		return cm_fail(EAGAIN);
	h.credits = s->owed;
	memcpy(send_buffer(s, s->sends), &h, sizeof h);
	if (post(s, sizeof h))
		return -1;
	s->owed = 0;
	return 0;
}

// done gives a receive buffer that took a credit back.
static void done(struct rs *s, uint32_t i)
{
	if (s->state != RS_OPEN)
		return;
	repost(s, i);
	s->owed++;
	if (s->owed >= RS_BUFFERS / 2)
		rs_send_control(s, (struct rs_header){.kind = RS_CREDIT});
}

static void keep_map(struct rs *s, const struct rs_header *h)
{
	for (int i = 0; i < RS_MAPS; i++) {
		if (!s->theirs[i].size) {
			s->theirs[i] = (struct rs_map){.offset = h->offset, .size = h->size, .addr = h->addr, .rkey = h->rkey};
			return;
		}
	}
}

static void drop_map(struct rs_map *maps, uint64_t offset)
{
	for (int i = 0; i < RS_MAPS; i++) {
		if (maps[i].size && maps[i].offset == offset)
			maps[i] = (struct rs_map){0};
	}
}

// take handles a message in a receive buffer.
static void take(struct rs *s, uint32_t i, uint32_t length)
{
	struct rs_header h = header_of(s, i);

	if (length < sizeof h || h.length > length - sizeof h) {
		lose(s, IBV_WC_GENERAL_ERR);
		return;
	}
	s->credits += h.credits;
	switch (h.kind) {
	case RS_DATA:
		s->arrived[s->last++ % SLOTS] = (uint16_t)i;
		return;
	case RS_MAP:
		keep_map(s, &h);
		done(s, i);
		return;
	case RS_UNMAP:
		drop_map(s->theirs, h.offset);
		done(s, i);
		return;
	case RS_END:
		s->got_end = true;
		break;
	}
	repost(s, i);
}

void rs_progress(struct rs *s)
{
	struct ibv_wc wc[16];
	int n;

	if (!s->cq)
		return;
	do {
		n = ibv_poll_cq(s->cq, 16, wc);
		for (int i = 0; i < n; i++) {
			if (wc[i].status)
				lose(s, wc[i].status);
			else if (wc[i].wr_id & sent_mark)
				s->sends_done++;
			else
				take(s, (uint32_t)wc[i].wr_id, wc[i].byte_len);
		}
	} while (n == 16);
}

bool rs_can_read(const struct rs *s)
{
	return s->first != s->last || s->got_end || s->no_reads || s->state == RS_FAILED || s->state == RS_GONE;
}

bool rs_can_write(const struct rs *s)
{
	if (s->state == RS_OPEN)
		return (s->credits && has_slot(s)) || s->sent_end;
	return s->state != RS_CONNECTING;
}

// writable returns 0, or -1 with the reason why nothing can be sent.
static int writable(const struct rs *s)
{
	if (s->state == RS_OPEN && !s->sent_end)
		return 0;
	if (s->state == RS_NEW || s->state == RS_BOUND || s->state == RS_LISTENING)
		return cm_fail(ENOTCONN);
	return cm_fail(s->error ? s->error : EPIPE);
}

// send_some sends as much as one message takes.
static ssize_t send_some(struct rs *s, const uint8_t *data, size_t len, bool dont)
{
	struct rs_header h = {.kind = RS_DATA};

	rs_progress(s);
	if (!rs_can_write(s) && rs_wait(s, rs_can_write, dont))
		return -1;
	if (writable(s))
		return -1;
	h.length = (uint32_t)(len < RS_DATA_LEN ? len : RS_DATA_LEN);
	h.credits = s->owed;
	memcpy(send_buffer(s, s->sends), &h, sizeof h);
	memcpy(send_buffer(s, s->sends) + sizeof h, data, h.length);
	if (post(s, (uint32_t)sizeof h + h.length))
		return -1;
	s->owed = 0;
	s->credits--;
	return (ssize_t)h.length;
}

static bool can_put(const struct rs *s) { return s->state != RS_OPEN || has_slot(s); }

size_t rs_write(struct rs *s, const uint8_t *data, size_t len, uint64_t addr, uint32_t rkey, bool dont)
{
	struct ibv_sge e = {.length = (uint32_t)(len < RS_BUFFER_LEN ? len : RS_BUFFER_LEN)};
	struct ibv_send_wr wr = {.wr_id = sent_mark, .sg_list = &e, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	int error;

	if ((!can_put(s) && rs_wait(s, can_put, dont)) || writable(s))
		return 0;
	e.addr = (uintptr_t)send_buffer(s, s->sends);
	e.lkey = s->mr->lkey;
	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	memcpy(send_buffer(s, s->sends), data, e.length);
	error = ibv_post_send(s->cm->qp, &wr, &bad);
	if (error) {
		errno = error;
		return 0;
	}
	s->sends++;
	return e.length;
}

ssize_t rsend(int fd, const void *data, size_t len, int flags)
{
	struct rs *s = rs_find(fd);
	size_t sent = 0;
	ssize_t n = 0;

	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock);
	while (sent < len && n >= 0) {
		n = send_some(s, (const uint8_t *)data + sent, len - sent, (flags & MSG_DONTWAIT) != 0);
		if (n > 0)
			sent += (size_t)n;
	}
	pthread_mutex_unlock(&s->lock);
	return sent || !len ? (ssize_t)sent : -1;
}

// read_some copies octets of what has arrived. With keep it takes nothing away.
static size_t read_some(struct rs *s, uint8_t *data, size_t len, bool keep)
{
	size_t got = 0;
	uint32_t at = s->first, taken = s->taken;

	while (got < len && at != s->last) {
		uint32_t i = s->arrived[at % SLOTS], length = header_of(s, i).length;
		size_t n = length - taken < len - got ? length - taken : len - got;

		memcpy(data + got, recv_buffer(s, i) + sizeof(struct rs_header) + taken, n);
		got += n;
		taken += (uint32_t)n;
		if (taken < length)
			break;
		taken = 0;
		at++;
		if (!keep) {
			s->first = at;
			s->taken = 0;
			done(s, i);
		}
	}
	if (!keep)
		s->taken = taken;
	return got;
}

ssize_t rrecv(int fd, void *data, size_t len, int flags)
{
	struct rs *s = rs_find(fd);
	size_t got = 0;
	int result = 0;

	if (!s)
		return -1;
	pthread_mutex_lock(&s->lock);
	do {
		rs_progress(s);
		if (!rs_can_read(s))
			result = rs_wait(s, rs_can_read, (flags & MSG_DONTWAIT) != 0);
		if (result)
			break;
		if (s->first == s->last) {
			if (s->state == RS_FAILED && !got)
				result = cm_fail(s->error);
			break;
		}
		got += read_some(s, (uint8_t *)data + got, len - got, (flags & MSG_PEEK) != 0);
	} while (got < len && (flags & MSG_WAITALL) && !(flags & MSG_PEEK));
	pthread_mutex_unlock(&s->lock);
	return got || !result ? (ssize_t)got : -1;
}

// The other forms of reading and writing.

ssize_t rread(int fd, void *data, size_t len) { return rrecv(fd, data, len, 0); }

ssize_t rwrite(int fd, const void *data, size_t len) { return rsend(fd, data, len, 0); }

ssize_t rrecvfrom(int fd, void *data, size_t len, int flags, struct sockaddr *from, socklen_t *from_len)
{
	ssize_t n = rrecv(fd, data, len, flags);

	if (n > 0 && from)
		rgetpeername(fd, from, from_len);
	return n;
}

ssize_t rsendto(int fd, const void *data, size_t len, int flags, const struct sockaddr *to, socklen_t to_len)
{
	(void)to_len;
	return to ? cm_fail(EISCONN) : rsend(fd, data, len, flags);
}

static ssize_t read_list(int fd, const struct iovec *v, size_t n, int flags)
{
	ssize_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		ssize_t got = v[i].iov_len ? rrecv(fd, v[i].iov_base, v[i].iov_len, i ? flags | MSG_DONTWAIT : flags) : 0;

		if (got < 0)
			return sum ? sum : -1;
		sum += got;
		if ((size_t)got < v[i].iov_len)
			break;
	}
	return sum;
}

static ssize_t write_list(int fd, const struct iovec *v, size_t n, int flags)
{
	ssize_t sum = 0;

	for (size_t i = 0; i < n; i++) {
		ssize_t sent = rsend(fd, v[i].iov_base, v[i].iov_len, flags);

		if (sent < 0)
			return sum ? sum : -1;
		sum += sent;
		if ((size_t)sent < v[i].iov_len)
			break;
	}
	return sum;
}

ssize_t rreadv(int fd, const struct iovec *v, int n) { return read_list(fd, v, (size_t)n, 0); }

ssize_t rwritev(int fd, const struct iovec *v, int n) { return write_list(fd, v, (size_t)n, 0); }

// Control messages belong to Unix sockets.

ssize_t rrecvmsg(int fd, struct msghdr *m, int flags)
{
	if (m->msg_control && m->msg_controllen)
		return cm_fail(EOPNOTSUPP);
	return read_list(fd, m->msg_iov, m->msg_iovlen, flags);
}

ssize_t rsendmsg(int fd, const struct msghdr *m, int flags)
{
	if (m->msg_control && m->msg_controllen)
		return cm_fail(EOPNOTSUPP);
	return write_list(fd, m->msg_iov, m->msg_iovlen, flags);
}
