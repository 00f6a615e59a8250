/* SPDX-License-Identifier: Apache-2.0
 *
 * What a C library and the daemon of stag say to each other (package rdma/proto), and the
 * layout of the rings in shared memory (offload/work/layout.go). Numbers have the byte order
 * of the machine, except where a comment says otherwise. A test compares this file with Go.
 *
 * Control connection. A client connects to the daemon's socket (AF_UNIX, SOCK_SEQPACKET) and
 * sends HELLO with descriptors of its own /proc/self/mem (O_RDWR) and /proc/self/maps
 * (O_RDONLY), in this order. Every message in either direction is one struct stag_msg. A
 * client sends a request and waits for the answer. The answer has the op of the request and
 * err: 0 or a positive errno. Descriptors come with the answer as SCM_RIGHTS. Octets that a
 * request does not use are 0. The end of the control connection ends the client: everything
 * that the client has made goes away.
 *
 * Event connections. Asynchronous events and events of the connection manager come on
 * connections of their own. Such a connection begins with ASYNC or EVENT_CHANNEL, which
 * contains the client's token. After the answer, each message of the daemon is one event. The
 * client sends nothing more. The end of the connection destroys the event channel.
 *
 * A child of fork must not use the parent's connections. It connects and says HELLO.
 *
 * Shared memory. The daemon makes each memfd and seals it (SHRINK, GROW, SEAL). The client
 * maps it with MAP_SHARED, PROT_READ | PROT_WRITE, and the length in the answer.
 *
 * Bell. To tell the daemon of new requests, a client stores the tail (release), sets the
 * queue's bit in the bell page with fetch_or (seq_cst), loads asleep (seq_cst), and if asleep
 * is not 0 writes 8 octets (the number 1) to the eventfd of HELLO.
 *
 * Completion channel. The daemon makes a pipe and passes the read end. Each event is 8 octets:
 * the cookie of the CQ. A CQ that has been destroyed may still have events in the pipe.
 */
#ifndef STAG_ABI_H
#define STAG_ABI_H

#include <stddef.h>
#include <stdint.h>

#define STAG_PROTOCOL_VERSION 1
#define STAG_LAYOUT_VERSION   3
#define STAG_DEFAULT_SOCKET   "/run/stag/stagd.sock"
#define STAG_SOCKET_VARIABLE  "STAG_DAEMON"

#define STAG_PRIVATE_MAX      512 /* octets of private data in a message */
#define STAG_BODY_LEN         256
#define STAG_ADDR_LEN         28  /* struct sockaddr_in or sockaddr_in6; family 0: no address */
#define STAG_NAME_LEN         64  /* with the terminating 0 */
#define STAG_OPTION_LEN       64

enum stag_op {
	STAG_OP_HELLO          = 1,
	STAG_OP_DEVICE         = 2,
	STAG_OP_PORT           = 3,
	STAG_OP_GID            = 4,

	STAG_OP_PD             = 10,
	STAG_OP_CHANNEL        = 11,
	STAG_OP_CQ             = 12,
	STAG_OP_RESIZE_CQ      = 13,
	STAG_OP_QP             = 14,
	STAG_OP_MODIFY_QP      = 15,
	STAG_OP_QUERY_QP       = 16,
	STAG_OP_MR             = 17,
	STAG_OP_MW             = 18,
	STAG_OP_SRQ            = 19,
	STAG_OP_MODIFY_SRQ     = 20,
	STAG_OP_QUERY_SRQ      = 21,
	STAG_OP_DESTROY        = 22,

	STAG_OP_ASYNC          = 30, /* first message of a connection */
	STAG_OP_ASYNC_EVENT    = 31, /* from the daemon, on such a connection */

	STAG_OP_EVENT_CHANNEL  = 40, /* first message of a connection */
	STAG_OP_CM_EVENT       = 41, /* from the daemon, on such a connection */
	STAG_OP_ID             = 42,
	STAG_OP_BIND           = 43,
	STAG_OP_RESOLVE        = 44,
	STAG_OP_ROUTE          = 45,
	STAG_OP_LISTEN         = 46,
	STAG_OP_CONNECT        = 47,
	STAG_OP_ACCEPT         = 48,
	STAG_OP_REJECT         = 49,
	STAG_OP_DISCONNECT     = 50,
	STAG_OP_ESTABLISH      = 51,
	STAG_OP_MIGRATE        = 52,
	STAG_OP_SET_OPTION     = 53,
	STAG_OP_GET_OPTION     = 54,
};

