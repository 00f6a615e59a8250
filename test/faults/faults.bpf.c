//go:build ignore

/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A cable with faults. Packets that arrive on one interface leave through another.
 * TCP segments may be dropped, changed, sent twice, or passed to a process that sends
 * them later. Each direction has a copy of the program.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The faults of one direction. The rates are in units of 1/65536. */
struct plan {
	__u32 drop;
	__u32 spoil;   /* change an octet; the checksum detects this */
	__u32 swap;    /* exchange two words of the payload; the checksum does not detect this */
	__u32 twice;
	__u32 late;
	__u32 swaps;   /* limit of swaps; the other faults have no limit */
	__u32 fins;    /* number of FINs to drop, from the first on */
	__u32 largest; /* larger IP packets, in octets, are dropped; 0: no limit */
	__u32 routed;  /* the kernel forwards packets, not the program */
};

/* The counters, and the state of the random generator. */
struct tally {
	__u64 state;
	__u64 segments;
	__u64 dropped;
	__u64 spoilt;
	__u64 swapped;
	__u64 twice;
	__u64 late;
	__u64 fins;
	__u64 vanished;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct plan);
} plans SEC(".maps");

/* The interface has one queue, so only one processor at a time writes this map. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct tally);
} tallies SEC(".maps");

/* Both entries are the interface where packets leave. A broadcast sends twice. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} ahead SEC(".maps");

/* The place of a TCP segment in the frame. */
struct segment {
	__u32 tcp;     /* offset of the TCP header */
	__u32 payload; /* offset of the payload */
	__u32 packet;  /* octets of the IP packet in the frame */
	__u8 fin;
};

/* find reports whether the frame has a TCP segment, and finds its place. */
static __always_inline int find(struct xdp_md *ctx, struct segment *s)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = data;
	struct tcphdr *tcp;
	__u8 proto;

	if ((void *)(eth + 1) > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) > end || ip->ihl != 5)
			return 0;
		proto = ip->protocol;
		s->tcp = sizeof(*eth) + sizeof(*ip);
	} else if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) > end)
			return 0;
		proto = ip->nexthdr;
		s->tcp = sizeof(*eth) + sizeof(*ip);
	} else {
		return 0;
	}
	tcp = data + s->tcp;
	if (proto != IPPROTO_TCP || (void *)(tcp + 1) > end)
		return 0;
	s->payload = s->tcp + tcp->doff * 4;
	s->packet = end - data - sizeof(*eth);
	s->fin = tcp->fin;
	return 1;
}

/* draw returns the next number of a xorshift64* generator. */
static __always_inline __u64 draw(struct tally *t)
{
	__u64 x = t->state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	t->state = x;
	return x * 0x2545f4914f6cdd1dULL;
}

/* happens decides at random whether a fault of this rate happens. */
static __always_inline int happens(struct tally *t, __u32 rate)
{
	return rate && (draw(t) & 0xffff) < rate;
}

/* spoil changes an octet at a random place of the packet. */
static __always_inline int spoil(struct xdp_md *ctx, __u64 luck)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u8 *octet = data + sizeof(struct ethhdr) + (luck & 0x7ff);

	if ((void *)(octet + 1) > end) /* smaller than that: somewhere in the headers */
		octet = data + sizeof(struct ethhdr) + (luck & 0x1f);
	if ((void *)(octet + 1) > end)
		return 0;
	*octet ^= 1 << (luck >> 16 & 7);
	return 1;
}

/*
 * swap exchanges two words of the payload, from octet 64 on. The sum of all words
 * does not change.
 */
static __always_inline int swap(struct xdp_md *ctx, struct segment *s, __u64 luck)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u16 *word = data + (s->payload & 0xff) + 64 + (luck & 0x3fe);
	__u16 first;

	if ((void *)(word + 2) > end || word[0] == word[1])
		return 0;
	first = word[0];
	word[0] = word[1];
	word[1] = first;
	return 1;
}

/* on redirects a frame, once or twice. */
static __always_inline int on(const struct plan *p, __u64 flags)
{
	return p->routed ? XDP_PASS : bpf_redirect_map(&ahead, 0, flags);
}

SEC("xdp")
int stag_faults(struct xdp_md *ctx)
{
	__u32 zero = 0;
	struct plan *p = bpf_map_lookup_elem(&plans, &zero);
	struct tally *t = bpf_map_lookup_elem(&tallies, &zero);
	struct segment s = {};

	if (!p || !t)
		return XDP_ABORTED;
	if (!find(ctx, &s))
		return on(p, 0);
	t->segments++;
	if (p->largest && s.packet > p->largest) {
		t->vanished++;
		return XDP_DROP;
	}
	if (s.fin && t->fins < p->fins) {
		t->fins++;
		return XDP_DROP;
	}
	if (happens(t, p->drop)) {
		t->dropped++;
		return XDP_DROP;
	}
	if (happens(t, p->spoil) && spoil(ctx, draw(t)))
		t->spoilt++;
	if (t->swapped < p->swaps && happens(t, p->swap) && swap(ctx, &s, draw(t)))
		t->swapped++;
	if (happens(t, p->twice)) {
		t->twice++;
		return on(p, BPF_F_BROADCAST);
	}
	if (happens(t, p->late)) {
		t->late++;
		return XDP_PASS; /* to whoever listens on the interface */
	}
	return on(p, 0);
}
