package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/rdma"
)

// The ways of US 7,299,266, FIG. 16: a packet belongs to RDMA, to iSCSI, or to the host's own stack.
const (
	wayRDMA = iota
	wayISCSI
	wayHost
	wayCount
)

// roundLen is how many octets each way moves in a round, and leastRounds how many rounds all ways do at the same time.
const (
	roundLen    = 256 << 10
	leastRounds = 32
)

// TestThreeWays: RDMA, iSCSI and the kernel's TCP use one interface at the same time. Every octet of each arrives, and
// the counters tell which way the packets took: those of two flows, of kinds rdma and iscsi, went to the engine, and
// those of the kernel's connection went to the kernel.
func TestThreeWays(t *testing.T) {
	r := newStage(t, setup{})
	a, b := r.adapter(ours, rdma.Config{}), r.adapter(theirs, rdma.Config{})
	host, peer := r.connect(way{})
	defer host.Close()
	defer peer.Close()
	rounds := [wayCount]func(n uint64) error{r.rdmaRounds(a, b), r.iscsiRounds(a, b), hostRounds(host, peer)}

	before, kernel := r.report(a), segments(r, host)
	var done [wayCount]atomic.Uint64
	ctx, stop := context.WithCancel(r.Ctx())
	var running sync.WaitGroup
	for way, round := range rounds {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := round(done[way].Load()); err != nil {
					t.Errorf("way %d: %v", way, err)
					return
				}
				done[way].Add(1)
			}
		})
	}
	r.Eventually("each way has moved its octets", func() bool {
		return t.Failed() || done[wayRDMA].Load() >= leastRounds && done[wayISCSI].Load() >= leastRounds && done[wayHost].Load() >= leastRounds
	})
	during := r.report(a)
	stop()
	running.Wait()
	after := r.report(a)
	t.Logf("rounds of %d octets: RDMA %d, iSCSI %d, host stack %d", roundLen, done[wayRDMA].Load(), done[wayISCSI].Load(), done[wayHost].Load())

	moved := [wayCount]uint64{}
	for way := range moved {
		moved[way] = done[way].Load() * roundLen
	}
	r.threeWays(before, during, after, moved, segments(r, host)-kernel, host.LocalAddr().(*net.TCPAddr).AddrPort())
}

// report returns everything that an adapter reports.
func (r *rig) report(a *rdma.Adapter) report.Engine {
	r.Helper()
	e, err := a.Report(r.Ctx())
	r.Must(err)
	return e
}

// threeWays compares the counters with the octets that each way has moved in each direction, and with the segments that
// the kernel's connection has received.
func (r *rig) threeWays(before, during, after report.Engine, moved [wayCount]uint64, kernel uint64, host netip.AddrPort) {
	r.Helper()
	kinds := map[string]report.Flow{}
	for _, f := range during.Flows {
		kinds[f.Kind] = f
		if f.Local == host {
			r.Errorf("the kernel's connection is a flow: %+v", f)
		}
	}
	if len(during.Flows) != 2 || kinds["rdma"].QP == 0 || kinds["iscsi"].ID == 0 || len(during.ISCSI) != 1 || during.ISCSI[0].Flow != kinds["iscsi"].ID {
		r.Fatalf("the flows are %+v", during.Flows)
	}
	flows := uint64(0) // segments of the two flows
	for _, f := range after.Flows {
		in := counterOf(f.TCP.Counters, "tcp", "octets_in")
		want := moved[wayRDMA]
		if f.Kind == "iscsi" {
			want = moved[wayISCSI]
		}
		if in < want || in > want+want/4 {
			r.Errorf("the flow of kind %s has received %d octets, and %d were moved", f.Kind, in, want)
		}
		flows += counterOf(f.TCP.Counters, "tcp", "segs_in")
	}
	if n := counterOf(after.Counters, "steer", "steered") + counterOf(after.Counters, "steer", "steered_bare"); n < flows || n > flows+flows/10+100 {
		r.Errorf("%d packets went to the engine, and the two flows have %d segments", n, flows)
	}
	if n := delta(after, before, "steer", "no_flow"); n < kernel || n > kernel+kernel/10+100 {
		r.Errorf("%d segments went to the kernel, and its connection has received %d", n, kernel)
	}
	if n := counterOf(after.Counters, "rdmap", "read_octets_in"); n != moved[wayRDMA] {
		r.Errorf("%d octets of RDMA Reads, want %d", n, moved[wayRDMA])
	}
	if n := delta(after, before, "iscsi_initiator", "placed_octets"); n != moved[wayISCSI] {
		r.Errorf("%d octets placed by iSCSI tags, want %d", n, moved[wayISCSI])
	}
	if n := counterOf(after.Counters, "iscsi_initiator", "refused"); n != 0 {
		r.Errorf("%d PDUs were refused", n)
	}
}