/* What a handle names. DESTROY checks it. */
enum stag_kind {
	STAG_KIND_PD      = 1,
	STAG_KIND_CHANNEL = 2, /* completion channel */
	STAG_KIND_CQ      = 3,
	STAG_KIND_QP      = 4,
	STAG_KIND_MR      = 5,
	STAG_KIND_MW      = 6,
	STAG_KIND_SRQ     = 7,
	STAG_KIND_EVENTS  = 8, /* event channel of the connection manager */
	STAG_KIND_ID      = 9,
};

enum stag_personality {
	STAG_PERSONALITY_IWARP = 0,
	STAG_PERSONALITY_ROCE  = 1,
};

/* Features, in HELLO of both sides and in DEVICE. */
#define STAG_FEATURE_ATOMICS   (1ull << 0) /* RFC 7306 between two ends of stag */
#define STAG_FEATURE_IMMEDIATE (1ull << 1)
#define STAG_FEATURE_SRQ       (1ull << 2)
#define STAG_FEATURE_MW        (1ull << 3)
#define STAG_FEATURE_RESIZE_CQ (1ull << 4)
#define STAG_FEATURE_BY_QPN    (1ull << 5) /* MODIFY_QP to RTR connects to a GID and QPN */
#define STAG_FEATURE_COPIED    (1ull << 6) /* regions of any memory, copied by the kernel */
#define STAG_FEATURE_MAPPED    (1ull << 7) /* regions of shared mappings, mapped by the daemon */
#define STAG_FEATURE_HOLD      (1ull << 8) /* a Send that finds no receive waits for one */

/* HELLO. Descriptors to the daemon: /proc/self/mem, /proc/self/maps. Descriptors in the
 * answer: bell page, eventfd. EPROTONOSUPPORT: version or layout is not the daemon's; the
 * answer has the daemon's. */
struct stag_hello {
	uint32_t version;
	uint32_t layout;
	uint32_t message_len; /* sizeof(struct stag_msg) */
	uint32_t personality;
	uint64_t features;    /* known to the sender */
	uint64_t token[2];    /* answer: for the event connections */
	uint32_t bell_len;    /* answer: octets of the bell page */
	uint32_t bell_bits;   /* answer: bits in the bell page */
	uint32_t generation;  /* answer: as in the bell page */
	uint32_t devices;     /* answer: number of devices, always 1 */
	uint32_t ports;       /* answer: number of ports of the device */
	uint32_t pid;         /* answer: the client as the daemon sees it; 0 in another PID namespace */
};

/* DEVICE: the device and its limits. The request is empty. */
struct stag_device {
	char     name[STAG_NAME_LEN];     /* stag0 */
	char     firmware[32];            /* version of stag */
	uint8_t  guid[8];                 /* network byte order */
	uint64_t features;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part;
	uint32_t ports;
	uint32_t max_pd;
	uint32_t max_qp;
	uint32_t max_qp_wr;
	uint32_t max_sge;
	uint32_t max_sge_rd;
	uint32_t max_inline;
	uint32_t max_cq;
	uint32_t max_cqe;
	uint32_t max_mr;
	uint32_t max_mw;
	uint32_t max_srq;
	uint32_t max_srq_wr;
	uint32_t max_srq_sge;
	uint32_t max_rd_atomic;           /* in each direction, of a QP */
	uint32_t max_private;             /* octets of private data in CONNECT, ACCEPT and REJECT */
};

/* PORT: port_num is 1 to ports. */
struct stag_port {
	uint32_t port_num;
	uint32_t state;     /* ibv_port_state: 1 down, 4 active */
	uint32_t mtu;       /* octets of an IP packet */
	uint32_t gids;      /* length of the table of GIDs */
	uint32_t speed;     /* Mbit/s; 0: unknown */
	uint32_t ifindex;   /* 0: the kernel port */
	uint8_t  mac[8];    /* 6 octets */
	char     netdev[STAG_NAME_LEN];
};

