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
#include "packet.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/*
 * The flows of an adapter, by address family. The programs on all ports of the adapter
 * read them. The loader sets max_entries of flows4, flows6 and xsks.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct stag_flow_key4);
	__type(value, struct stag_flow);
} flows4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct stag_flow_key6);
	__type(value, struct stag_flow);
} flows6 SEC(".maps");

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
 * function's parameters only if the function is not inlined. Reasons of ordinary
 * traffic that is not stag's have pass instead, which costs no call.
 */
static __noinline int leave(enum stag_reason why, int verdict)
{
	count(why);
	return verdict;
}

/* pass does the same as leave for a packet that the kernel gets. */
static __always_inline int pass(enum stag_reason why)
{
	count(why);
	return XDP_PASS;
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
static __noinline int stranded(void *flows, const void *key)
{
	struct stag_flow *f = bpf_map_lookup_elem(flows, key);
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
	bpf_map_delete_elem(flows, key);
	return leave(STAG_ORPHANED, XDP_PASS);
}

/*
 * unfit returns why a flow's packet is not steered, or STAG_STEERED. A packet may not end
 * before end, where its IP header says that it ends, nor be too long for the socket. Packets
 * without a flow are not checked: the kernel gets them anyway, and the length costs a call.
 */
static __always_inline enum stag_reason unfit(struct xdp_md *ctx, __u32 end, __u32 longest)
{
	/* This length includes fragments. The cursor sees only the linear part. */
	__u32 length = bpf_xdp_get_buff_len(ctx);

	if (end > length)
		return STAG_BAD_IP;
	return longest && length > longest ? STAG_TOO_LONG : STAG_STEERED;
}

/* refuse decides on a packet that is unfit. The kernel must not see one that is too long:
 * see the redirect in steer. */
static __always_inline int refuse(enum stag_reason why)
{
	return leave(why, why == STAG_TOO_LONG ? XDP_DROP : XDP_PASS);
}

/*
 * steer writes the record and redirects the packet to this queue's socket. The socket
 * gets the fragments of a packet as one packet.
 */
static __always_inline int steer(struct xdp_md *ctx, const struct stag_record *r, void *flows, const void *key)
{
	enum stag_reason why = STAG_STEERED_BARE;

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
		return stranded(flows, key);
	count(why);
	return XDP_REDIRECT;
}

/* steer_rare does the same as steer, but is not inlined, for the reason given at leave. */
static __noinline int steer_rare(struct xdp_md *ctx, const struct stag_record *r,
				 void *flows, const void *key)
{
	return steer(ctx, r, flows, key);
}

/* look_up finds the flow and copies magic, flow, kind and owner into the record. */
static __always_inline const struct stag_flow *look_up(void *flows, const void *key, struct stag_record *r)
{
	const struct stag_flow *f = bpf_map_lookup_elem(flows, key);

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

/*
 * WORDS copies octets of a header into a part of a key. Both begin at a word. A key is
 * written by words, because the lookup reads words: a word that was written in pieces can
 * be read only after all pieces have left the processor's store buffer.
 */
#define WORDS(to, from, octets) \
	__builtin_memcpy(__builtin_assume_aligned(to, 4), __builtin_assume_aligned(from, 4), octets)

/*
 * tcp decides on a TCP packet that ends at end, as its IP header says. The caller has
 * filled in the rest of key; ports is the part that tcp fills in.
 */
static __always_inline int tcp(struct xdp_md *ctx, struct cursor *c, __u32 end,
			       void *flows, const void *key, void *ports, struct stag_record *r)
{
	__u32 header, len = end - c->offset;
	const struct stag_flow *f;
	const struct tcphdr *tcp;
	enum stag_reason why;

	if (!TAKE(c, tcp))
		return leave(STAG_SHORT_TCP, XDP_PASS);
	WORDS(ports, &tcp->source, sizeof(tcp->source) + sizeof(tcp->dest));
	f = look_up(flows, key, r);
	if (!f)
		return pass(STAG_NO_FLOW);
	why = unfit(ctx, end, f->longest);
	if (why)
		return refuse(why);
	header = tcp->doff * 4;
	if (header < sizeof(*tcp) || header > len)
		return leave(STAG_BAD_TCP, XDP_PASS);
	if (!step_words(c, tcp->doff - sizeof(*tcp) / 4))
		return leave(STAG_SHORT_TCP, XDP_PASS);
	note_fpdu(c, len - header, r);
	return steer(ctx, r, flows, key);
}

/*
 * quoted decides on an ICMP "too big". The quotation is a segment that this machine
 * sent, so the source of the quotation is the local end. For key and ports see tcp.
 */
static __always_inline int quoted(struct xdp_md *ctx, struct cursor *c, __u32 end, void *flows,
				  const void *key, __be16 *ports, struct stag_record *r)
{
	const struct quoted_ports *q;
	const struct stag_flow *f;
	enum stag_reason why;

	if (!TAKE(c, q))
		return leave(STAG_SHORT_ICMP, XDP_PASS);
	ports[0] = q->dest;
	ports[1] = q->source;
	f = look_up(flows, key, r);
	if (!f)
		return leave(STAG_ICMP_NO_FLOW, XDP_PASS);
	why = unfit(ctx, end, f->longest);
	if (why)
		return refuse(why);
	r->kind = STAG_KIND_ICMP;
	return steer_rare(ctx, r, flows, key);
}

static __always_inline int icmp4(struct xdp_md *ctx, struct cursor *c, __u32 end,
				 __u32 vlan, struct stag_record *r)
{
	struct stag_flow_key4 key = {.vlan = vlan};
	__u32 len = end - c->offset;
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
	WORDS(key.local, &ip->saddr, sizeof(ip->saddr));
	WORDS(key.remote, &ip->daddr, sizeof(ip->daddr));
	return quoted(ctx, c, end, &flows4, &key, key.ports, r);
}

static __always_inline int icmp6(struct xdp_md *ctx, struct cursor *c, __u32 end,
				 __u32 vlan, struct stag_record *r)
{
	struct stag_flow_key6 key = {.vlan = vlan};
	__u32 len = end - c->offset;
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
	WORDS(key.local, &ip->saddr, sizeof(ip->saddr));
	WORDS(key.remote, &ip->daddr, sizeof(ip->daddr));
	return quoted(ctx, c, end, &flows6, &key, key.ports, r);
}

static __always_inline int ip4(struct xdp_md *ctx, struct cursor *c, __u32 vlan, struct stag_record *r)
{
	struct stag_flow_key4 key = {.vlan = vlan};
	const struct iphdr *ip;
	__u32 len, end = c->offset;

	if (!TAKE(c, ip))
		return leave(STAG_SHORT_IP4, XDP_PASS);
	len = bpf_ntohs(ip->tot_len);
	if (ip->version != 4 || ip->ihl < 5 || len < ip->ihl * 4)
		return leave(STAG_BAD_IP, XDP_PASS);
	if (ip->ihl != 5)
		return leave(STAG_IP_OPTIONS, XDP_PASS);
	if (ip->frag_off & bpf_htons(0x3fff)) /* more to come, or not the first */
		return leave(STAG_FRAGMENT, XDP_PASS);
	end += len;
	if (ip->protocol == IPPROTO_ICMP)
		return icmp4(ctx, c, end, vlan, r);
	if (ip->protocol != IPPROTO_TCP)
		return pass(STAG_NOT_TCP);
	WORDS(key.remote, &ip->saddr, sizeof(ip->saddr));
	WORDS(key.local, &ip->daddr, sizeof(ip->daddr));
	return tcp(ctx, c, end, &flows4, &key, key.ports, r);
}

/* extended reports whether next is an extension header, not a protocol. */
static __always_inline int extended(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_DSTOPTS ||
	       next == IPPROTO_AH;
}

static __always_inline int ip6(struct xdp_md *ctx, struct cursor *c, __u32 vlan, struct stag_record *r)
{
	struct stag_flow_key6 key = {.vlan = vlan};
	const struct ipv6hdr *ip;
	__u32 end = c->offset + sizeof(*ip);

	if (!TAKE(c, ip))
		return leave(STAG_SHORT_IP6, XDP_PASS);
	end += bpf_ntohs(ip->payload_len);
	if (ip->version != 6)
		return leave(STAG_BAD_IP, XDP_PASS);
	if (ip->nexthdr == IPPROTO_FRAGMENT)
		return leave(STAG_FRAGMENT, XDP_PASS);
	if (extended(ip->nexthdr))
		return leave(STAG_IP_OPTIONS, XDP_PASS);
	if (ip->nexthdr == IPPROTO_ICMPV6)
		return icmp6(ctx, c, end, vlan, r);
	if (ip->nexthdr != IPPROTO_TCP)
		return pass(STAG_NOT_TCP);
	WORDS(key.remote, &ip->saddr, sizeof(ip->saddr));
	WORDS(key.local, &ip->daddr, sizeof(ip->daddr));
	return tcp(ctx, c, end, &flows6, &key, key.ports, r);
}

SEC("xdp.frags")
int stag_steer(struct xdp_md *ctx)
{
	struct cursor c = {
		.pos = (void *)(long)ctx->data,
		.end = (void *)(long)ctx->data_end,
	};
	struct stag_record r = {};
	const struct ethhdr *eth;
	__u32 vlan = 0;
	__be16 proto;

	if (!TAKE(&c, eth))
		return leave(STAG_SHORT_ETHERNET, XDP_PASS);
	proto = eth->h_proto;
	if (proto == bpf_htons(ETH_P_8021Q)) {
		const struct vlan_tag *tag;

		if (!TAKE(&c, tag))
			return leave(STAG_SHORT_VLAN, XDP_PASS);
		vlan = bpf_ntohs(tag->tci) & 0x0fff;
		proto = tag->proto;
	}
	if (proto == bpf_htons(ETH_P_IP))
		return ip4(ctx, &c, vlan, &r);
	if (proto == bpf_htons(ETH_P_IPV6))
		return ip6(ctx, &c, vlan, &r);
	return pass(STAG_NOT_IP);
}
