package report

import (
	"net/netip"
	"strings"
	"testing"
)

// TestColumns: each object prints its fields as columns. A column without a value is empty, so that all rows have the
// same number of columns.
func TestColumns(t *testing.T) {
	local, remote := netip.MustParseAddrPort("192.0.2.1:7174"), netip.MustParseAddrPort("192.0.2.2:40112")
	for name, c := range map[string]struct {
		columns []string
		want    string
	}{
		"device": {Device{Name: "eth1", State: "PORT_ACTIVE", MTU: 1500, XDP: "native", Queues: 2, Flows: 3, MaxFlows: 1024, FlowTable: 256}.Columns(),
			"link eth1|state ACTIVE|mtu 1500|mode native,copy|queues 2|flows 3/1024 table 256"},
		"device with zero copy": {Device{Name: "eth1", State: "PORT_DOWN", XDP: "native", ZeroCopy: true, Queues: 1}.Columns(),
			"link eth1|state DOWN||mode native,zero-copy|queues 1|flows 0"},
		"device without an engine": {Device{Name: "eth1", State: "UNUSED", XDP: "generic", Flows: 1, FlowTable: 256}.Columns(),
			"link eth1|state UNUSED||mode generic||flows 1 table 256"},
		"kernel port": {Device{Name: KernelDevice, State: "PORT_ACTIVE"}.Columns(), "link kernel|state ACTIVE||||flows 0"},
		"flow": {Flow{Device: "eth1", Local: local, Remote: remote, TCP: &TCP{State: "ESTABLISHED", Unread: 5, Unacked: 7}}.Columns(),
			"eth1|ESTAB|5|7|192.0.2.1:7174|192.0.2.2:40112"},
		"flow that closes": {Flow{TCP: &TCP{State: "LAST-ACK"}}.Columns(), "|LAST-ACK|0|0|invalid AddrPort|invalid AddrPort"},
		"flow entry":       {Flow{State: "park", Local: local, Remote: remote}.Columns(), "|PARK|-|-|192.0.2.1:7174|192.0.2.2:40112"},
		"QP": {QP{Number: 2, State: "Idle", PD: 3, SendCQ: 4, RecvCQ: 5, SendDepth: 6, RecvDepth: 7}.Columns(),
			"link -|lqpn 2|type RC|state IDLE|pdn 3|scqn 4|rcqn 5|sq 6|rq 7|||"},
		"CQ":         {CQ{Number: 1, Depth: 16, Ready: 2, QPs: 3}.Columns(), "cqn 1|cqe 16|ready 2|users 3|"},
		"overrun CQ": {CQ{Number: 1, Depth: 16, Ready: 16, Overrun: true}.Columns(), "cqn 1|cqe 16|ready 16|users 0|overrun"},
		"client": {Client{Number: 1, PID: 2, UID: 3, Program: "rping", Personality: "iwarp", Age: 4, QPs: 5, CQs: 6, MRs: 7, IDs: 8, Mapped: 9, Rings: 10}.Columns(),
			"client 1|pid 2|uid 3|comm rping|iwarp|qps 5|cqs 6||mrs 7||ids 8|registered 9|rings 10|age 4s"},
		"SRQ": {SRQ{Number: 1, PD: 2, Depth: 16, Posted: 3, Taken: 4, Limit: 5, QPs: 6}.Columns(), "srqn 1|pdn 2|rqe 16|posted 3|taken 4|limit 5|users 6"},
		"region": {MR{STag: "0x00000a41", Kind: "region", Valid: true, PD: 1, Start: 0x7000, Length: 64, Rights: []string{"local_read"}, Windows: 1}.Columns(),
			"stag 0x00000a41|type region|state valid|pdn 1||iova 0x7000|mrlen 64|in application|windows 1|access local_read"},
		"window": {MR{STag: "0x00000b42", Kind: "window", PD: 1, QP: 2, Heap: true, Parent: 10}.Columns(),
			"stag 0x00000b42|type window|state invalid|pdn 1|lqpn 2|iova 0x0|mrlen 0|in heap|region 10|access none"},
		"queue": {Queue{Device: "eth1", Queue: 1, Mode: "copy", FrameSize: 4096, RxFrames: 8, TxFrames: 9, Flows: 2, Asleep: true}.Columns(),
			"dev eth1|queue 1|mode copy|state asleep|flows 2|frame_size 4096|rx_frames 8|tx_frames 9"},
	} {
		if got := strings.Join(c.columns, "|"); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestLines: the lines below a row have the facts that are known, and no others.
func TestLines(t *testing.T) {
	local, remote, half := netip.MustParseAddrPort("192.0.2.1:7174"), netip.MustParseAddrPort("192.0.2.2:40112"), uint32(14480)
	for name, c := range map[string]struct{ line, want string }{
		"flow entry": {Flow{Kind: "rdma", ID: 7, Queue: -1, Age: 3}.Line(), "rdma id:0x7 age:3s"},
		"connection": {Flow{Kind: "rdma", ID: 8, Queue: 1, VLAN: 100, NextHop: "192.0.2.9", TCP: &TCP{
			ECN: true, Congestion: "cubic", Followed: "bbr", RTO: 203650, Backoff: 1, SRTT: 1250, RTTVar: 600, MSS: 1448, PMTU: 1500, Cwnd: 28960,
			Ssthresh: &half, SndWnd: 1, RcvWnd: 2, SndSegs: 6, Recovering: true, Counters: []Counter{{Layer: "tcp", Name: "retransmits", Value: 3}},
		}}.Line(), "ecn cubic instead_of:bbr rto:203.65 backoff:1 rtt:1.25/0.6 mss:1448 pmtu:1500 cwnd_bytes:28960 ssthresh_bytes:14480 unacked:6 retrans:3 " +
			"snd_wnd:1 rcv_wnd:2 recovering rdma id:0x8 queue:1 vlan:100 via:192.0.2.9 age:0s"},
		"connection without a loss": {Flow{Kind: "bytes", ID: 9, TCP: &TCP{Congestion: "reno", Followed: "reno"}}.Line(),
			"reno rto:0 rtt:0/0 mss:0 pmtu:0 cwnd_bytes:0 snd_wnd:0 rcv_wnd:0 bytes id:0x9 queue:0 age:0s"},
		"QP without a connection": {QP{}.Connection(), ""},
		"connected QP": {QP{Local: &local, Remote: &remote, Flow: 7, Initiator: true, Revision: 2, CRC: true, Markers: "none", IRD: 1, ORD: 2}.Connection(),
			"src 192.0.2.1:7174 dst 192.0.2.2:40112 flow 0x7 role initiator mpa 2 crc on markers none ird 1 ord 2"},
		"QP over the kernel port": {QP{Local: &local, Remote: &remote, Markers: "both"}.Connection(),
			"src 192.0.2.1:7174 dst 192.0.2.2:40112 role responder mpa 0 crc off markers both ird 0 ord 0"},
		"limits": {QP{MaxSGE: 4, MaxInline: 256}.Limits(), "max_sge 4 max_inline 256"},
	} {
		if c.line != c.want {
			t.Errorf("%s: %q, want %q", name, c.line, c.want)
		}
	}
}

// TestDetails: the details of a device have every field that has a value.
func TestDetails(t *testing.T) {
	d := Device{Name: "eth1", State: "PORT_ACTIVE", Ifindex: 3, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")},
		Driver: "veth", XDP: "native", Queues: 2, Flows: 3}
	var got []string
	for _, line := range d.Details() {
		if line[1] != "" {
			got = append(got, line[0]+": "+line[1])
		}
	}
	want := "state: PORT_ACTIVE|ifindex: 3|addresses: 192.0.2.1/24 2001:db8::1/64|driver: veth|xdp: native,copy|checksums_to_send: computed by stag|queues: 2|flows: 3"
	if text := strings.Join(got, "|"); text != want {
		t.Errorf("%q, want %q", text, want)
	}
}

// TestFlowID: a flow id is hexadecimal in text and in JSON.
func TestFlowID(t *testing.T) {
	text, err := FlowID(0x100002).MarshalText()
	if err != nil || string(text) != "0x100002" {
		t.Errorf("%q, %v", text, err)
	}
	var id FlowID
	if err := id.UnmarshalText(text); err != nil || id != 0x100002 {
		t.Errorf("%v, %v", id, err)
	}
	if id.UnmarshalText([]byte("eth1")) == nil {
		t.Error("a word is no flow id")
	}
}
