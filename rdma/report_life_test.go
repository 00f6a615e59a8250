package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/report"
	common "github.com/stag-rdma/stag/test/rig"
)

// growing returns all counters of a report that can only grow, by the object that has them.
// It leaves out the counters of flows, which come and go.
func growing(e report.Engine) map[string]uint64 {
	all := map[string]uint64{}
	for _, c := range e.Counters {
		all[c.Device+" "+c.Layer+"."+c.Name] = c.Value
	}
	for _, q := range e.Queues {
		for _, c := range q.Counters {
			all[fmt.Sprint(q.Device, " ", q.Queue, " ", c.Layer, ".", c.Name)] = c.Value
		}
	}
	for _, q := range e.QPs {
		for _, c := range q.Counters {
			all[fmt.Sprint("qp ", q.Number, " ", c.Name)] = c.Value
		}
	}
	return all
}

// TestReportWhileBusy: reports during a transfer have counters that only grow. The transfer
// loses no octet, and the engine drops no frame. The kernel may drop one while the machine has
// no processor for the engine, which says nothing about reports.
func TestReportWhileBusy(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		const message, messages = 256 << 10, 128
		x, y := r.connect(wants{heap: message})
		fill(x.mr.Bytes(), 1)
		over := make(chan struct{})
		var askers sync.WaitGroup
		var asked atomic.Int64
		for _, a := range []*Adapter{x.a, y.a} {
			askers.Go(func() {
				last := map[string]uint64{}
				for running := true; running; {
					select {
					case <-over:
						running = false // once more, for the last counts
					default:
					}
					got, err := a.Report(context.Background())
					if err != nil {
						t.Error(err)
						return
					}
					now := growing(got)
					for name, n := range last {
						if m, there := now[name]; !there || m < n {
							t.Errorf("%s falls from %d to %d, %v", name, n, m, there)
						}
					}
					last = now
					asked.Add(1)
				}
			})
		}
		for range messages {
			x.post(SendWR{Op: WRWrite, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, message)}, RKey: y.mr.RKey()})
			r.ok(x.sent(1))
		}
		x.post(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 1)}, RKey: y.mr.RKey()}) // its completion proves that all Writes have been placed
		r.ok(x.sent(1))
		close(over)
		askers.Wait()
		same(r, "written", message, x.mr.Bytes(), y.mr.Bytes())
		for i, e := range []*end{x, y} {
			got := r.asked(e.a)
			name := []string{"write_octets_out", "write_octets_in"}[i]
			r.counts(got.QPs[0], map[string]uint64{name: message * messages})
			for _, q := range got.Queues {
				for _, c := range [][2]string{{"engine", "park_full"}, {"engine", "pass_full"}, {"tcp", "no_frames"}, {"tcp", "reorder_share"},
					{"xsk", "rx_bad"}, {"xsk", "lost"}, {"xsk", "misused"}} {
					if n := r.count(q.Counters, c[0], c[1]); n != 0 {
						t.Errorf("%s.%s is %d", c[0], c[1], n)
					}
				}
			}
		}
		t.Logf("%d reports meanwhile", asked.Load())
	})
}

// TestReportMeanwhile: reports by the verb and by the socket go on while objects are made
// and closed, and at last the adapter is closed. The reports end with one error only.
func TestReportMeanwhile(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		x, y := r.connect(wants{})
		list, err := control.Engines(os.Getpid())
		r.Must(err)
		var asked atomic.Int64
		var askers sync.WaitGroup
		ask := func(f func() error, end error) {
			askers.Go(func() {
				for {
					if err := f(); err != nil {
						r.Says(err, end)
						return
					}
					asked.Add(1)
				}
			})
		}
		for _, e := range list {
			ask(func() error { _, err := e.Report(r.Ctx()); return err }, control.ErrGone)
		}
		for _, a := range []*Adapter{r.a, r.b} {
			ask(func() error { _, err := a.Report(context.Background()); return err }, ErrClosed)
			ask(func() error { _, err := a.Report(r.Ctx()); return err }, ErrClosed)
		}
		for i := range 5 {
			v, w := r.connect(wants{})
			exercise(v, w)
			if i%2 == 0 {
				r.Must(v.qp.Disconnect(r.Ctx()))
			}
			r.Must(v.qp.Close())
			r.Must(w.qp.Close())
			r.Must(w.mr.Close())
			r.Must(errors.Join(v.send.Close(), v.recv.Close()))
		}
		r.Must(x.a.Close())
		r.Must(y.a.Close())
		askers.Wait()
		if asked.Load() == 0 {
			t.Error("nothing was asked")
		}
		t.Logf("%d reports", asked.Load())
	})
}