// counterOf returns a counter of a list.
func counterOf(list []report.Counter, layer, name string) (n uint64) {
	for _, c := range list {
		if c.Layer == layer && c.Name == name {
			n += c.Value
		}
	}
	return n
}

// delta returns what was counted between two reports.
func delta(after, before report.Engine, layer, name string) uint64 {
	return counterOf(after.Counters, layer, name) - counterOf(before.Counters, layer, name)
}

// segments returns how many segments the kernel has received for a connection.
func segments(r *rig, c *net.TCPConn) uint64 {
	r.Helper()
	raw, err := c.SyscallConn()
	r.Must(err)
	var info *unix.TCPInfo
	r.Must(raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }))
	r.Must(err)
	return uint64(info.Segs_in)
}

// differs returns an error if b is not the n-th part of the way's pattern.
func differs(b []byte, way int, n uint64) error {
	if i := octets.Pattern(way+1).Differs(b, n*roundLen); i >= 0 {
		return fmt.Errorf("round %d: octet %d is wrong", n, i)
	}
	return nil
}

// rdmaRounds reads memory of b.
func (r *rig) rdmaRounds(a, b *rdma.Adapter) func(n uint64) error {
	r.Helper()
	from, to := r.newVerbs(ours, a), r.newVerbs(theirs, b)
	r.meet(from, to, b, false, rdma.ConnParams{}, rdma.ConnParams{})
	return func(n uint64) error {
		octets.Pattern(wayRDMA+1).Fill(to.src.Bytes()[:roundLen], n*roundLen)
		_, err := from.qp.PostSend(rdma.SendWR{
			Op: rdma.WRRead, Flags: rdma.Signaled, SGL: []rdma.SGE{from.sink.SGE(0, roundLen)}, RKey: to.src.RKey(),
		})
		if err != nil {
			return err
		}
		if _, err := from.ep.Sent(r.Ctx()); err != nil {
			return err
		}
		return differs(from.sink.Bytes()[:roundLen], wayRDMA, n)
	}
}

// iscsiRounds writes a disk of b and reads it back.
func (r *rig) iscsiRounds(a, b *rdma.Adapter) func(n uint64) error {
	r.Helper()
	disk, err := backend.NewRAM(1 << 20)
	r.Must(err)
	r.Cleanup(func() { r.Check(disk.Close()) })
	const target = "iqn.2026-01.test.stag:ways"
	s, err := iscsi.Serve(r.Ctx(), iscsi.ServerConfig{
		Adapter: b, Address: net.JoinHostPort(r.addr(theirs, false), "0"), Targets: []iscsi.TargetConfig{{Name: target, LUNs: map[uint16]iscsi.LUN{1: {Backend: disk}}}},
	})
	r.Must(err)
	r.Cleanup(func() { r.Check(s.Close()) })
	d, err := iscsi.Dial(r.Ctx(), fmt.Sprintf("iscsi://%v/%s/1", s.Addr(), target), iscsi.Config{Adapter: a, RecoveryTimeout: -1})
	r.Must(err)
	r.Cleanup(func() { r.Check(d.Close()) })
	out, in := make([]byte, roundLen), make([]byte, roundLen)
	return func(n uint64) error {
		octets.Pattern(wayISCSI+1).Fill(out, n*roundLen)
		_, err := d.WriteAt(out, 0)
		if err == nil {
			_, err = d.ReadAt(in, 0)
		}
		if err == nil && !bytes.Equal(disk.Lend(0, roundLen, false), out) {
			err = errors.New("the disk has other octets")
		}
		return errors.Join(err, differs(in, wayISCSI, n))
	}
}

// hostRounds sends octets over a connection of the kernels, each of whose ends is a plain program.
func hostRounds(host, peer *net.TCPConn) func(n uint64) error {
	out, in := make([]byte, roundLen), make([]byte, roundLen)
	return func(n uint64) error {
		octets.Pattern(wayHost+1).Fill(out, n*roundLen)
		sent := make(chan error, 1)
		go func() {
			_, err := peer.Write(out)
			sent <- err
		}()
		_, err := io.ReadFull(host, in)
		return errors.Join(err, <-sent, differs(in, wayHost, n))
	}
}
