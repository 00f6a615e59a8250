// rsockets: a stream of octets over a QP.
//
// Each message is a Send that begins with struct rs_header. An end has RS_BUFFERS receives
// for data and a few for messages without data. A message with data, and an offer of memory,
// takes a credit. The receiver returns a credit when the program has read the data of a buffer.
#ifndef STAG_CM_RS_H
#define STAG_CM_RS_H

#include "cm.h"

#include <poll.h>
#include <rdma/rsocket.h>

enum {
	RS_BUFFERS = 32,
	RS_BUFFER_LEN = 32 << 10,
	RS_CONTROL = 8, // receives for messages without a credit: credits, and the end
	RS_MAPS = 128,
	RS_MAX = 1 << 16, // descriptors
};

enum rs_kind { RS_DATA = 1, RS_CREDIT, RS_END, RS_MAP, RS_UNMAP };

struct rs_header {
	uint32_t kind;
	uint32_t credits; // that this message returns
	uint32_t length;  // octets of data behind the header
	uint32_t rkey;	  // RS_MAP
	uint64_t addr;	  // RS_MAP
	uint64_t offset;  // RS_MAP, RS_UNMAP
	uint64_t size;	  // RS_MAP
};

enum { RS_DATA_LEN = RS_BUFFER_LEN - sizeof(struct rs_header) };

enum rs_state { RS_NEW, RS_BOUND, RS_LISTENING, RS_CONNECTING, RS_OPEN, RS_FAILED, RS_GONE };

// map is memory that riomap of either end offers.
struct rs_map {
	uint64_t offset, size, addr;
	uint32_t rkey;
	struct ibv_mr *mr; // of the end that offers it
};

struct rs {
	pthread_mutex_t lock;
	pthread_cond_t progressed; // the thread in poll(2) has come back
	bool sleeping;		   // a thread is in poll(2) for this socket
	int fd;
	enum rs_state state;
	int error; // errno of a failed connection, for SO_ERROR
	bool nonblocking, sent_end, got_end, no_reads;
	int options[8];
	struct rdma_cm_id *cm;
	struct rdma_cm_id *request; // listening: a request that raccept has not taken
	struct rdma_cm_event *request_event;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	uint8_t *memory; // the buffers: those of sends, then those of receives

	uint32_t credits;	// messages that the peer has room for
	uint32_t owed;		// credits to return
	uint32_t sends;		// messages that were sent
	uint32_t sends_done;	// and have completed
	uint16_t arrived[RS_BUFFERS + RS_CONTROL]; // receive buffers with data, in order
	uint32_t first, last;	// positions in arrived
	uint32_t taken;		// octets of the first one that the program has read
	struct rs_map ours[RS_MAPS], theirs[RS_MAPS];
};

// cm_rs_table.c
struct rs *rs_new(struct rdma_cm_id *cm); // of an id with a channel of its own
struct rs *rs_find(int fd);		  // NULL with EBADF
void rs_forget(struct rs *s);

// cm_rs_conn.c: these are called with the lock
bool rs_settled(const struct rs *s); // the connection is made or has failed
int rs_open(struct rs *s);     // makes the QP and its buffers
void rs_close(struct rs *s);   // and takes them away
void rs_advance(struct rs *s); // handles events of the connection manager
void rs_fail(struct rs *s, int error);

// cm_rs_data.c: these are called with the lock
void rs_progress(struct rs *s); // takes completions
bool rs_can_read(const struct rs *s);
bool rs_can_write(const struct rs *s);
int rs_send_control(struct rs *s, struct rs_header h);
// rs_write writes at most len octets to the peer's memory, and returns how many; 0 with errno.
size_t rs_write(struct rs *s, const uint8_t *data, size_t len, uint64_t addr, uint32_t rkey, bool dont);

// cm_rs_poll.c: with the lock, which is released during the wait
short rs_ready(struct rs *s, short events);
int rs_wait(struct rs *s, bool (*ready)(const struct rs *s), bool dont); // -1 with EAGAIN or another errno

#endif
