package doctor_test

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/doctor"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestTopics checks that every row has a topic, and that host and interface have
// different topics.
func TestTopics(t *testing.T) {
	need.XDP(t)
	p := netns.Pair(t, pair.Config{})
	var host []doctor.Probe
	netns.In(t, p, pair.A, func() (err error) { host, err = doctor.Host(doctor.Needs{}); return err })
	link := probeLink(t, p, p.Ends[pair.A].Name, doctor.Needs{})
	seen := map[doctor.Topic]int{} // bits: one for the host, one for the interface
	for bit, list := range [][]doctor.Probe{host, link} {
		names := map[string]bool{}
		for _, probe := range list {
			seen[probe.Topic] |= 1 << bit
			if names[probe.Name] {
				t.Errorf("two rows %q", probe.Name)
			}
			names[probe.Name] = true
		}
	}
	for i, topic := range doctor.Topics {
		want := 1
		if i >= 4 {
			want = 2
		}
		if seen[topic] != want {
			t.Errorf("topic %s: %b, want %b", topic, seen[topic], want)
		}
		delete(seen, topic)
	}
	if len(seen) != 0 {
		t.Errorf("unknown topics: %v", seen)
	}
}

// TestProbeSockets checks the rows for a free queue, another process's queue, and
// queues of stag.
func TestProbeSockets(t *testing.T) {
	need.XDP(t)
	const name = "queue sockets"
	p := netns.Pair(t, pair.Config{Queues: 2})
	look := func() doctor.Probe {
		return named(t, probeLink(t, p, p.Ends[pair.A].Name, doctor.Needs{}), name)
	}
	if got := look(); got.Outcome != doctor.OK {
		t.Errorf("before any socket: %+v", got)
	}
	s := mustLoad(t, p, loader.Options{})
	openSocket(t, p, 0)
	if got := look(); got.Outcome != doctor.Bad || !strings.Contains(got.Detail, "queue 0") || !strings.Contains(got.Fix, "pid ") {
		t.Errorf("with somebody's socket: %+v", got)
	}
	mustClaim(t, s.Link(), 0)
	if got := look(); got.Outcome != doctor.Hint || !strings.Contains(got.Detail, "of 2 queues only 0") {
		t.Errorf("with stag's socket on one of two queues: %+v", got)
	}
	openSocket(t, p, 1)
	mustClaim(t, s.Link(), 1)
	if got := look(); got.Outcome != doctor.OK || !strings.Contains(got.Detail, "stag's, on queue 0, 1") {
		t.Errorf("with stag's sockets on both queues: %+v", got)
	}
}

// TestProbeSums: checksums are left to a veth unless its transmit checksum offload is off.
func TestProbeSums(t *testing.T) {
	for on, says := range map[bool]string{true: "left to driver veth in copy mode", false: "computed by stag: the transmit checksum offload of "} {
		p := netns.Pair(t, pair.Config{ChecksumOffload: on})
		got := named(t, probeLink(t, p, p.Ends[pair.A].Name, doctor.Needs{}), "sums to send")
		if got.Outcome != doctor.OK || !strings.Contains(got.Detail, says) {
			t.Errorf("offload %v: %+v, want %q", on, got, says)
		}
	}
}

// TestProbeLost checks that packets for a queue without a socket are reported.
func TestProbeLost(t *testing.T) {
	const name = "packets without a socket"
	p := netns.Pair(t, pair.Config{})
	s := mustLoad(t, p, loader.Options{})
	look := func() doctor.Probe {
		return named(t, probeLink(t, p, p.Ends[pair.A].Name, doctor.Needs{}), name)
	}
	if got := look(); got.Outcome != doctor.OK || got.Detail != "none" {
		t.Errorf("before any packet: %+v", got)
	}
	k, err := bpf.NewFlowKey(netip.MustParseAddrPort("192.0.2.2:40000"), netip.MustParseAddrPort("192.0.2.1:4420"), 0)
	rig.Must(t, err)
	if err := s.Insert(k, bpf.Flow{ID: 1, Kind: bpf.KindRDMA, State: bpf.Live}); err != nil {
		t.Fatal(err)
	}
	if err := knock(t, p, 4420); !os.IsTimeout(err) {
		t.Fatalf("%v, want silence", err)
	}
	if got := look(); got.Outcome != doctor.Hint || !strings.Contains(got.Detail, "packets of taken-over connections") {
		t.Errorf("after a packet: %+v", got)
	}
}

