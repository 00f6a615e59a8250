//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/rdma"
)

// peerTimeout is how long stag waits for the killed guest.
const peerTimeout = 3 * time.Second

// traces are the objects that a row could leave on stag's side.
type traces struct {
	descriptors, goroutines int
	pins                    int // pins in the BPF file system
	records                 int // files in /run/stag
}

func (r *rig) traces() (now traces) {
	r.Helper()
	count := func(pattern string) int {
		found, err := filepath.Glob(pattern)
		r.Must(err)
		return len(found)
	}
	return traces{
		descriptors: count("/proc/self/fd/*"), goroutines: runtime.NumGoroutine(),
		pins: count("/sys/fs/bpf/stag/*/*"), records: count("/run/stag/*"),
	}
}

// nothingLeft waits until there are no more objects than before.
func (r *rig) nothingLeft(before traces) {
	r.Helper()
	var now traces
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		now = r.traces()
		if now.descriptors <= before.descriptors && now.goroutines <= before.goroutines && now.pins <= before.pins && now.records <= before.records {
			return
		}
	}
	r.Errorf("left behind: %+v, and before %+v", now, before)
}

// TestVanished kills the guest in the middle of a transfer. All work requests are
// flushed, the QP's error says that the peer does not answer, and nothing is left
// behind.
func TestVanished(t *testing.T) {
	for _, c := range []struct {
		name string
		op   rdma.WROp
		busy bool
	}{
		{"while we write", rdma.WRWrite, true},
		{"while we read", rdma.WRRead, true},
		{"while we wait", 0, false},
	} {
		row(t, c.name, about{"rping -c", "until QEMU is killed"}, func(r *rig) {
			before := r.traces()
			e := r.newEnd(r.adapter(), rpingMost)
			request, _ := e.asked(fmt.Sprintf("rping -c -a %s -S %d", ourV4, rpingMost))
			r.Must(request.Accept(e.ctx, e.qp, rdma.ConnParams{PeerTimeout: peerTimeout}))
			wr := e.offered(c.op)
			if c.busy {
				e.untilFlushed(wr)
			} else {
				r.guest.kill()
			}
			e.givenUp()
			r.Must(e.qp.Close())
			r.Must(e.a.Close())
			r.nothingLeft(before)
		})
	}
}

// offered returns a work request on the memory that the client offers. The client first
// offers memory to read, and after the Read memory to write.
func (e *end) offered(op rdma.WROp) rdma.SendWR {
	e.Helper()
	addr, key, n := e.hear()
	read := rdma.SendWR{Op: rdma.WRRead, SGL: []rdma.SGE{e.data.SGE(0, n)}, RKey: key, RemoteAddr: addr, Flags: rdma.Signaled}
	if op != rdma.WRWrite {
		return read
	}
	e.do(read)
	e.tell(e.back)
	addr, key, n = e.hear()
	return rdma.SendWR{Op: op, SGL: []rdma.SGE{e.data.SGE(0, n)}, RKey: key, RemoteAddr: addr, Flags: rdma.Signaled}
}

// untilFlushed repeats a work request, and kills the guest meanwhile.
func (e *end) untilFlushed(wr rdma.SendWR) {
	e.Helper()
	for n := 0; ; n++ {
		if n == 50 {
			go e.guest.kill()
		}
		if _, err := e.qp.PostSend(wr); err != nil {
			e.Fatalf("post %d: %v", n, err)
		}
		if err := e.send.Wait(e.ctx); err != nil {
			e.Fatalf("work request %d: %v", n, err)
		}
		var c [1]rdma.Completion
		if e.send.Poll(c[:]) == 1 && c[0].Status != rdma.Success {
			if c[0].Status != rdma.Flushed || n < 50 {
				e.Errorf("work request %d ended by %v", n, c[0].Status)
			}
			return
		}
	}
}

// givenUp checks that the connection ends because the peer is silent, and that the
// receive is flushed.
func (e *end) givenUp() {
	e.Helper()
	select {
	case <-e.qp.Done():
	case <-e.ctx.Done():
		e.Fatalf("the connection does not end: %v", context.Cause(e.ctx))
	}
	if err := e.qp.Err(); !errors.Is(err, stream.ErrTimeout) {
		e.Errorf("the connection ended by %v, want %v", err, stream.ErrTimeout)
	}
	var c [2]rdma.Completion
	if n := e.recv.Poll(c[:]); n != 1 || c[0].Status != rdma.Flushed {
		e.Errorf("receives: %d completions, %v", n, c[0].Status)
	}
}