/* GID: entry index of the table of a port. ENODATA: no such entry. */
struct stag_gid {
	uint32_t port_num;
	uint32_t index;
	uint32_t ifindex;
	uint32_t reserved;
	uint8_t  gid[16];   /* IPv6 address, or ::ffff:a.b.c.d */
};

/* CHANNEL has no body. Descriptor in the answer: read end of the pipe. PD has no body. */

/* CQ and RESIZE_CQ. Descriptor in the answer: the completion ring. Completions before the
 * position in cookie of the answer to RESIZE_CQ are in the ring before, the others in the new
 * one. head, armed and overrun stay in the first ring of the CQ. */
struct stag_cq {
	uint64_t channel;   /* handle of a completion channel, or 0 */
	uint64_t cookie;    /* written to the channel; also in asynchronous events */
	uint32_t depth;     /* answer: the depth that the CQ got */
	uint32_t vector;
	uint64_t length;    /* answer: octets of the memfd */
};

#define STAG_QP_SIGNAL_ALL 1u
#define STAG_QP_NO_HOLD    2u /* a Send that finds no receive ends the connection */
#define STAG_QP_NO_KEEP    4u /* receives are flushed as soon as the connection has ended */

/* QP. Descriptor in the answer: one memfd with the send ring at 0 and the receive ring at
 * recv_offset. The bit of both rings in the bell page is bit. A QP with an SRQ has no
 * receive ring. */
struct stag_qp {
	uint64_t pd;
	uint64_t send_cq;
	uint64_t recv_cq;
	uint64_t srq;       /* or 0 */
	uint64_t cookie;    /* in asynchronous events */
	uint32_t flags;
	uint32_t type;      /* IBV_QPT_RC, 2 */
	uint32_t send_depth;  /* this and the next four: answer has what the QP got */
	uint32_t recv_depth;
	uint32_t send_sge;
	uint32_t recv_sge;
	uint32_t inline_len;
	uint32_t qpn;       /* answer; so are the next ones */
	uint32_t bit;
	uint32_t reserved;
	uint64_t recv_offset;
	uint64_t recv_len;
	uint64_t send_len;
	uint64_t length;    /* octets of the memfd */
};

/* MODIFY_QP and QUERY_QP. handle names the QP. mask and numbers are those of ibv_qp_attr_mask
 * and ibv_qp_attr. */
struct stag_qp_attr {
	uint32_t mask;
	uint32_t state;     /* ibv_qp_state */
	uint32_t cur_state;
	uint32_t qpn;       /* answer of QUERY_QP */
	uint32_t dest_qpn;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t access;
	uint32_t port_num;
	uint32_t sgid_index;
	uint32_t path_mtu;
	uint32_t max_rd_atomic;
	uint32_t max_dest_rd_atomic;
	uint32_t min_rnr_timer;
	uint32_t timeout;
	uint32_t retry_cnt;
	uint32_t rnr_retry;
	uint32_t flags;     /* answer of QUERY_QP: STAG_QP_* */
	uint32_t send_depth; /* answer of QUERY_QP; so are the next ones */
	uint32_t recv_depth;
	uint32_t send_sge;
	uint32_t recv_sge;
	uint32_t inline_len;
	uint32_t reserved;
	uint8_t  dgid[16];
};

/* How the daemon reaches the memory of a region. */
#define STAG_REACH_COPIED 1u
#define STAG_REACH_MAPPED 2u

/* MR */
struct stag_mr {
	uint64_t pd;
	uint64_t addr;      /* address in the client */
	uint64_t length;
	uint64_t iova;      /* address that work requests and peers use for addr */
	uint32_t access;    /* ibv_access_flags */
	uint32_t lkey;      /* answer */
	uint32_t rkey;      /* answer */
	uint32_t reach;     /* answer: STAG_REACH_* */
};

/* MW */
struct stag_mw {
	uint64_t pd;
	uint32_t type;      /* ibv_mw_type: 1 or 2 */
	uint32_t rkey;      /* answer */
};

#define STAG_SRQ_DEPTH 1u /* ibv_srq_attr_mask */
#define STAG_SRQ_LIMIT 2u

/* SRQ, MODIFY_SRQ and QUERY_SRQ. Descriptor in the answer of SRQ: the receive ring. */
struct stag_srq {
	uint64_t pd;
	uint64_t cookie;    /* in asynchronous events */
	uint64_t length;    /* answer of SRQ: octets of the memfd */
	uint32_t mask;      /* MODIFY_SRQ */
	uint32_t depth;
	uint32_t sge;
	uint32_t limit;
	uint32_t bit;       /* answer of SRQ: bit in the bell page */
	uint32_t reserved;
};