// TestProbeHints checks settings that work, but that an operator should know about.
func TestProbeHints(t *testing.T) {
	need.XDP(t)
	for name, row := range map[string]struct {
		config pair.Config
		spoil  func(*testing.T, *pair.Pair, netlink.Link) error // runs in A's namespace
		probe  string
		says   string
	}{
		"no address": {probe: "address", says: "ip addr add", spoil: func(_ *testing.T, _ *pair.Pair, l netlink.Link) error {
			all, err := netlink.AddrList(l, netlink.FAMILY_ALL)
			for _, a := range all {
				err = errors.Join(err, netlink.AddrDel(l, &a))
			}
			return err
		}},
		"promiscuous": {probe: "MAC address", says: "promiscuous: ", spoil: func(_ *testing.T, _ *pair.Pair, l netlink.Link) error {
			return netlink.SetPromiscOn(l)
		}},
		"a queueing discipline": {probe: "traffic control", says: "(tbf)", spoil: func(_ *testing.T, _ *pair.Pair, l netlink.Link) error {
			return netlink.QdiscAdd(&netlink.Tbf{
				QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
				Rate:       1e9, Limit: 1e6, Buffer: 1e5,
			})
		}},
		"GRO": {probe: "receive offload", says: "GRO, ", spoil: func(_ *testing.T, p *pair.Pair, _ netlink.Link) error {
			return loader.SetGRO(p.Ends[pair.A].Name, true)
		}},
		"NAPI in threads": {config: pair.Config{ThreadedNAPI: true}, probe: "NAPI", says: "in threads"},
		"NAPI inline": {probe: "NAPI", says: "not in threads", spoil: func(_ *testing.T, p *pair.Pair, _ netlink.Link) error {
			return loader.SetGRO(p.Ends[pair.A].Name, true)
		}},
		"more queues than processors": {config: pair.Config{Queues: 64}, probe: "processors", says: "leave Spin at 0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := netns.Pair(t, row.config)
			netns.In(t, p, pair.A, func() error {
				l, err := netlink.LinkByName(p.Ends[pair.A].Name)
				if err != nil || row.spoil == nil {
					return err
				}
				return row.spoil(t, p, l)
			})
			probes := probeLink(t, p, p.Ends[pair.A].Name, doctor.Needs{})
			wellFormed(t, probes)
			if got := named(t, probes, row.probe); got.Outcome == doctor.Bad || !strings.Contains(got.Detail+got.Fix, row.says) {
				t.Errorf("%+v, want a hint that says %q", got, row.says)
			}
		})
	}
}

// TestProbeFilters checks that a table of nftables is named with its family.
func TestProbeFilters(t *testing.T) {
	const name = "packet filters"
	p := netns.Pair(t, pair.Config{})
	look := func() (got doctor.Probe) {
		netns.In(t, p, pair.A, func() error {
			probes, err := doctor.Host(doctor.Needs{})
			got = named(t, probes, name)
			return err
		})
		return got
	}
	if got := look(); got.Outcome != doctor.OK {
		t.Errorf("in a new namespace: %+v", got)
	}
	netns.In(t, p, pair.A, func() error { return addTable(t, "guard") })
	if got := look(); got.Outcome != doctor.Hint || !strings.Contains(got.Detail, "(nftables: inet guard)") {
		t.Errorf("with a table: %+v", got)
	}
}

// addTable adds a table of the family inet to nftables. This takes a transaction of
// three messages.
func addTable(t *testing.T, name string) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	const create = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE
	batch := nfMessage(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)
	batch = append(batch, nfMessage(create, unix.NLM_F_ACK|unix.NLM_F_CREATE, unix.NFPROTO_INET, 0,
		nl.NewRtAttr(unix.NFTA_TABLE_NAME, nl.ZeroTerminated(name)).Serialize())...)
	batch = append(batch, nfMessage(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES, nil)...)
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 {
		t.Fatalf("%d octets of an answer", n)
	}
	code := -int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:]))
	if unix.Errno(code) == unix.EOPNOTSUPP || unix.Errno(code) == unix.EINVAL {
		t.Skip("SKIPPED, needs a kernel with nftables")
	}
	if code != 0 {
		return unix.Errno(code)
	}
	return nil
}

func nfMessage(kind, flags uint16, family uint8, resource uint16, attrs []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+nl.SizeofNfgenmsg+len(attrs)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, flags|unix.NLM_F_REQUEST)
	b = binary.NativeEndian.AppendUint32(b, 1) // sequence number
	b = binary.NativeEndian.AppendUint32(b, 0) // port id of the sender
	b = append(b, family, 0)
	return append(binary.BigEndian.AppendUint16(b, resource), attrs...)
}

