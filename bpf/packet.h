/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Headers of packets that no header of the kernel has, and a cursor that steps over headers. */
#ifndef STAG_PACKET_H
#define STAG_PACKET_H

#include <linux/types.h>

struct vlan_tag {
	__be16 tci;
	__be16 proto;
};

/* A tagged FPDU up to its STag: RFC 5044 §4.1, RFC 5041 §4.2, RFC 5040 §4.1. */
struct tagged_fpdu {
	__be16 ulpdu_len;
	__u8 ddp;   /* T 0x80, version 0x03 */
	__u8 rdmap; /* version 0xc0 */
	__be32 stag;
	__be64 offset;
};
#define TAGGED_ULPDU_MIN 14

/* ICMP and ICMPv6 (RFC 792, RFC 4443 §2.1); linux/icmp.h needs a C library. */
struct icmp_header {
	__u8 type;
	__u8 code;
	__sum16 sum;
	__be32 rest;
};
#define ICMP_UNREACHABLE 3
#define ICMP_CODE_TOO_BIG 4 /* fragmentation needed */
#define ICMPV6_TOO_BIG 2

/* The octets of a TCP header that every ICMP quotation has (RFC 792). */
struct quoted_ports {
	__be16 source;
	__be16 dest;
	__be32 seq;
};

/* A position in a packet. The verifier knows that every octet before `pos` exists. */
struct cursor {
	void *pos;
	void *end;
	__u16 offset; /* of pos in the packet: the difference would take CAP_PERFMON, too */
};

/*
 * TAKE points header at the next header and steps over it. TAKE is 0 if the header is
 * cut off. It does not set header to NULL then. A comparison of a packet pointer with
 * NULL needs CAP_PERFMON, and this program must load without CAP_PERFMON.
 */
#define TAKE(c, header) ((header) = (c)->pos, step((c), sizeof(*(header))))

static __always_inline int step(struct cursor *c, __u32 size)
{
	if (c->pos + size > c->end)
		return 0;
	c->pos += size;
	c->offset += size;
	return 1;
}

/*
 * step_words steps over TCP options, which are up to 10 words. Adding a variable
 * to a packet's pointer needs CAP_PERFMON; adding a constant does not.
 */
static __always_inline int step_words(struct cursor *c, __u32 words)
{
	switch (words) {
	case 0: return 1;
	case 1: return step(c, 4);
	case 2: return step(c, 8);
	case 3: return step(c, 12);
	case 4: return step(c, 16);
	case 5: return step(c, 20);
	case 6: return step(c, 24);
	case 7: return step(c, 28);
	case 8: return step(c, 32);
	case 9: return step(c, 36);
	}
	return step(c, 40);
}

#endif
