package show

import (
	"net/netip"
	"os"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func counters(layer string, pairs ...any) (list []report.Counter) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, report.Counter{Layer: layer, Name: pairs[i].(string), Value: uint64(pairs[i+1].(int))})
	}
	return list
}

func of(device string, list []report.Counter) []report.Counter {
	for i := range list {
		list[i].Device = device
	}
	return list
}

var none = []report.Counter{}

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fixture returns an engine with an interface, an engine over the kernel's TCP, and a pinned program whose engine was
// killed.
func fixture() []engines.Source {
	return []engines.Source{offloaded(), kernels(), pinned()}
}

func offloaded() engines.Source {
	half, minute := uint32(14480), uint64(60)
	local, remote := addrPort("192.0.2.1:7174"), addrPort("192.0.2.2:40112")
	local6, remote6 := addrPort("[2001:db8:1:2:3:4:5:6]:7174"), addrPort("[2001:db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:61234")
	return engines.Source{UID: os.Geteuid(), Engine: report.Engine{
		Schema: report.Schema, PID: 4711, Program: "storage", Adapter: 1, Started: began, Netns: 4097,
		Devices: []report.Device{{
			Name: "eth1", State: "PORT_ACTIVE", Ifindex: 3, MAC: "02:00:00:00:00:01", MTU: 1500, Driver: "veth",
			Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8:1:2:3:4:5:6/64")},
			Path:      "XDP native, AF_XDP copy on veth", XDP: "native", Program: 12, Queues: 2, Flows: 3, MaxFlows: 1024, FlowTable: 65536,
			HeapSize: 1 << 28, HeapFree: 1 << 27, MaxMRs: 65535, Speed: 10_000_000_000,
		}},
		Ports: []report.Port{
			{Device: "eth3", State: "drained", Addresses: 1, MovesIn: 1, MovesOut: 12, MovesFailed: 2, Last: "out", LastPort: "eth1", LastCause: "drain", LastAge: &minute},
			{Device: "eth1", State: "up", Addresses: 2, Flows: 3, Foreign: 67, MovesIn: 12, MovesOut: 1, Last: "in", LastPort: "eth3", LastCause: "drain", LastAge: &minute},
		},
		Flows: []report.Flow{
			{Device: "eth1", Queue: 1, ID: 0x100002, Kind: "rdma", State: "live", Local: local6, Remote: remote6, QP: 3, Age: 7, NextHop: "2001:db8::ff", NextHopMAC: "02:00:00:00:00:ff", Arrives: "eth3", ArrivesPercent: 97,
				Diverted: "not this interface's connection: the route to 2001:db8::2 leads through eth2, not eth1", TCP: &report.TCP{
					State: "CLOSE-WAIT", Congestion: "reno", Followed: "reno", Cwnd: 14480, SndWnd: 65536, RcvWnd: 131072, MSS: 1448, PMTU: 1500,
					SRTT: 22, RTTVar: 11, RTO: 200000, Counters: none,
				}},
			{Device: "eth1", ID: 0x100001, Kind: "rdma", State: "live", Local: local, Remote: remote, QP: 2, Age: 3600, VLAN: 100, TCP: &report.TCP{
				State: "ESTABLISHED", ECN: true, Congestion: "cubic", Followed: "bbr", Cwnd: 28960, Ssthresh: &half, SndWnd: 4194304, RcvWnd: 6291456, MSS: 1448, PMTU: 1500,
				SRTT: 1250, RTTVar: 600, RTO: 203650, Backoff: 1, Recovering: true, InFlight: 4344, Unacked: 8688, Unread: 12, SndSegs: 6,
				Counters: counters("tcp", "segs_in", 5, "segs_out", 9, "octets_in", 512, "octets_out", 123456789, "octets_acked", 123448101,
					"retransmits", 3, "timeouts", 1, "recoveries", 2, "dup_sacks", 4, "out_of_order", 8, "ecn_cuts", 7),
			}},
			{Device: "eth1", Queue: -1, ID: 0x100003, Kind: "bytes", State: "park", Local: local, Remote: addrPort("192.0.2.9:99")},
		},
		QPs: []report.QP{
			{Number: 3, State: "Terminate", Device: "eth1", Flow: 0x100002, PD: 1, SendCQ: 1, RecvCQ: 2, SendDepth: 64, RecvDepth: 128, MaxSGE: 4,
				MaxInline: 256, Local: &local6, Remote: &remote6, Revision: 1, CRC: true, Markers: "both", Counters: none,
				Error: "the peer sent a Terminate: bad STag\n\x1b[2Jgone"},
			{Number: 2, State: "RTS", Device: "eth1", Flow: 0x100001, PD: 1, SendCQ: 1, RecvCQ: 1, SendDepth: 64, RecvDepth: 64, MaxSGE: 4,
				Local: &local, Remote: &remote, Initiator: true, Revision: 2, Markers: "none", IRD: 16, ORD: 8,
				SRQ: 2, Rate: 125_000_000, Extensions: []string{"aligned_fpdus", "rfc7306"},
				Counters: counters("rdmap", "writes_out", 17, "reads_out", 0)},
			{Number: 4, State: "Idle", PD: 2, SendCQ: 1, RecvCQ: 1, SendDepth: 1, RecvDepth: 1, MaxSGE: 1, Markers: "none", Counters: none},
		},
		MRs: []report.MR{
			{STag: "0x00000b42", Kind: "window", Valid: false, PD: 1, QP: 2, Start: 0, Length: 4096, Rights: report.Rights("remote read, remote write"), Heap: true, Window: "2A", Parent: 10},
			{STag: "0x00000a41", Kind: "region", Valid: true, PD: 1, Start: 0x7f0000000000, Length: 1 << 30, Rights: report.Rights("local read, local write"), Windows: 1, PageSize: 2 << 20, Pages: 513, Shared: 2},
		},
		CQs: []report.CQ{{Number: 2, Depth: 1024, Ready: 1024, QPs: 1, Overrun: true}, {Number: 1, Depth: 16, QPs: 3}},
		SRQs: []report.SRQ{
			{Number: 2, PD: 1, Depth: 4096, MaxSGE: 1, Posted: 4000, Taken: 96, Limit: 1000, QPs: 300},
			{Number: 1, PD: 2, Depth: 16, MaxSGE: 4},
		},
		Clients: []report.Client{
			{Number: 2, PID: 4802, UID: 1000, Program: "ib_write_bw", Personality: "roce", Age: 12, QPs: 4, CQs: 4, SRQs: 1, MRs: 9, MWs: 2, PDs: 1, IDs: 4, Rings: 1 << 20, Mapped: 4 << 30, Refused: 3, LastWord: "rings"},
			{Number: 1, PID: 4801, Program: "rping\x1b[2J", Personality: "iwarp", Age: 3601, QPs: 1, CQs: 1, MRs: 3, PDs: 1, IDs: 1, Rings: 8192, Mapped: 300},
		},
		ISCSI: []report.Session{
			{Number: 2, Role: "target", State: "up", Initiator: "iqn.2026-01.test.stag:i1", Target: "iqn.2026-01.test.stag:t1", ISID: "80abcdef0001", TSIH: 7, User: "alice",
				Device: "eth1", Carrier: "tcp", Flow: 0x100002, Local: &local, Remote: &remote, DataDigest: true, Age: 61, Depth: 128, LUNs: []uint16{1, 2},
				InProgress: 4, CommandAges: []int{2, 1, 0, 0, 0, 1}, Oldest: 12_500_000,
				Counters: append(append(counters("iscsi_target", "commands", 1000, "failed", 0), counters("iscsi_target_reason", "no_task", 2)...), counters("iscsi_target_latency", "below_32us", 900, "longer", 0)...)},
			{Number: 1, Role: "initiator", State: "held", Initiator: "iqn.2026-01.test.stag:i1\x1b[2J", Target: "iqn.2026-01.test.other:t9", ISID: "80abcdef0002",
				Carrier: "tcp", Age: 3, Depth: 144, LUNs: []uint16{}, CommandAges: make([]int, 6), Recoveries: 3, Error: "connection reset by peer", Counters: none},
		},
		LUNs: []report.LUN{
			{Role: "target", Target: "iqn.2026-01.test.stag:t1", LUN: 1, Octets: 64 << 20, BlockSize: 512, Backend: "file /srv/disk\x1b[2J.img", Serial: "1", Sessions: 2, Registered: 2,
				Reservation: "Write Exclusive of iqn.2026-01.test.stag:i1,i,0x80abcdef0001"},
			{Role: "initiator", Target: "iqn.2026-01.test.other:t9", LUN: 3, Session: 1, Octets: 1 << 30, BlockSize: 4096, ReadOnly: true, Sessions: 1},
		},
		Queues: []report.Queue{
			{Device: "eth1", Queue: 1, Mode: "copy", FrameSize: 4096, RxFrames: 4096, TxFrames: 4096, Flows: 1, Asleep: true,
				Counters: append(counters("engine", "steps", 0), counters("xsk", "rx", 0)...)},
			{Device: "eth1", Queue: 0, Mode: "copy", FrameSize: 4096, RxFrames: 4096, TxFrames: 4096, Flows: 2,
				Counters: append(append(counters("engine", "steps", 123, "rx_packets", 456), counters("tcp", "duplicate", 2, "paws", 0)...),
					append(counters("xsk", "rx", 456, "rx_bad", 0, "kicks", 99), counters("xsk_kernel", "rx_dropped", 1, "rx_ring_full", 0)...)...)},
		},
		Counters: append(of("eth1", counters("steer", "steered", 400, "no_flow", 7, "fragment", 0)), counters("tpt", "bad_stag", 1, "wrap", 0)...),
	}}
}

