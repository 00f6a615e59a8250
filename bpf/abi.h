/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The layouts that the steering program, the engine and the tools share. The
 * Go mirror is abi.go; a test compares the two through the object's BTF.
 *
 * Byte order: the ports of a flow key are in network order, as in a packet.
 * Addresses are octet strings. Every other number, including the STag in a
 * record, is in host order, because it never leaves the machine.
 */
#ifndef STAG_ABI_H
#define STAG_ABI_H

#include <linux/types.h>
#include <stddef.h>

#define STAG_VERSION 9 /* version of all layouts here; raise it when one of them changes */

#define STAG_MAGIC (0x53544700u | STAG_VERSION) /* "STG" and the version */

#define STAG_AT(type, field, at) \
	_Static_assert(offsetof(type, field) == (at), #type "." #field " stands elsewhere")
#define STAG_SIZE(type, size) \
	_Static_assert(sizeof(type) == (size), #type " has another size")

/* The protocol that a flow carries, or the kind of packet that a record describes. */
enum stag_kind {
	STAG_KIND_RDMA = 1,
	STAG_KIND_ISCSI = 2,
	STAG_KIND_BYTES = 3, /* any other upper-layer protocol */
	STAG_KIND_ICMP = 4,  /* in records only: an ICMP "too big" about a segment of the flow */
};

/* The progress of a flow's take-over by the engine. The program steers in every state. */
enum stag_state {
	STAG_PARK = 1,   /* being taken over: the engine holds segments back */
	STAG_LIVE = 2,   /* the engine runs the connection */
	STAG_ORPHAN = 3, /* reserved: the name that tools give a flow whose engine died */
};

/* Record flags. */
enum stag_flags {
	STAG_FPDU = 1 << 0, /* the payload begins with a tagged FPDU: see stag */
};

/*
 * The keys of `flows4` and `flows6`: addresses, ports and VLAN as arriving packets carry
 * them. IPv4 has a map of its own because a lookup costs more with a longer key.
 */
struct stag_flow_key4 {
	__u8 remote[4];
	__u8 local[4];
	__be16 ports[2]; /* remote, local: the order in which an arriving segment has them */
	__u32 vlan;      /* VLAN id; 0: untagged */
};
STAG_SIZE(struct stag_flow_key4, 16);
STAG_AT(struct stag_flow_key4, remote, 0);
STAG_AT(struct stag_flow_key4, local, 4);
STAG_AT(struct stag_flow_key4, ports, 8);
STAG_AT(struct stag_flow_key4, vlan, 12);

struct stag_flow_key6 {
	__u8 remote[16];
	__u8 local[16];
	__be16 ports[2]; /* remote, local */
	__u32 vlan;
};
STAG_SIZE(struct stag_flow_key6, 40);
STAG_AT(struct stag_flow_key6, remote, 0);
STAG_AT(struct stag_flow_key6, local, 16);
STAG_AT(struct stag_flow_key6, ports, 32);
STAG_AT(struct stag_flow_key6, vlan, 36);

/* The value of both maps. Go code writes it; the program reads it and writes orphaned. */
struct stag_flow {
	__u32 flow;  /* 20-bit index below, 12-bit generation above */
	__u8 kind;   /* enum stag_kind, not ICMP */
	__u8 state;  /* enum stag_state */
	__u16 owner; /* slot in `lanes` of the engine that owns the flow; in STAG_PARK, the slot of one engine of the adapter that takes the flow over */
	__u32 pid;   /* process that made the entry */
	__u32 longest; /* largest packet that the sockets take, in octets with the Ethernet header; 0: no limit */
	__u64 created; /* time at which the entry was made, in nanoseconds of CLOCK_MONOTONIC */
	__u64 orphaned; /* arrival time of the first packet after the owner's engine died, in nanoseconds of CLOCK_MONOTONIC; 0: none */
	__u32 program; /* number of the program on the flow's own port; tools read it */
	__u16 queue; /* queue of that port whose engine owns the flow; 0xffff: none yet */
	__u16 reserved;
};
STAG_SIZE(struct stag_flow, 40);

/*
 * How many lanes all adapters that share `lanes` can have together. A lane is a
 * (port, receive queue) pair.
 */
#define STAG_LANES 1024
STAG_AT(struct stag_flow, flow, 0);
STAG_AT(struct stag_flow, kind, 4);
STAG_AT(struct stag_flow, state, 5);
STAG_AT(struct stag_flow, owner, 6);
STAG_AT(struct stag_flow, pid, 8);
STAG_AT(struct stag_flow, longest, 12);
STAG_AT(struct stag_flow, created, 16);
STAG_AT(struct stag_flow, orphaned, 24);
STAG_AT(struct stag_flow, program, 32);
STAG_AT(struct stag_flow, queue, 36);
STAG_AT(struct stag_flow, reserved, 38);

/*
 * The steering record lies directly in front of a steered packet. The record is a
 * hint: if a packet has no room for it, the engine parses the packet. The engine
 * zeroes the first word of the record before the kernel fills the chunk again. The
 * engine reads magic, flow, flags and stag. Offsets of headers and payload would
 * cost as much to write as they save.
 */
struct stag_record {
	__u32 magic; /* STAG_MAGIC */
	__u32 flow;
	__u8 kind;   /* enum stag_kind */
	__u8 flags;  /* enum stag_flags */
	__u16 owner; /* owner of the flow entry */
	__u32 stag;  /* with STAG_FPDU, else 0 */
};
STAG_SIZE(struct stag_record, 16);
STAG_AT(struct stag_record, magic, 0);
STAG_AT(struct stag_record, flow, 4);
STAG_AT(struct stag_record, kind, 8);
STAG_AT(struct stag_record, flags, 9);
STAG_AT(struct stag_record, owner, 10);
STAG_AT(struct stag_record, stag, 12);

/* The kind of object that an entry of the table describes. */
enum stag_entry_kind {
	STAG_ENTRY_FREE = 0, /* nothing */
	STAG_ENTRY_REGION = 1,
	STAG_ENTRY_WINDOW = 2,
	STAG_ENTRY_ISCSI = 3, /* the buffer of an iSCSI command */
};

/*
 * The state of an entry: the first bit of each part of its 64 bits. A writer that
 * changes other fields stores the state last, each time with another generation. A
 * reader reads the state before and after it reads the other fields. While BUSY is
 * set, a writer is at work and the entry is not valid. A change of TOUCHED or WINDOWS
 * alone keeps the generation, because it changes no field that a reader checks. The
 * state of an entry that was never used is 0.
 */
enum stag_entry_state {
	STAG_STATE_KEY = 0,         /* 8 bits; the lower 8 bits of the STag */
	STAG_STATE_KIND = 8,        /* 4 bits; enum stag_entry_kind */
	STAG_STATE_VALID = 12,      /* 1 bit */
	STAG_STATE_BUSY = 13,       /* 1 bit */
	STAG_STATE_TOUCHED = 14,    /* 1 bit; used once, and invalidated when the stream is at `sequence` */
	STAG_STATE_WINDOWS = 16,    /* 16 bits; how many windows are bound to this region */
	STAG_STATE_GENERATION = 32, /* 32 bits */
};

/* The access of an entry: the number of each bit, or of the first bit of a part. */
enum stag_entry_access {
	STAG_ACCESS_LOCAL_READ = 0,
	STAG_ACCESS_LOCAL_WRITE = 1,
	STAG_ACCESS_REMOTE_READ = 2,
	STAG_ACCESS_REMOTE_WRITE = 3,
	STAG_ACCESS_REMOTE_ATOMIC = 4,
	STAG_ACCESS_BIND = 5,              /* windows may be bound to the region */
	STAG_ACCESS_REMOTE_INVALIDATE = 6, /* any peer of the domain may invalidate */
	STAG_ACCESS_ONE_TOUCH = 8,         /* invalidated after one use */
	STAG_ACCESS_WINDOW = 9,            /* 2 bits; type of a window: 1, 2 for 2A, 3 for 2B */
};

/* The translation of an entry: 2 bits of kind, and the first bit of the other parts. */
enum stag_entry_translation {
	STAG_TRANSLATION_DIRECT = 0, /* base is a space and an offset */
	STAG_TRANSLATION_FIRST = 1,  /* base is an index of `att`: pages */
	STAG_TRANSLATION_SECOND = 2, /* base is an index of `att`: indexes of lists of 512 pages */
	STAG_TRANSLATION_EXTERNAL = 2, /* 1 bit; pages are in external memory */
	STAG_TRANSLATION_PAGE = 8,   /* 8 bits; page size, binary logarithm */
	STAG_TRANSLATION_OWNER = 16, /* 16 bits; number of the process that registered the entry */
};

/* The origin of an offset. The offset is the lower 48 bits of a base or of an `att` entry. */
enum stag_space {
	STAG_SPACE_HEAP = 0,     /* the adapter's region heap */
	STAG_SPACE_EXTERNAL = 1, /* memory that only the owner can access */
	STAG_SPACE_SHIFT = 48,   /* first bit of the space in the word */
};

/*
 * An entry of `tpt`, the translation and protection table: one cache line. Its
 * index is the upper 24 bits of the STag. Entry 0 is never used.
 */
struct stag_entry {
	__u64 state;       /* enum stag_entry_state */
	__u64 start;       /* tagged offset of the first octet */
	__u64 length;      /* octets */
	__u64 base;        /* enum stag_space; or an index of `att`, and above bit 32 the number of the first octet's page */
	__u32 pd;          /* protection domain, not 0 */
	__u32 qp;          /* the only queue pair that may use the entry, of any kind; 0: all queue pairs of pd */
	__u32 parent;      /* index of a window's region; 0: none */
	__u32 first;       /* octets of the first page in front of the first octet */
	__u64 sequence;    /* DDP sequence number stored for one touch */
	__u32 access;      /* enum stag_entry_access */
	__u32 translation; /* enum stag_entry_translation */
};
STAG_SIZE(struct stag_entry, 64);
STAG_AT(struct stag_entry, state, 0);
STAG_AT(struct stag_entry, start, 8);
STAG_AT(struct stag_entry, length, 16);
STAG_AT(struct stag_entry, base, 24);
STAG_AT(struct stag_entry, pd, 32);
STAG_AT(struct stag_entry, qp, 36);
STAG_AT(struct stag_entry, parent, 40);
STAG_AT(struct stag_entry, first, 44);
STAG_AT(struct stag_entry, sequence, 48);
STAG_AT(struct stag_entry, access, 56);
STAG_AT(struct stag_entry, translation, 60);

/* The one entry of `config`. A process checks it before it trusts a pinned map. */
struct stag_config {
	__u32 version; /* STAG_VERSION */
	__u16 key6_size;
	__u16 flow_size;
	__u16 record_size;
	__u16 reasons; /* length of `stats` */
	__u16 entry_size;
	__u16 key4_size;
};
STAG_SIZE(struct stag_config, 16);
STAG_AT(struct stag_config, version, 0);
STAG_AT(struct stag_config, key6_size, 4);
STAG_AT(struct stag_config, flow_size, 6);
STAG_AT(struct stag_config, record_size, 8);
STAG_AT(struct stag_config, reasons, 10);
STAG_AT(struct stag_config, entry_size, 12);
STAG_AT(struct stag_config, key4_size, 14);

/* The one entry of `options`. The loader writes it when it loads the program, or later. */
struct stag_options {
	/* Nanoseconds from the first packet after the death of the flow's engine until
	 * the program deletes the flow. From then on the kernel gets the flow's packets
	 * and resets the peer. */
	__u64 orphan_wait;
};
STAG_SIZE(struct stag_options, 8);
STAG_AT(struct stag_options, orphan_wait, 0);

/*
 * The reason for the verdict on a packet: the index into `stats`. The program counts
 * one for each packet. The order is steered, dropped, passed to the kernel.
 */
enum stag_reason {
	STAG_STEERED,      /* redirected with a record */
	STAG_STEERED_BARE, /* redirected without a record: no room in front of the packet */
	STAG_NO_SOCKET,    /* dropped: the flow is known, but this queue has no socket */
	STAG_TOO_LONG,     /* dropped: the flow is known, but the packet is longer than the flow's sockets take */
	STAG_ORPHANED,     /* passed to the kernel, which resets the peer: the flow's engine has died */

	STAG_SHORT_ETHERNET, /* the frame ends within the header named */
	STAG_SHORT_VLAN,
	STAG_SHORT_IP4,
	STAG_SHORT_IP6,
	STAG_SHORT_TCP,
	STAG_SHORT_ICMP, /* the frame ends within the ICMP message, up to octet 8 of the quoted segment */
	STAG_NOT_IP,     /* ARP, a second VLAN tag, 802.1ad, ... */
	STAG_BAD_IP,     /* impossible version or header length; or a flow's packet ends before its IP header says */
	STAG_IP_OPTIONS, /* IPv4 with options, or IPv6 with an extension header */
	STAG_FRAGMENT,
	STAG_NOT_TCP,
	STAG_BAD_TCP, /* impossible header length */
	STAG_NO_FLOW,
	STAG_ICMP_OTHER,   /* not "too big", or not about a TCP segment */
	STAG_ICMP_NO_FLOW, /* "too big" about a segment of no known flow */

	STAG_REASONS, /* the number of reasons */
};

#endif
