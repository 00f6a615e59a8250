//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The steering program. It finds the flow of a packet that arrives, writes a
 * steering record in front of it and redirects it to the socket of its queue.
 * Only whole TCP segments of a known flow, and ICMP "too big" messages about such
 * segments, have a flow. The program passes all other packets to the kernel (XDP_PASS).
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "abi.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * The flows of an adapter. The programs on all ports of the adapter read them. The
 * loader sets max_entries of flows and xsks.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct stag_flow_key);
	__type(value, struct stag_flow);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1);
	__type(key, __u32); /* receive queue */
	__type(value, __u32);
} xsks SEC(".maps");

/*
 * The sockets of all lanes, on any port of any adapter that shares the flows. The
 * program does not redirect to them: it only checks the slot. A filled slot means that
 * the lane's engine lives.
 */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, STAG_LANES);
	__type(key, __u32); /* owner of a flow */
	__type(value, __u32);
} lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STAG_REASONS);
	__type(key, __u32); /* enum stag_reason */
	__type(value, __u64);
} stats SEC(".maps");

/*
 * The adapter's table and its page lists. The adapter creates them and chooses their
 * sizes. The program does not read them, and is loaded without them.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32); /* the upper 24 bits of an STag */
	__type(value, struct stag_entry);
} tpt SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64); /* enum stag_space and an offset, or an index */
} att SEC(".maps");

/* The program reads the options only when a packet finds no socket. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stag_options);
} options SEC(".maps");

/* The layouts that this program was built with. The program does not read them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stag_config);
} config SEC(".maps");

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

static __always_inline void count(enum stag_reason why)
{
	__u32 index = why;
	__u64 *n = bpf_map_lookup_elem(&stats, &index);

	if (n)
		++*n;
}

/*
 * leave counts the reason why and returns the verdict on a packet that is not
 * steered. leave must not be inlined: the object's BTF has the types of a
 * function's parameters only if the function is not inlined.
 */
static __noinline int leave(enum stag_reason why, int verdict)
{
	count(why);
	return verdict;
}

/*
 * stranded decides on a packet of a flow whose queue has no socket. While the owner's
 * engine has a socket, on any port, stranded drops the packet, so that the kernel does not
 * see it. The kernel empties the owner's slot when the engine's process ends for any cause.
 * A stopped engine keeps its slot. After orphan_wait the program deletes the flow of an
 * ended engine and passes the packet. The kernel has no such connection, so it resets the
 * peer. The wait is needed because an ending process closes the sockets that reserve the
 * ports of its connections a little later than the sockets of its queues.
 */
static __noinline int stranded(const struct stag_flow_key *key)
{
	struct stag_flow *f = bpf_map_lookup_elem(&flows, key);
	const struct stag_options *o;
	__u32 owner, zero = 0;
	__u64 now;

	if (!f)
		return leave(STAG_NO_SOCKET, XDP_DROP);
	owner = f->owner;
	o = bpf_map_lookup_elem(&options, &zero);
	if (!o || bpf_map_lookup_elem(&lanes, &owner)) {
		f->orphaned = 0;
		return leave(STAG_NO_SOCKET, XDP_DROP);
	}
	now = bpf_ktime_get_ns();
	if (!f->orphaned)
		f->orphaned = now;
	if (now - f->orphaned < o->orphan_wait)
		return leave(STAG_NO_SOCKET, XDP_DROP);
	bpf_map_delete_elem(&flows, key);
	return leave(STAG_ORPHANED, XDP_PASS);
}

/*
 * steer writes the record and redirects the packet to this queue's socket. The socket
 * gets the fragments of a packet as one packet. If the packet is too long for the socket,
 * steer drops it, because the kernel must not see it: see the redirect below.
 */
static __always_inline int steer(struct xdp_md *ctx, const struct stag_record *r,
				 const struct stag_flow_key *key, __u32 longest)
{
	enum stag_reason why = STAG_STEERED_BARE;

	if (longest && bpf_xdp_get_buff_len(ctx) > longest)
		return leave(STAG_TOO_LONG, XDP_DROP);

	/* This call fails if the driver has no room in front of the packet. */
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*r)) == 0) {
		struct stag_record *front = (void *)(long)ctx->data_meta;

		if ((void *)(front + 1) <= (void *)(long)ctx->data) {
			*front = *r;
			why = STAG_STEERED;
		}
	}
	/* If the slot is empty, the packet must not pass while the engine lives. The
	 * kernel no longer has the connection, and would answer with a reset. */
	if (bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_DROP) != XDP_REDIRECT)
		return stranded(key);
	count(why);
	return XDP_REDIRECT;
}

