// The tests share these declarations.
#ifndef STAG_CHECK_H
#define STAG_CHECK_H

#include <stdint.h>

#include <infiniband/verbs.h>

#include "fake.h"

extern const char *directory; // of sockets
extern struct ibv_context *c;
extern struct ibv_pd *pd;
extern const char *why; // the condition that was false

// WANT ends the test if the condition is false.
#define STRING2(x) #x
#define STRING(x) STRING2(x)
#define WANT(condition)                                                  \
	do {                                                             \
		if (!(condition)) {                                      \
			why = __FILE__ ":" STRING(__LINE__) ": " #condition; \
			return;                                          \
		}                                                        \
	} while (0)

struct ibv_cq *new_cq(int depth, struct ibv_comp_channel *ch);
struct ibv_qp *new_qp(struct ibv_cq *cq, struct ibv_srq *srq, int depth, int all);

// post and receive post one request with one element. They return 0 or an errno.
int post(struct ibv_qp *qp, uint64_t id, unsigned flags);
int receive(struct ibv_qp *qp, uint64_t id);
int receive_shared(struct ibv_srq *srq, uint64_t id);

// complete adds a completion of the QP.
void complete(struct ibv_cq *cq, struct ibv_qp *qp, uint64_t id, uint8_t op);

void run(const char *name, void (*test)(void));
#define RUN(test) run(#test, test)

void test_queues(void);	 // queues.c
void test_objects(void); // objects.c
void test_ends(void);	 // ends.c; the fake is gone afterwards

#endif