// TestReportInterfaceGone: when the interface is removed, its counters stay in the report.
func TestReportInterfaceGone(t *testing.T) {
	r := newHosts(t, pair.Config{})
	x, y := r.connect(wants{})
	exercise(x, y)
	name := r.pair.Ends[pair.A].Name
	before := r.asked(x.a)
	r.Must(r.pair.Do(pair.A, func() error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(l)
	}))
	x.done()
	got := r.asked(x.a)
	d := got.Devices[0]
	if d.Name != name || d.State != "PORT_DOWN" || len(d.Addresses) != 0 || d.MTU != 1500 {
		t.Errorf("%+v", d)
	}
	if q := got.QPs[0]; q.State != "Error" || q.Error == "" || q.Remote == nil {
		t.Errorf("%+v", q)
	}
	r.counts(got.QPs[0], exercised[0])
	now := growing(got)
	for name, n := range growing(before) {
		if now[name] < n {
			t.Errorf("%s falls from %d to %d", name, n, now[name])
		}
	}
	r.Must(y.qp.Close())
}

// TestReportOfTwoQueues: each engine reports its own connections.
func TestReportOfTwoQueues(t *testing.T) {
	r := newHosts(t, pair.Config{Queues: 2})
	var ends [3][2]*end
	for i := range ends {
		ends[i][0], ends[i][1] = r.connect(wants{})
		for range i + 1 {
			ends[i][0].post(SendWR{Op: WRWrite, Flags: Signaled, SGL: []SGE{ends[i][0].mr.SGE(0, 100)}, RKey: ends[i][1].mr.RKey()})
			r.ok(ends[i][0].sent(1))
		}
	}
	got := r.asked(r.a)
	if len(got.Queues) != 2 || len(got.Flows) != 3 || got.Queues[0].Flows+got.Queues[1].Flows != 3 || got.Devices[0].Queues != 2 {
		t.Errorf("%d queues, %d flows: %+v", len(got.Queues), len(got.Flows), got.Devices)
	}
	for i, q := range got.QPs {
		r.counts(q, map[string]uint64{"write_octets_out": uint64(100 * (i + 1))})
		flow := got.Flows[i]
		if flow.QP != q.Number || flow.ID != q.Flow || flow.Local != *q.Local || flow.TCP == nil {
			t.Errorf("%+v of %+v", flow, q)
		}
	}
}

// TestCaptureEndsWithTheAdapter: a capture by the socket gets the last packets of an
// adapter that is closed, and then the end of the stream.
func TestCaptureEndsWithTheAdapter(t *testing.T) {
	r := newHosts(t, pair.Config{})
	x, y := r.connect(wants{})
	list, err := control.Engines(os.Getpid())
	r.Must(err)
	c, err := list[slices.IndexFunc(list, func(e control.Endpoint) bool { return e.Adapter == x.a.device.Number() })].Capture(r.Ctx(), report.Filter{})
	r.Must(err)
	defer c.Close()
	_, err = c.Next() // the capture has begun
	r.Must(err)
	exercise(x, y)
	r.Must(x.a.Close())
	var last report.Packet
	n := 0
	for err == nil {
		var b report.Batch
		if b, err = c.Next(); len(b.Packets) != 0 {
			last, n = b.Packets[len(b.Packets)-1], n+len(b.Packets)
		}
	}
	if err != io.EOF || n < 20 || len(last.Data) < 54 || last.Data[14+20+13]&0x04 == 0 {
		t.Errorf("%d packets, %v; the last is no reset: %+v", n, err, last)
	}
}

// controlVariable is the environment variable that tells a child process of
// TestControlInTheWay which case to run.
const controlVariable = "STAG_CONTROL_IN_THE_WAY"

// TestControlInTheWay: if Open cannot make the control socket, the error says what to do.
// An adapter with NoControl is opened all the same.
func TestControlInTheWay(t *testing.T) {
	switch os.Getenv(controlVariable) {
	case "":
	case "/run":
		if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_RDONLY, ""); err != nil {
			t.Fatal(err)
		}
		cannotOpen(t, "/run/stag", "mount a tmpfs")
		return
	default:
		cannotOpen(t, "set XDG_RUNTIME_DIR")
		return
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	as := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 { // root's socket is in /run/stag, not in TMPDIR
		again(t, "/run", &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS})
		as.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	again(t, "TMPDIR", as, "XDG_RUNTIME_DIR=", "TMPDIR="+file)
}

// again runs the test in a process of its own.
func again(t *testing.T, what string, as *syscall.SysProcAttr, env ...string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), controlVariable+"="+what), env...)
	cmd.Dir, cmd.SysProcAttr = "/", as
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS: "+t.Name()) {
		t.Errorf("%s: %v\n%s", what, err, out)
	}
}

// cannotOpen demands that Open fails with these words if it must make a socket, and that
// Open with NoControl succeeds.
func cannotOpen(t *testing.T, words ...string) {
	t.Helper()
	r := &rig{Stage: common.On(t)}
	a, err := Open(Config{KernelPort: true})
	if err == nil {
		a.Close()
	}
	r.Says(err, nil, append(words, "open adapter", "control sockets", "NoControl", "stag show")...)
	a, err = Open(Config{KernelPort: true, NoControl: true})
	r.Must(err)
	r.Must(a.Close())
}
