package e2e

import (
	"bytes"
	"encoding/hex"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/need"
)

// dissected is a connection that tshark analyses. The end at the capture uses the kernel port.
type dissected struct {
	name    string
	mtu     int
	accept  bool // the offloaded side is the responder
	v6      bool
	p       rdma.ConnParams // parameters of both ends
	noRTR   bool            // no RTR message except those of the jobs
	markers bool
	paced   bool // one job after the other, only those that tshark can follow with Markers
}

var dissections = []dissected{
	{name: "revision 2, IPv4, dialled", p: rdma.ConnParams{PrivateData: []byte("hello, tshark")}},
	{name: "revision 2, IPv6, accepted, MTU 3506", mtu: 3506, accept: true, v6: true, p: rdma.ConnParams{PrivateData: bytes.Repeat([]byte("stag"), 127)}},
	{name: "revision 1, dialled", p: rdma.ConnParams{Revision: 1, PrivateData: bytes.Repeat([]byte("stag"), 128)}, noRTR: true},
	{name: "revision 1, IPv6, accepted", accept: true, v6: true, p: rdma.ConnParams{Revision: 1}, noRTR: true},
	{name: "client-server", p: rdma.ConnParams{NoPeerToPeer: true}, noRTR: true},
	{name: "without CRC", p: rdma.ConnParams{NoCRC: true}},
	{name: "without CRC, accepted, MTU 3506", mtu: 3506, accept: true, p: rdma.ConnParams{NoCRC: true}},
	{name: "Markers, dialled", markers: true, paced: true, noRTR: true, p: rdma.ConnParams{Markers: true, NoPeerToPeer: true}},
	{name: "Markers, IPv6, accepted, MTU 3506", mtu: 3506, accept: true, v6: true, markers: true, paced: true, noRTR: true,
		p: rdma.ConnParams{Markers: true, NoPeerToPeer: true}},
}

// TestDissected lets tshark check every operation of an offloaded end and of a kernel port. tshark finds every message
// with the posted payload and a good CRC. It reports no fault.
func TestDissected(t *testing.T) {
	t.Parallel()
	for _, c := range dissections {
		onFreeLink(t, c.name, c.run)
	}
}

func (c dissected) run(t *testing.T) bool {
	r := newStage(t, setup{pair: pair.Config{MTU: c.mtu}, sysctl: noGuesses})
	d, ends := c.perform(r)
	if !d.inOrder(r) {
		return false
	}
	found := d.judge(r)
	for _, complaint := range found.complains {
		t.Errorf("tshark complains: %s", complaint)
	}
	if found.frames != [2]int{1, 1} {
		t.Errorf("tshark sees MPA frames %v, want one of each side", found.frames)
	}
	c.told(t, found.private)
	for side, v := range ends {
		c.judge(t, v, ends[pair.Side(side).Other()], &found.sides[side])
	}
	return true
}

// inOrder reports whether every segment arrived once and in order. Otherwise tshark leaves out FPDUs.
func (d *dump) inOrder(r *rig) bool {
	r.Helper()
	for side, f := range d.read(r, time.Time{}) {
		for _, name := range serious {
			if n := f.remarks[name]; n != 0 {
				r.Logf("not judged, side %v: %d times %s", pair.Side(side), n, name)
				return false
			}
		}
	}
	return true
}

// perform does all jobs between an offloaded end and a kernel port, and captures the packets.
func (c dissected) perform(r *rig) (d *dump, ends [2]*verbs) {
	r.Helper()
	d = r.dumpAt(theirs)
	a, b := r.adapter(ours, rdma.Config{}), r.adapter(theirs, rdma.Config{KernelPort: true})
	our, their := r.newVerbs(ours, a), r.newVerbs(theirs, b)
	if c.paced {
		our.jobs, their.jobs = shorter(1429, 1000), shorter(1000, 1000)
	}
	our.receives(verbsRecs)
	their.receives(verbsRecs)
	from, to, listens := our, their, b
	if c.accept {
		from, to, listens = their, our, a
	}
	r.meet(from, to, listens, c.v6, c.p, c.p)
	if c.paced {
		from.pace(to)
	} else {
		from.work(to)
	}
	from.part(to)
	from.initiator = true
	d.end(r)
	return d, [2]*verbs{our, their}
}