/* DESTROY. EBUSY: another object needs this one. EINVAL: handle is not of this kind. */
struct stag_destroy {
	uint32_t kind;      /* of handle; 0: any */
	uint32_t events;    /* answer: events of the object that were sent on event connections */
};

/* ASYNC and EVENT_CHANNEL. The answer of EVENT_CHANNEL has the handle of the channel. */
struct stag_attach {
	uint64_t token[2];  /* from HELLO */
};

/* ASYNC_EVENT. handle names the object, or is 0 for the device. */
struct stag_async {
	uint64_t cookie;    /* of the CQ, QP or SRQ */
	uint32_t event;     /* ibv_event_type */
	uint32_t kind;      /* of handle; 0: the device or port_num */
	uint32_t port_num;
	uint32_t reserved;
};

/* ID: rdma_create_id. The answer has the handle. */
struct stag_id {
	uint64_t channel;   /* handle of the event channel */
	uint64_t cookie;    /* in events of this id */
	uint32_t port_space; /* RDMA_PS_TCP, 0x0106 */
	uint32_t reserved;
};

/* BIND, RESOLVE, ROUTE and LISTEN; handle names the id. BIND to an address that no port has
 * fails with ENODEV. BIND to a loopback address or to no address succeeds with port_num 0. */
struct stag_address {
	uint8_t  src[STAG_ADDR_LEN]; /* BIND, RESOLVE; answer: the local address and port */
	uint8_t  dst[STAG_ADDR_LEN]; /* RESOLVE */
	uint32_t timeout;   /* milliseconds; RESOLVE, ROUTE */
	uint32_t backlog;   /* LISTEN */
	uint32_t port_num;  /* answer: port of the device, or 0 */
	uint32_t reserved;
};

#define STAG_CONN_RESPONSE 1u /* CONNECT: the client ends with ESTABLISH, so that the event is
				 CONNECT_RESPONSE and not ESTABLISHED */

/* CONNECT and ACCEPT; handle names the id. Private data is in the message. */
struct stag_conn {
	uint64_t cookie;    /* ACCEPT: cookie of the new id */
	uint32_t qpn;
	uint32_t flags;
	uint32_t responder_resources; /* IRD; 0: none */
	uint32_t initiator_depth;     /* ORD; 0: none */
	uint32_t flow_control;
	uint32_t retry_count;
	uint32_t rnr_retry_count;     /* 7: for ever */
	uint32_t srq;
};

/* MIGRATE */
struct stag_migrate {
	uint64_t channel;   /* new event channel */
	uint64_t cookie;    /* in events from now on */
	uint32_t events;    /* answer: events of the id that were sent to the old channel */
	uint32_t reserved;
};

/* SET_OPTION and GET_OPTION: the numbers of librdmacm. */
struct stag_option {
	uint32_t level;
	uint32_t name;
	uint32_t length;
	uint32_t reserved;
	uint8_t  value[STAG_OPTION_LEN];
};

/* CM_EVENT. handle names the id. For CONNECT_REQUEST, handle names the new id, whose cookie
 * is 0 until ACCEPT or MIGRATE sets it, and listener and cookie are those of the listening id. */
struct stag_cm_event {
	uint64_t cookie;
	uint64_t listener;  /* CONNECT_REQUEST: handle of the listening id; else 0 */
	uint32_t event;     /* rdma_cm_event_type */
	int32_t  status;    /* 0, a negative errno, or a reason of the peer */
	uint8_t  src[STAG_ADDR_LEN]; /* local */
	uint8_t  dst[STAG_ADDR_LEN]; /* remote */
	uint32_t port_num;  /* port of the device, or 0 */
	uint32_t responder_resources;
	uint32_t initiator_depth;
	uint32_t flow_control;
	uint32_t retry_count;
	uint32_t rnr_retry_count;
	uint32_t srq;
	uint32_t qpn;
};

