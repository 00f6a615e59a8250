// libibverbs.so.1 and librdmacm.so.1 share these declarations: the connection to the daemon, and the
// objects of libibverbs.so.1 that librdmacm.so.1 needs. libibverbs.so.1 exports these
// functions at the version STAG_1, and librdmacm.so.1 imports them.
//
// A function that returns int returns 0, or -1 with errno, unless its comment says
// something else.
#ifndef STAG_CORE_H
#define STAG_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>

#include "abi.h" // rdma/proto: the messages, the bell page, the rings

// A link is the control connection of this process to the daemon. The daemon's handles
// belong to a link. There is a new link after fork, and after the daemon was restarted.
// Objects of an earlier link are dead: requests fail with ENODEV, and only destroying them
// works. A link is never freed.
struct stag_link;

// stag_link returns the present link. It connects if there is none. NULL with errno.
struct stag_link *stag_link(void);

// stag_alive reports whether the link is not known to be dead.
bool stag_alive(const struct stag_link *l);

// stag_token copies the token of HELLO. Event connections begin with it.
void stag_token(const struct stag_link *l, uint64_t token[2]);

// stag_call sends the request m with nsend descriptors on the control connection, and waits
// for the answer, which replaces m. It sets got to the ngot descriptors of the answer, or
// to -1. If the answer has an errno, stag_call closes its descriptors and returns -1.
// Any thread may call stag_call.
int stag_call(struct stag_link *l, struct stag_msg *m, const int *send, int nsend, int *got, int ngot);

// stag_destroy destroys the object of the handle. It returns 0 or an errno; also 0 if l is
// dead. If events is not NULL, stag_destroy sets it to the events of the object that the
// daemon has sent on event connections.
int stag_destroy(struct stag_link *l, enum stag_kind kind, uint64_t handle, uint32_t *events);

// stag_connect returns the descriptor of another connection to the daemon, close-on-exec.
// stag_send sends one message. stag_recv receives one message, with descriptors as in
// stag_call. If the daemon has closed the connection, stag_recv fails with ECONNRESET.
int stag_connect(void);
int stag_send(int fd, const struct stag_msg *m, const int *fds, int n);
int stag_recv(int fd, struct stag_msg *m, int *fds, int n);

// stag_map maps the first len octets of a memfd that the daemon has made, and closes fd. It
// checks the length and the seal. After fork, the child has private zeros in this place, so
// that it cannot disturb the parent. NULL with errno.
void *stag_map(int fd, size_t len);
void stag_unmap(void *memory, size_t len);

// stag_roce reports whether $STAG_PERSONALITY is roce.
bool stag_roce(void);

// stag_debug prints a line to stderr if $STAG_DEBUG is 1. It keeps errno.
void stag_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

// stag_cm_context returns a context of the device that belongs to the present link, the
// same one at each call, for identifiers of librdmacm. It is never closed. stag_cm_pd
// returns the protection domain for identifiers without one. NULL with errno.
struct ibv_context *stag_cm_context(void);
struct ibv_pd *stag_cm_pd(void);

// stag_link_of returns the link of a context, and so of every object of the context.
struct stag_link *stag_link_of(const struct ibv_context *c);

// The daemon's handles of objects. 0 for NULL.
uint64_t stag_pd_handle(const struct ibv_pd *pd);
uint64_t stag_cq_handle(const struct ibv_cq *cq);
uint64_t stag_srq_handle(const struct ibv_srq *srq);
uint64_t stag_qp_handle(const struct ibv_qp *qp);

// stag_qp_state sets qp->state: the connection manager has brought the QP to this state.
void stag_qp_state(struct ibv_qp *qp, enum ibv_qp_state state);

#endif