// told checks that tshark saw the private data in both frames. tshark prints the first 36 octets. The Enhanced block
// has 4 of them.
func (c dissected) told(t *testing.T, private []string) {
	t.Helper()
	want := hex.EncodeToString(c.p.PrivateData[:min(len(c.p.PrivateData), 32)])
	n := 0
	for _, s := range private {
		if want != "" && strings.Contains(s, want) {
			n++
		}
	}
	if want != "" && n != 2 {
		t.Errorf("tshark sees private data %q, want %s in both", private, want)
	}
}

// maxNudges is how many empty Writes a QP sends to a peer that is silent.
const maxNudges = 4

// judge compares what tshark found in a side's stream with what was posted.
func (c dissected) judge(t *testing.T, v, peer *verbs, f *fpdus) {
	t.Helper()
	side := v.side
	messages, octets := map[wire.Opcode]int{}, map[wire.Opcode]int{}
	for _, j := range v.jobs {
		messages[j.op]++
		octets[j.op] += j.n
	}
	octets[wire.OpReadRequest] = messages[wire.OpReadRequest] * wire.ReadRequestLen
	for _, j := range peer.jobs {
		if j.op == wire.OpReadRequest {
			messages[wire.OpReadResponse]++
			octets[wire.OpReadResponse] += j.n
		}
	}
	if v.initiator && !c.noRTR {
		messages[wire.OpWrite]++
	}
	// On a busy machine the initiator also sends empty Writes to a peer that is silent.
	if extra := f.messages[wire.OpWrite] - messages[wire.OpWrite]; v.initiator && extra > 0 && extra <= maxNudges {
		messages[wire.OpWrite] += extra
	}
	if !maps.Equal(f.messages, messages) {
		t.Errorf("side %v: tshark finds messages %v, want %v", side, f.messages, messages)
	}
	if !maps.Equal(f.octets, octets) {
		t.Errorf("side %v: tshark finds octets %v, want %v", side, f.octets, octets)
	}
	good, unchecked := f.all, 0
	if c.p.NoCRC {
		good, unchecked = 0, f.all
	}
	if f.good != good || f.unchecked != unchecked || f.all < len(v.jobs) {
		t.Errorf("side %v: %d FPDUs, %d good, %d without CRC", side, f.all, f.good, f.unchecked)
	}
	if (f.markers != 0) != c.markers {
		t.Errorf("side %v: %d Markers", side, f.markers)
	}
	t.Logf("side %v: %d FPDUs, %d Markers, messages %v", side, f.all, f.markers, f.messages)
}

// TestMarkersThroughout runs every operation with Markers in full traffic. tshark cannot follow it, because FPDUs share
// segments or are split. Another reader finds all Markers, all CRCs and all messages in the captured streams.
func TestMarkersThroughout(t *testing.T) {
	t.Parallel()
	need.Root(t)
	need.XDP(t)
	need.Tool(t, "dumpcap", "tshark")
	for _, c := range []dissected{
		{name: "dialled", p: rdma.ConnParams{Markers: true}, markers: true},
		{name: "accepted, MTU 3506", mtu: 3506, accept: true, v6: true, p: rdma.ConnParams{Markers: true}, markers: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newStage(t, setup{pair: pair.Config{MTU: c.mtu}})
			d, ends := c.perform(r)
			streams := d.streams(r)
			if c.accept {
				streams[ours], streams[theirs] = streams[theirs], streams[ours]
			}
			for side, v := range ends {
				c.judge(t, v, ends[pair.Side(side).Other()], readMarked(r, streams[side]))
			}
		})
	}
}