func kernels() engines.Source {
	return engines.Source{UID: os.Geteuid(), Engine: report.Engine{
		Schema: report.Schema, PID: 812, Program: "app \x1b]0;title\x07\u202e", Adapter: 2, Started: began, Netns: 1,
		Devices: []report.Device{{Name: report.KernelDevice, State: "PORT_ACTIVE", Path: "kernel port", Addresses: []netip.Prefix{}}},
		CQs:     []report.CQ{{Number: 1, Depth: 16}},
	}}
}

func pinned() engines.Source {
	return engines.Source{
		Engine: report.Engine{
			Schema: report.Schema, Netns: 1,
			Devices: []report.Device{{Name: "eth2", State: engines.Unused, Ifindex: 5, XDP: "native", Path: "pinned program, native, no engine", Addresses: []netip.Prefix{},
				Instance: "/sys/fs/bpf/stag/eth2-1", Program: 44, Flows: 1, FlowTable: 256}},
			Flows: []report.Flow{{Device: "eth2", Queue: 0, ID: 7, Kind: "rdma", State: "orphan", Age: 61,
				Local: addrPort("198.51.100.1:5000"), Remote: addrPort("198.51.100.2:7174")}},
			MRs:      []report.MR{{STag: "0x00000c01", Kind: "region", Valid: true, PD: 1, Length: 65536, Rights: report.Rights("none"), Heap: true}},
			Counters: of("eth2", counters("steer", "steered", 0, "no_socket", 31)),
		},
		Instance: "/sys/fs/bpf/stag/eth2-1",
		Space:    "blue",
		Left:     []engines.Left{{Device: "eth2", Flow: 7, PID: 999}},
	}
}