/* steer_rare does the same as steer, but is not inlined, for the reason given at leave. */
static __noinline int steer_rare(struct xdp_md *ctx, const struct stag_record *r,
				 const struct stag_flow_key *key, __u32 longest)
{
	return steer(ctx, r, key, longest);
}

/* look_up finds the flow and copies magic, flow, kind and owner into the record. */
static __always_inline const struct stag_flow *look_up(const struct stag_flow_key *key, struct stag_record *r)
{
	const struct stag_flow *f = bpf_map_lookup_elem(&flows, key);

	if (!f)
		return 0;
	r->magic = STAG_MAGIC;
	r->flow = f->flow;
	r->kind = f->kind;
	r->owner = f->owner;
	return f;
}

/* note_fpdu records the STag if the payload of len octets begins with a tagged FPDU. */
static __always_inline void note_fpdu(struct cursor *c, __u32 len, struct stag_record *r)
{
	const struct tagged_fpdu *f;

	if (r->kind != STAG_KIND_RDMA || len < sizeof(*f))
		return;
	if (!TAKE(c, f) || (f->ddp & 0x83) != 0x81 || (f->rdmap & 0xc0) != 0x40 ||
	    bpf_ntohs(f->ulpdu_len) < TAGGED_ULPDU_MIN)
		return;
	r->flags |= STAG_FPDU;
	r->stag = bpf_ntohl(f->stag);
}

/* tcp decides on a whole TCP packet whose IP payload is len octets. */
static __always_inline int tcp(struct xdp_md *ctx, struct cursor *c, __u32 len,
			       struct stag_flow_key *key, struct stag_record *r)
{
	const struct stag_flow *f;
	const struct tcphdr *tcp;
	__u32 header;

	if (!TAKE(c, tcp))
		return leave(STAG_SHORT_TCP, XDP_PASS);
	key->remote_port = tcp->source;
	key->local_port = tcp->dest;
	f = look_up(key, r);
	if (!f)
		return leave(STAG_NO_FLOW, XDP_PASS);
	header = tcp->doff * 4;
	if (header < sizeof(*tcp) || header > len)
		return leave(STAG_BAD_TCP, XDP_PASS);
	if (!step_words(c, tcp->doff - sizeof(*tcp) / 4))
		return leave(STAG_SHORT_TCP, XDP_PASS);
	note_fpdu(c, len - header, r);
	return steer(ctx, r, key, f->longest);
}

/*
 * quoted decides on an ICMP "too big". The quotation is a segment that this machine
 * sent, so the source of the quotation is the local end.
 */
static __always_inline int quoted(struct xdp_md *ctx, struct cursor *c,
				  struct stag_flow_key *key, struct stag_record *r)
{
	const struct quoted_ports *ports;
	const struct stag_flow *f;

	if (!TAKE(c, ports))
		return leave(STAG_SHORT_ICMP, XDP_PASS);
	key->local_port = ports->source;
	key->remote_port = ports->dest;
	f = look_up(key, r);
	if (!f)
		return leave(STAG_ICMP_NO_FLOW, XDP_PASS);
	r->kind = STAG_KIND_ICMP;
	return steer_rare(ctx, r, key, f->longest);
}

static __always_inline int icmp4(struct xdp_md *ctx, struct cursor *c, __u32 len,
				 struct stag_flow_key *key, struct stag_record *r)
{
	const struct icmp_header *icmp;
	const struct iphdr *ip;

	if (!TAKE(c, icmp))
		return leave(STAG_SHORT_ICMP, XDP_PASS);
	if (icmp->type != ICMP_UNREACHABLE || icmp->code != ICMP_CODE_TOO_BIG)
		return leave(STAG_ICMP_OTHER, XDP_PASS);
	if (len < sizeof(*icmp) + sizeof(*ip) + sizeof(struct quoted_ports))
		return leave(STAG_SHORT_ICMP, XDP_PASS);
	if (!TAKE(c, ip))
		return leave(STAG_SHORT_ICMP, XDP_PASS);
	/* The engine's segments have no IP options and are never fragments. */
	if (ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_TCP ||
	    ip->frag_off & bpf_htons(0x3fff))
		return leave(STAG_ICMP_OTHER, XDP_PASS);
	__builtin_memcpy(key->local, &ip->saddr, sizeof(ip->saddr));
	__builtin_memcpy(key->remote, &ip->daddr, sizeof(ip->daddr));
	return quoted(ctx, c, key, r);
}

static __always_inline int icmp6(struct xdp_md *ctx, struct cursor *c, __u32 len,
				 struct stag_flow_key *key, struct stag_record *r)
{
	const struct icmp_header *icmp;
	const struct ipv6hdr *ip;