// offence is an error that ends a connection with a Terminate.
type offence struct {
	name  string
	wr    func(v, peer *verbs) rdma.SendWR
	code  rdma.TerminateCode
	local bool // the offender itself sends the Terminate
}

var offences = []offence{
	{"wrong key, Write", func(v, peer *verbs) rdma.SendWR {
		return rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{v.src.SGE(0, 100)}, RKey: peer.dst.RKey() ^ 1}
	}, rdma.TerminateCode{Layer: 1, Type: 1}, false},
	{"no right, Write", func(v, peer *verbs) rdma.SendWR {
		return rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{v.src.SGE(0, 100)}, RKey: peer.src.RKey()}
	}, rdma.TerminateCode{Type: 1, Code: 2}, false},
	{"out of bounds, Read", func(v, peer *verbs) rdma.SendWR {
		return rdma.SendWR{Op: rdma.WRRead, SGL: []rdma.SGE{v.sink.SGE(0, 100)}, RKey: peer.src.RKey(), RemoteAddr: verbsLen - 99}
	}, rdma.TerminateCode{Type: 1, Code: 1}, false},
	{"no receive, Send", func(v, peer *verbs) rdma.SendWR {
		return rdma.SendWR{Op: rdma.WRSend, SGL: []rdma.SGE{v.src.SGE(0, 100)}}
	}, rdma.TerminateCode{Layer: 1, Type: 2, Code: 2}, false},
	{"local memory, Write", func(v, peer *verbs) rdma.SendWR {
		return rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{{LKey: v.src.LKey() ^ 1, Length: 8}}, RKey: peer.dst.RKey()}
	}, rdma.TerminateCode{Code: 0xff}, true},
}

// TestTerminatesDissected lets tshark check Terminates of every layer, from an offloaded end and from a kernel port.
func TestTerminatesDissected(t *testing.T) { onFreeLink(t, "all", terminatesDissected) }

func terminatesDissected(t *testing.T) bool {
	r := newStage(t, setup{sysctl: noGuesses})
	d := r.dumpAt(theirs)
	a, b := r.adapter(ours, rdma.Config{}), r.adapter(theirs, rdma.Config{KernelPort: true})
	var want [2]int
	for _, o := range offences {
		for _, offender := range []pair.Side{ours, theirs} {
			our, their := r.newVerbs(ours, a), r.newVerbs(theirs, b)
			v, peer := our, their
			if offender == theirs {
				v, peer = their, our
			}
			r.meet(our, their, b, false, rdma.ConnParams{}, rdma.ConnParams{})
			r.offend(o, v, peer)
			if o.local {
				want[v.side]++
			} else {
				want[peer.side]++
			}
			v.close()
			peer.close()
		}
	}
	d.end(r)
	if !d.inOrder(r) {
		return false
	}
	found := d.judge(r)
	for _, complaint := range found.complains {
		t.Errorf("tshark complains: %s", complaint)
	}
	for side := range found.sides {
		f := &found.sides[side]
		if got := f.messages[wire.OpTerminate]; got != want[side] || f.good != f.all {
			t.Errorf("side %v: tshark sees %d Terminates, want %d, and %d of %d FPDUs good", pair.Side(side), got, want[side], f.good, f.all)
		}
	}
	return true
}

// offend does o, and demands that both ends get the error.
func (r *rig) offend(o offence, v, peer *verbs) {
	r.Helper()
	_, err := v.qp.PostSend(o.wr(v, peer))
	r.Must(err)
	r.Wait(v.qp.Done(), o.name)
	r.Wait(peer.qp.Done(), o.name)
	for _, end := range []*verbs{v, peer} {
		var e *rdma.QPError
		if remote := (end == v) != o.local; !errors.As(end.qp.Err(), &e) || e.Code != o.code || e.Remote != remote {
			r.Errorf("%s by side %v: side %v sees %v", o.name, v.side, end.side, end.qp.Err())
		}
	}
}
