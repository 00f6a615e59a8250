package rdmap

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// doomed is a region of two pages over memory that can be taken away.
type doomed struct {
	*script
	stag tpt.STag
	mem  []byte
	file int // that mem maps
}

func (s *script) doomed() doomed {
	s.Helper()
	f, err := unix.MemfdCreate("doomed", unix.MFD_CLOEXEC)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { unix.Close(f) })
	if err := unix.Ftruncate(f, int64(2*os.Getpagesize())); err != nil {
		s.Fatal(err)
	}
	mem, err := unix.Mmap(f, 0, 2*os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { unix.Munmap(mem) })
	return doomed{s, s.register(tpt.Region{PD: s.pd, Memory: mem, Rights: every}), mem, f}
}

// lose takes the second page away.
func (d doomed) lose() {
	d.Helper()
	if err := unix.Ftruncate(d.file, int64(len(d.mem)/2)); err != nil {
		d.Fatal(err)
	}
}

// across returns n octets on either side of where the second page begins.
func (d doomed) across(n int) work.SGE {
	return work.SGE{Addr: uint64(len(d.mem)/2 - n), Length: uint32(2 * n), LKey: d.stag}
}

// Memory that is gone when it is accessed ends the connection and the region, but not
// the process.
func TestMemoryGone(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(d doomed) // before it goes
		access  func(d doomed)
		ends    work.Completion // zero: none before the flush
		code    Code
	}{
		"a peer's Write": {access: func(d doomed) {
			d.gets(write(uint32(d.stag), d.across(4).Addr, []byte("12345678")))
		}, code: Code{1, 1, 0}},
		"a peer's Read": {access: func(d doomed) {
			e := d.across(4)
			d.gets(readRequest(1, 9, 8, e.Length, uint32(d.stag), e.Addr))
		}, code: ProtInvalidSTag},
		"a receive": {prepare: func(d doomed) { d.receives(work.RecvWR{ID: 1, SGL: []work.SGE{d.at(0, 2), d.across(4)}}) },
			access: func(d doomed) { d.gets(send(1, []byte("1234567890"))) },
			ends:   failed(1, work.WCRecv, work.LocalProtErr), code: Code{1, 0, 0}},
		"a Send": {access: func(d doomed) {
			d.posts(work.SendWR{ID: 1, Op: work.WRSend, SGL: []work.SGE{d.at(0, 2), d.across(4)}})
		}, ends: failed(1, work.WCSend, work.LocalProtErr), code: LocalCatastrophic},
		"the sink of a Read": {
			prepare: func(d doomed) {
				d.posts(work.SendWR{ID: 1, Op: work.WRRead, SGL: []work.SGE{d.across(4)}, RKey: 5})
				d.st.out = nil
			},
			access: func(d doomed) {
				e := d.across(4)
				d.gets(tagged(2, true, uint32(d.stag), e.Addr, []byte("12345678")))
			},
			ends: failed(1, work.WCRead, work.LocalProtErr), code: Code{1, 0, 0}},
	} {
		for _, piece := range []int{0, 3} {
			t.Run(fmt.Sprintf("%s, pieces of %d", name, piece), func(t *testing.T) {
				d := open(t, inPieces(piece)).doomed()
				if c.prepare != nil {
					c.prepare(d)
				}
				d.lose()
				c.access(d)
				if c.ends != (work.Completion{}) {
					d.completes(c.ends)
				}
				if got := d.q.Cause(); got.Code != c.code || got.Err != ErrMemoryGone || d.q.State() != Terminate {
					t.Errorf("state %v, cause %+v", d.q.State(), got)
				}
				d.isInvalid()
			})
		}
	}
}

// isInvalid checks that the region cannot be used any more.
func (d doomed) isInvalid() {
	d.Helper()
	if _, f := d.table.Check(tpt.Access{STag: d.stag, PD: d.pd, QP: qpNumber, Right: tpt.LocalRead, Len: 1}); f != tpt.BadSTag {
		d.Errorf("the region afterwards: %v", f)
	}
	if _, f := d.table.Check(tpt.Access{STag: d.all, PD: d.pd, QP: qpNumber, Right: tpt.LocalRead, TO: regionStart, Len: 1}); f != tpt.OK {
		d.Errorf("another region: %v", f)
	}
}

// Memory goes while a segment is partly in the stream: the peer must not get that part,
// so that the connection is reset.
func TestMemoryGoneWithinASegment(t *testing.T) {
	for name, access := range map[string]func(d doomed) work.Completion{
		"a Write": func(d doomed) work.Completion {
			d.posts(work.SendWR{ID: 1, Op: work.WRWrite, SGL: []work.SGE{d.across(4)}, RKey: 5})
			return failed(1, work.WCWrite, work.LocalProtErr)
		},
		"a Response": func(d doomed) work.Completion {
			e := d.across(4)
			d.receives(work.RecvWR{ID: 1})
			d.gets(readRequest(1, 9, 8, e.Length, uint32(d.stag), e.Addr))
			return flushed(1, work.WCRecv)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t).doomed()
			d.st.before = d.lose
			want := access(d)
			d.completes(want)
			if got := d.q.Cause(); got != (Cause{Err: ErrMemoryGone}) || !d.st.killed {
				t.Errorf("reset %v, cause %+v", d.st.killed, got)
			}
			d.isInvalid()
		})
	}
}

// The guard catches only a fault of the memory: a panic in the stream below must pass.
func TestGuardCatchesNothingElse(t *testing.T) {
	for name, before := range map[string]func(){
		"a panic":             func() { panic("below") },
		"a nil pointer":       func() { _ = *(*int)(nil) },
		"a fault of a stream": func() { panic(faultOf{}) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			s.st.before = before
			defer func() {
				if recover() == nil {
					t.Error("it was caught")
				}
			}()
			s.posts(work.SendWR{Op: work.WRSend, SGL: []work.SGE{s.at(0, 8)}})
		})
	}
}

// faultOf looks like the runtime's error for a fault at an address.
type faultOf struct{ error }

func (faultOf) Addr() uintptr { return 0x1000 }