struct stag_msg {
	uint32_t op;
	int32_t  err;
	uint64_t handle;
	union {
		uint64_t             body[STAG_BODY_LEN / 8];
		struct stag_hello    hello;
		struct stag_device   device;
		struct stag_port     port;
		struct stag_gid      gid;
		struct stag_cq       cq;
		struct stag_qp       qp;
		struct stag_qp_attr  qp_attr;
		struct stag_mr       mr;
		struct stag_mw       mw;
		struct stag_srq      srq;
		struct stag_destroy  destroy;
		struct stag_attach   attach;
		struct stag_async    async;
		struct stag_id       id;
		struct stag_address  address;
		struct stag_conn     conn;
		struct stag_migrate  migrate;
		struct stag_option   option;
		struct stag_cm_event cm_event;
	};
	uint32_t private_len;
	uint32_t reserved;
	uint8_t  private_data[STAG_PRIVATE_MAX];
};

/* The bell page. */
#define STAG_BELL_LEN  4096
#define STAG_BELL_BITS ((STAG_BELL_LEN - 64) * 8)

struct stag_bell {
	uint32_t asleep;     /* not 0: write the eventfd after a bit was set */
	uint32_t generation;
	uint32_t gone;       /* not 0: the daemon has ended */
	uint32_t reserved[13];
	uint64_t bits[(STAG_BELL_LEN - 64) / 8];
};

/* The rings: offload/work/layout.go says who writes what, and in which memory order. */
struct stag_shape {
	uint32_t version;
	uint32_t depth;
	uint32_t slot;       /* octets of a slot or cell */
	uint32_t elements;
	uint32_t inline_len;
};

#define STAG_SLOTS_AT 192

struct stag_queue_ring {
	uint32_t tail;       /* written by the poster */
	uint8_t  pad0[60];
	uint64_t done;       /* silent << 32 | head, written by the transport */
	uint32_t waits;      /* receives: not 0 while a message waits for one; then set the bell bit after a post */
	uint8_t  pad1[52];
	struct stag_shape shape;
	uint8_t  pad2[44];
};