// TestProbeMemory asks for more memory than any machine has.
func TestProbeMemory(t *testing.T) {
	probes, err := doctor.Host(doctor.Needs{Memory: 1 << 50})
	if err != nil {
		t.Fatal(err)
	}
	if m := named(t, probes, "memory"); m.Outcome != doctor.Bad || !strings.Contains(m.Detail, "frames take") {
		t.Errorf("%+v", m)
	}
}

// TestProbeUnusable checks that only errors of the interface become a row.
func TestProbeUnusable(t *testing.T) {
	for _, is := range []error{loader.ErrNoLink, loader.ErrBond, loader.ErrVLANParent} {
		p, known := doctor.Unusable("eth77", is)
		if !known || p.Outcome != doctor.Bad || p.Fix == "" || p.Detail == "" || p.Topic != doctor.TopicInterface {
			t.Errorf("%v: %+v, %v", is, p, known)
		}
	}
	if p, known := doctor.Unusable("eth77", os.ErrClosed); known {
		t.Errorf("%+v", p)
	}
}

// TestBindQueues checks that trying finds the same queues as newer kernels report. It
// also checks that no queue stays bound.
func TestBindQueues(t *testing.T) {
	need.XDP(t)
	try := func(p *pair.Pair, hooked bool) (taken []int, err error) {
		netns.In(t, p, pair.A, func() error {
			l, failed := loader.LookupLink(p.Ends[pair.A].Name)
			if failed == nil {
				taken, err = doctor.BindQueues(l, hooked)
			}
			return failed
		})
		return taken, err
	}
	free, busy := netns.Pair(t, pair.Config{Queues: 2}), netns.Pair(t, pair.Config{Queues: 2})
	if taken, err := try(free, false); err != nil || len(taken) != 0 {
		t.Errorf("free queues: %v, %v", taken, err)
	}
	openSocket(t, busy, 0)
	if taken, err := try(busy, false); err != nil || len(taken) != 1 || taken[0] != 0 {
		t.Errorf("with a socket on queue 0: %v, %v", taken, err)
	}
	if _, err := try(busy, true); err == nil {
		t.Error("tried beside a program")
	}
	mustLoad(t, busy, loader.Options{}) // the claim was released
}

// leftover returns the host's probe with that name.
func leftover(t *testing.T, p *pair.Pair, name string) (got doctor.Probe) {
	t.Helper()
	netns.In(t, p, pair.A, func() error {
		probes, err := doctor.Host(doctor.Needs{})
		got = named(t, probes, name)
		return err
	})
	return got
}

// TestProbeClaims checks that the claim file of a killed process is named.
func TestProbeClaims(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	kill := claimElsewhere(t, p)
	if got := leftover(t, p, "claims"); got.Outcome != doctor.OK || !strings.HasPrefix(got.Detail, "1 held") {
		t.Errorf("while it lives: %+v", got)
	}
	kill()
	got := leftover(t, p, "claims")
	file, ok := strings.CutPrefix(got.Fix, "rm "+loader.RuntimeDir+"/")
	if got.Outcome != doctor.Hint || !ok || !strings.HasSuffix(file, "-0") || !strings.HasPrefix(got.Detail, "0 held, 1 left") {
		t.Fatalf("after its death: %+v", got)
	}
	if err := os.Remove(loader.RuntimeDir + "/" + file); err != nil {
		t.Error(err)
	}
	if got := leftover(t, p, "claims"); got.Outcome != doctor.OK {
		t.Errorf("after what it said was done: %+v", got)
	}
}

// TestProbePins checks that a pinned program counts as stale when its interface is
// gone.
func TestProbePins(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	s := mustLoad(t, p, loader.Options{Pin: instance})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := leftover(t, p, "pins"); got.Outcome != doctor.OK || !strings.HasSuffix(got.Detail, ": 1") {
		t.Errorf("with its interface: %+v", got)
	}
	netns.In(t, p, pair.A, func() error {
		l, err := netlink.LinkByName(p.Ends[pair.A].Name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	})
	if got := leftover(t, p, "pins"); got.Outcome != doctor.Hint || got.Fix != "stag unload --instance test" || !strings.Contains(got.Detail, "its interface is gone") {
		t.Errorf("without: %+v", got)
	}
}
