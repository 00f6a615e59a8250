// A daemon in a thread of this process, whose transport is the test: the test reads the
// slots that the library has filled, and fills cells.
#ifndef STAG_FAKE_H
#define STAG_FAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "abi.h"

// object is what the fake has made for a handle.
struct object {
	enum stag_kind kind; // 0: there is none
	uint64_t cookie;
	uint8_t *memory; // the rings
	size_t len;
	uint8_t *resized; // the ring of RESIZE_CQ
	uint32_t depth;
	uint64_t tail;	  // of a CQ: completions so far
	uint64_t moved;	  // of a CQ: position from which on completions go to resized
	int pipe[2];	  // of a channel
	uint64_t channel; // of a CQ
	uint32_t recv_at; // of a QP: offset of the receive ring
};

// fake_start starts the daemon at a socket below directory, and sets $STAG_DAEMON.
void fake_start(const char *directory);

// fake_stop closes the socket and all connections, as a daemon that dies.
void fake_stop(void);

struct object *fake_object(uint64_t handle);
struct stag_bell *fake_bell(void);

// fake_woken returns how often the library has written the eventfd since the last call.
uint64_t fake_woken(void);

// fake_last returns the last message with the op that the fake has answered.
struct stag_msg *fake_last(enum stag_op op);

// fake_async sends an asynchronous event to every connection for them.
void fake_async(const struct stag_async *a);

struct stag_queue_ring *fake_send_ring(uint64_t qp);
struct stag_queue_ring *fake_recv_ring(uint64_t qp);
struct stag_send_slot *fake_send_slot(uint64_t qp, uint32_t pos);
struct stag_recv_slot *fake_recv_slot(struct stag_queue_ring *r, uint32_t pos);

// fake_resized, if set, is called when RESIZE_CQ has made the ring, before the answer.
extern void (*fake_resized)(uint64_t cq);

// fake_complete adds a completion to the CQ. seq of c does not matter.
void fake_complete(uint64_t cq, struct stag_cell c);

#endif