struct stag_element {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct stag_send_slot {
	uint64_t id;
	uint64_t remote;
	uint32_t rkey;
	uint32_t invalidate;
	uint32_t length;
	uint8_t  op;
	uint8_t  flags;
	uint8_t  elements;
	uint8_t  inline_data; /* 1: the body is data */
};

struct stag_recv_slot {
	uint64_t id;
	uint8_t  elements;
	uint8_t  pad[3];
	uint32_t free;       /* SRQ: written by the transport */
};

/* Operands of an atomic operation, behind the element in the slot's body. */
struct stag_operands {
	uint64_t compare_add;
	uint64_t swap;
	uint64_t compare_add_mask; /* masked operations only */
	uint64_t swap_mask;
};

struct stag_cq_ring {
	uint64_t head;       /* written by the poller */
	uint32_t armed;      /* 0, 1: solicited, 2: all */
	uint8_t  pad0[52];
	uint32_t overrun;    /* written by the transport */
	uint8_t  pad1[60];
	struct stag_shape shape;
	uint8_t  pad2[44];
};

/* Immediate Data in a cell. */
enum stag_cell_imm {
	STAG_IMM_NONE  = 0,
	STAG_IMM_WIDE  = 1, /* 64 bits, without a length */
	STAG_IMM_SHORT = 2, /* 32 bits, and length is the length */
};

struct stag_cell {
	uint64_t seq;        /* position + 1 */
	uint64_t id;
	uint8_t  op;
	uint8_t  status;
	uint8_t  solicited;
	uint8_t  imm;         /* enum stag_cell_imm */
	uint32_t invalidated; /* WIDE: low half of the Immediate Data; SHORT: the Immediate Data */
	uint32_t length;      /* WIDE: high half of the Immediate Data */
	uint32_t qp;
};

/* Operations of a send slot. */
enum stag_wr {
	STAG_WR_WRITE             = 0,
	STAG_WR_WRITE_IMM         = 1,
	STAG_WR_SEND              = 2,
	STAG_WR_SEND_IMM          = 3,
	STAG_WR_READ              = 4,
	STAG_WR_COMPARE_SWAP      = 5,
	STAG_WR_FETCH_ADD         = 6,
	STAG_WR_LOCAL_INVALIDATE  = 7,
	STAG_WR_BIND_MW           = 8,
	STAG_WR_SEND_INVALIDATE   = 9,
};

#define STAG_SEND_FENCE     1u
#define STAG_SEND_SIGNALED  2u
#define STAG_SEND_SOLICITED 4u

/* Operations of a completion. The status is that of ibv_wc_status. */
enum stag_wc {
	STAG_WC_SEND             = 0,
	STAG_WC_WRITE            = 1,
	STAG_WC_READ             = 2,
	STAG_WC_COMPARE_SWAP     = 3,
	STAG_WC_FETCH_ADD        = 4,
	STAG_WC_BIND_MW          = 5,
	STAG_WC_LOCAL_INVALIDATE = 6,
	STAG_WC_RECV             = 128,
	STAG_WC_RECV_IMM         = 129,
	STAG_WC_NONE             = 255,
};

#define STAG_ASSERT_(what, size) _Static_assert(sizeof(what) == (size), #what)
STAG_ASSERT_(struct stag_hello, 64);
STAG_ASSERT_(struct stag_device, 200);
STAG_ASSERT_(struct stag_port, 96);
STAG_ASSERT_(struct stag_gid, 32);
STAG_ASSERT_(struct stag_cq, 32);
STAG_ASSERT_(struct stag_qp, 112);
STAG_ASSERT_(struct stag_qp_attr, 112);
STAG_ASSERT_(struct stag_mr, 48);
STAG_ASSERT_(struct stag_mw, 16);
STAG_ASSERT_(struct stag_srq, 48);
STAG_ASSERT_(struct stag_destroy, 8);
STAG_ASSERT_(struct stag_attach, 16);
STAG_ASSERT_(struct stag_async, 24);
STAG_ASSERT_(struct stag_id, 24);
STAG_ASSERT_(struct stag_address, 72);
STAG_ASSERT_(struct stag_conn, 40);
STAG_ASSERT_(struct stag_migrate, 24);
STAG_ASSERT_(struct stag_option, 80);
STAG_ASSERT_(struct stag_cm_event, 112);
STAG_ASSERT_(struct stag_msg, 792);
STAG_ASSERT_(struct stag_bell, STAG_BELL_LEN);
STAG_ASSERT_(struct stag_queue_ring, STAG_SLOTS_AT);
STAG_ASSERT_(struct stag_cq_ring, STAG_SLOTS_AT);
STAG_ASSERT_(struct stag_send_slot, 32);
STAG_ASSERT_(struct stag_recv_slot, 16);
STAG_ASSERT_(struct stag_element, 16);
STAG_ASSERT_(struct stag_operands, 32);
STAG_ASSERT_(struct stag_cell, 32);
#undef STAG_ASSERT_

#define STAG_ASSERT_AT_(type, field, offset) _Static_assert(offsetof(struct type, field) == (offset), #type "." #field)
STAG_ASSERT_AT_(stag_msg, handle, 8);
STAG_ASSERT_AT_(stag_msg, body, 16);
STAG_ASSERT_AT_(stag_msg, private_len, 272);
STAG_ASSERT_AT_(stag_msg, private_data, 280);
STAG_ASSERT_AT_(stag_hello, token, 24);
STAG_ASSERT_AT_(stag_device, features, 104);
STAG_ASSERT_AT_(stag_qp, send_depth, 48);
STAG_ASSERT_AT_(stag_qp, recv_offset, 80);
STAG_ASSERT_AT_(stag_qp_attr, dgid, 96);
STAG_ASSERT_AT_(stag_mr, access, 32);
STAG_ASSERT_AT_(stag_address, dst, 28);
STAG_ASSERT_AT_(stag_cm_event, src, 24);
STAG_ASSERT_AT_(stag_cm_event, port_num, 80);
STAG_ASSERT_AT_(stag_bell, bits, 64);
STAG_ASSERT_AT_(stag_queue_ring, done, 64);
STAG_ASSERT_AT_(stag_queue_ring, waits, 72);
STAG_ASSERT_AT_(stag_queue_ring, shape, 128);
STAG_ASSERT_AT_(stag_cq_ring, armed, 8);
STAG_ASSERT_AT_(stag_cq_ring, overrun, 64);
STAG_ASSERT_AT_(stag_cell, op, 16);
STAG_ASSERT_AT_(stag_cell, invalidated, 20);
#undef STAG_ASSERT_AT_

#endif