	if (!TAKE(c, icmp))
		return leave(STAG_SHORT_ICMP, XDP_PASS);
	if (icmp->type != ICMPV6_TOO_BIG)
		return leave(STAG_ICMP_OTHER, XDP_PASS);
	if (len < sizeof(*icmp) + sizeof(*ip) + sizeof(struct quoted_ports))
		return leave(STAG_SHORT_ICMP, XDP_PASS);
	if (!TAKE(c, ip))
		return leave(STAG_SHORT_ICMP, XDP_PASS);
	if (ip->version != 6 || ip->nexthdr != IPPROTO_TCP)
		return leave(STAG_ICMP_OTHER, XDP_PASS);
	__builtin_memcpy(key->local, &ip->saddr, sizeof(ip->saddr));
	__builtin_memcpy(key->remote, &ip->daddr, sizeof(ip->daddr));
	return quoted(ctx, c, key, r);
}

/* whole reports whether the packet is as long as its IP header says. */
static __always_inline int whole(struct xdp_md *ctx, __u32 l3, __u32 ip_len)
{
	/* This length includes fragments. The cursor sees only the linear part. */
	return l3 + ip_len <= bpf_xdp_get_buff_len(ctx);
}

static __always_inline int ip4(struct xdp_md *ctx, struct cursor *c,
			       struct stag_flow_key *key, struct stag_record *r)
{
	const struct iphdr *ip;
	__u32 len, l3 = c->offset;

	if (!TAKE(c, ip))
		return leave(STAG_SHORT_IP4, XDP_PASS);
	len = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || ip->ihl < 5 || len < ip->ihl * 4 || !whole(ctx, l3, len))
		return leave(STAG_BAD_IP, XDP_PASS);
	if (ip->ihl != 5)
		return leave(STAG_IP_OPTIONS, XDP_PASS);
	if (ip->frag_off & bpf_htons(0x3fff)) /* more to come, or not the first */
		return leave(STAG_FRAGMENT, XDP_PASS);
	key->family = 4;
	len -= sizeof(*ip);
	if (ip->protocol == IPPROTO_ICMP)
		return icmp4(ctx, c, len, key, r);
	if (ip->protocol != IPPROTO_TCP)
		return leave(STAG_NOT_TCP, XDP_PASS);
	__builtin_memcpy(key->remote, &ip->saddr, sizeof(ip->saddr));
	__builtin_memcpy(key->local, &ip->daddr, sizeof(ip->daddr));
	return tcp(ctx, c, len, key, r);
}

/* extended reports whether next is an extension header, not a protocol. */
static __always_inline int extended(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_DSTOPTS ||
	       next == IPPROTO_AH;
}

static __always_inline int ip6(struct xdp_md *ctx, struct cursor *c,
			       struct stag_flow_key *key, struct stag_record *r)
{
	const struct ipv6hdr *ip;
	__u32 len, l3 = c->offset;

	if (!TAKE(c, ip))
		return leave(STAG_SHORT_IP6, XDP_PASS);
	len = bpf_ntohs(ip->payload_len);
	if (ip->version != 6 || !whole(ctx, l3, sizeof(*ip) + len))
		return leave(STAG_BAD_IP, XDP_PASS);
	if (ip->nexthdr == IPPROTO_FRAGMENT)
		return leave(STAG_FRAGMENT, XDP_PASS);
	if (extended(ip->nexthdr))
		return leave(STAG_IP_OPTIONS, XDP_PASS);
	key->family = 6;
	if (ip->nexthdr == IPPROTO_ICMPV6)
		return icmp6(ctx, c, len, key, r);
	if (ip->nexthdr != IPPROTO_TCP)
		return leave(STAG_NOT_TCP, XDP_PASS);
	__builtin_memcpy(key->remote, &ip->saddr, sizeof(ip->saddr));
	__builtin_memcpy(key->local, &ip->daddr, sizeof(ip->daddr));
	return tcp(ctx, c, len, key, r);
}

SEC("xdp.frags")
int stag_steer(struct xdp_md *ctx)
{
	struct cursor c = {
		.pos = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};
	struct stag_flow_key key = {};
	struct stag_record r = {};
	const struct ethhdr *eth;
	__be16 proto;

	if (!TAKE(&c, eth))
		return leave(STAG_SHORT_ETHERNET, XDP_PASS);
	proto = eth->h_proto;
	if (proto == bpf_htons(ETH_P_8021Q)) {
		const struct vlan_tag *tag;

		if (!TAKE(&c, tag))
			return leave(STAG_SHORT_VLAN, XDP_PASS);
		key.vlan = bpf_ntohs(tag->tci) & 0x0fff;
		proto = tag->proto;
	}
	if (proto == bpf_htons(ETH_P_IP))
		return ip4(ctx, &c, &key, &r);
	if (proto == bpf_htons(ETH_P_IPV6))
		return ip6(ctx, &c, &key, &r);
	return leave(STAG_NOT_IP, XDP_PASS);
}
