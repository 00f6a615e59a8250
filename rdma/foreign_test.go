package rdma

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/tenant"
)

// nobody is the user of tenants without rights, and owner that of a setuid program.
const (
	nobody = 65534
	keeper = 12345
)

// foreign registers n octets of a tenant's memory for e.
func (e *end) foreign(p *tenant.Tenant, addr, n uint64, access Access) *MR {
	e.r.Helper()
	mr, err := e.pd.RegForeignMR(p.Space(), addr, n, access)
	e.r.Must(err)
	e.r.Cleanup(func() { e.r.Check(mr.Close()) })
	return mr
}

// All operations reach all kinds of memory of another process, as target and as source.
func TestForeignMemory(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		p := tenant.StartAs(r, nobody)
		const n = 150_000
		for _, kind := range []string{"heap", "private", "copied", "shared", "memfd"} {
			x, y := r.connect(wants{heap: 3 * n})
			addr := p.Number("%s %d", kind, 2*n)
			mr := y.foreign(p, addr, 2*n, all)
			shared := kind == "shared" || kind == "memfd"
			if mapped := mr.Unmapped() == nil; mapped != (shared && os.Geteuid() == 0) { // without rights it is copied
				r.Errorf("%s: %v", kind, mr.Unmapped())
			}
			if mr.Addr() != addr || mr.Len() != 2*n || mr.Bytes() != nil || mr.Pages() != nil {
				r.Errorf("%s: %#x, %d octets", kind, mr.Addr(), mr.Len())
			}
			r.throughForeign(x, y, mr, p, kind)
			r.Check(x.qp.Close())
			r.Check(y.qp.Close())
		}
	})
}

// throughForeign moves octets into mr, which is memory of p, and out of it. mr and the
// region of x have room for 2 and 3 messages.
func (r *rig) throughForeign(x, y *end, mr *MR, p *tenant.Tenant, kind string) {
	r.Helper()
	n := mr.Len() / 2
	sum := func(off int) string { return p.Do("sum %d %d", mr.Addr()+uint64(off), n) }
	here := func(e *end, off int) []byte { return e.mr.Bytes()[off : off+n] }
	same := func(what, got, want string) {
		r.Helper()
		if got != want {
			r.Errorf("%s, %s: other octets", kind, what)
		}
	}

	fill(here(x, 0), 1)
	for off := 0; off < n; off += 7000 { // Writes, and a Send behind them
		k := min(7000, n-off)
		x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(off, k)}, RKey: mr.RKey(), RemoteAddr: mr.Addr() + uint64(off)})
		r.drain(x, off)
	}
	y.receive(RecvWR{ID: 1, SGL: []SGE{mr.SGE(n, 1000), mr.SGE(n+1000, n-1000)}})
	x.post(SendWR{Op: WRSend, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, n)}})
	r.ok(x.sent(1))
	if got := r.ok(y.got(1))[0]; int(got.Length) != n {
		r.Errorf("%s: %+v", kind, got)
	}
	same("Writes", sum(0), tenant.Sum(here(x, 0)))
	same("a Send", sum(n), tenant.Sum(here(x, 0)))

	p.Do("fill %d %d 2", mr.Addr()+3, n-3) // a Read of the peer
	x.post(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(n, n)}, RKey: mr.RKey(), RemoteAddr: mr.Addr()})
	r.ok(x.sent(1))
	same("a peer's Read", tenant.Sum(here(x, n)), sum(0))

	p.Do("fill %d %d 3", mr.Addr()+1, n-1) // a Write and a Send from there
	x.receive(RecvWR{ID: 2, SGL: []SGE{x.mr.SGE(2*n, n)}})
	y.post(
		SendWR{Op: WRWrite, SGL: []SGE{mr.SGE(0, n)}, RKey: x.mr.RKey(), RemoteAddr: x.mr.Addr()},
		SendWR{Op: WRSend, Flags: Signaled, SGL: []SGE{mr.SGE(5, 3000), y.mr.SGE(0, 10), mr.SGE(3015, n-3015)}},
	)
	r.ok(y.sent(1))
	r.ok(x.got(1))
	same("a Write from there", tenant.Sum(here(x, 0)), sum(0))
	want := bytes.Clone(here(x, 0)[5:3005])
	want = append(append(want, y.mr.Bytes()[:10]...), here(x, 0)[3015:]...)
	same("a Send from there", tenant.Sum(here(x, 2*n)[:n-5]), tenant.Sum(want))

	fill(here(x, 0), 4) // a Read into it
	y.post(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{mr.SGE(n, n)}, RKey: x.mr.RKey(), RemoteAddr: x.mr.Addr()})
	r.ok(y.sent(1))
	same("a Read into it", sum(n), tenant.Sum(here(x, 0)))
}

// drain makes room in the send queue now and then.
func (r *rig) drain(e *end, off int) {
	if off/7000%16 == 15 {
		e.post(SendWR{Op: WRWrite, Flags: Signaled})
		r.ok(e.sent(1))
	}
}

// Peers count in a word of another process. No addition of theirs is lost. If the memory is
// mapped, for which this process needs a capability, no addition of the process itself is lost
// either.
func TestForeignCounter(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		p := tenant.StartAs(r, nobody)
		for _, kind := range []string{"private", "memfd"} {
			const rounds, depth = 60, 16
			one, two := r.newEnd(r.a, extended), r.newEnd(r.a, extended)
			home := r.newEnd(r.b, extended)
			r.Must(r.join(one, home, extended))
			r.Must(r.join(two, home.another(), extended))
			addr := p.Number("%s 4096", kind)
			mr := home.foreign(p, addr, 4096, all|RemoteAtomic)
			mapped := mr.Unmapped() == nil
			if want := kind == "memfd" && os.Geteuid() == 0; mapped != want {
				r.Fatalf("%s is mapped: %v, want %v (%v)", kind, mapped, want, mr.Unmapped())
			}
			told := make(chan string)
			if mapped {
				go func() { told <- p.Do("add %d 1000000", addr+8) }()
			}
			seen := map[uint64]bool{}
			for range rounds {
				for _, e := range []*end{one, two} {
					for i := range depth {
						e.post(SendWR{Op: WRFetchAdd, Flags: Signaled, SGL: []SGE{e.mr.SGE(8*i, 8)}, RKey: mr.RKey(), RemoteAddr: mr.Addr() + 8, CompareAdd: 1 << 32})
					}
				}
				for _, e := range []*end{one, two} {
					r.ok(e.sent(depth))
					for i := range depth {
						seen[old(e, 8*i)>>32] = true
					}
				}
			}
			want := uint64(2 * rounds * depth << 32)
			if mapped {
				<-told
				want += 1_000_000
			}
			if got := p.Number("word %d", addr+8); got != want || len(seen) != 2*rounds*depth {
				r.Errorf("%s: the word is %#x after %d different values, want %#x", kind, got, len(seen), want)
			}
			one.post(SendWR{Op: WRCompareSwap, Flags: Signaled, SGL: []SGE{one.mr.SGE(0, 8)}, RKey: mr.RKey(), RemoteAddr: mr.Addr() + 8, CompareAdd: want, Swap: 7})
			r.ok(one.sent(1))
			if got := p.Number("word %d", addr+8); got != 7 {
				r.Errorf("%s: the word is %#x after a swap", kind, got)
			}
			for _, e := range []*end{one, two, home} {
				r.Check(e.qp.Close())
			}
		}
	})
}

// foreignAccesses are accesses to memory of the process behind y.
var foreignAccesses = map[string]func(x, y *end, mr *MR){
	"Write": func(x, _ *end, mr *MR) {
		x.post(SendWR{Op: WRWrite, Inline: []byte("boom"), RKey: mr.RKey(), RemoteAddr: mr.Addr()})
	},
	"Read": func(x, _ *end, mr *MR) {
		x.post(SendWR{Op: WRRead, SGL: []SGE{x.mr.SGE(0, 4)}, RKey: mr.RKey(), RemoteAddr: mr.Addr()})
	},
	"receive": func(x, _ *end, _ *MR) { x.post(SendWR{Op: WRSend, Inline: []byte("boom")}) },
	"Send":    func(_, y *end, mr *MR) { y.post(SendWR{Op: WRSend, SGL: []SGE{mr.SGE(0, 4)}}) },
	"atomic": func(x, _ *end, mr *MR) {
		x.post(SendWR{Op: WRFetchAdd, SGL: []SGE{x.mr.SGE(0, 8)}, RKey: mr.RKey(), RemoteAddr: mr.Addr(), CompareAdd: 1})
	},
}

// When the memory of a process goes, the connections that access it end, and nothing is told
// as a success. Others go on.
func TestForeignMemoryGoes(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		for how, lose := range map[string]func(p *tenant.Tenant, addr uint64){
			"unmapped": func(p *tenant.Tenant, addr uint64) { p.Do("unmap %d 4096", addr) },
			"ended":    func(p *tenant.Tenant, _ uint64) { p.Kill() },
			"exec":     func(p *tenant.Tenant, addr uint64) { p.Do("exec /proc/self/exe %d 4096", addr) },
		} {
			good, its := r.connect(wants{})
			for name, access := range foreignAccesses {
				p := tenant.StartAs(r, nobody)
				addr := p.Number("private 4096")
				x, y := r.connect(extended)
				mr := y.foreign(p, addr, 4096, all|RemoteAtomic)
				y.receive(RecvWR{ID: 9, SGL: []SGE{mr.SGE(0, 4)}})
				x.post(SendWR{Op: WRWrite, Inline: []byte("fine"), RKey: mr.RKey(), RemoteAddr: addr})
				x.post(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, 4)}, RKey: mr.RKey(), RemoteAddr: addr})
				if r.ok(x.sent(1)); string(x.mr.Bytes()[:4]) != "fine" {
					r.Errorf("%s, %s: before: %q", how, name, x.mr.Bytes()[:4])
				}
				lose(p, addr)
				access(x, y, mr)
				y.done()
				x.done()
				if err := y.qp.Err(); !errors.Is(err, ErrMemoryGone) {
					r.Errorf("%s, %s: %v", how, name, err)
				}
				if x.qp.Err() == nil {
					r.Errorf("%s, %s: the peer has no error", how, name)
				}
				if c := y.got(1)[0]; c.ID != 9 || c.Status != Flushed && c.Status != LocalProtErr || name == "receive" && c.Status != LocalProtErr {
					r.Errorf("%s, %s: the receive: %+v", how, name, c)
				}
				if how == "exec" {
					r.untouched(p, addr, 4096)
				}
			}
			good.post(SendWR{Op: WRRead, Flags: Signaled, SGL: []SGE{good.mr.SGE(0, 4)}, RKey: its.mr.RKey()})
			r.ok(good.sent(1))
		}
	})
}

// untouched checks the memory of a program that a tenant has begun by exec.
func (r *rig) untouched(p *tenant.Tenant, addr uint64, n int) {
	r.Helper()
	want := make([]byte, n)
	tenant.Fill(want, 1)
	if got := p.Do("sum %d %d", addr, n); got != tenant.Sum(want) {
		r.Error("the memory of the new program has changed")
	}
}

// While a peer writes without a pause, the process begins a setuid program, which has memory
// at the same address. It is never written to.
func TestForeignExecOfASetuidProgram(t *testing.T) {
	need.Root(t)
	r := newLoopback(t)
	dir, err := os.MkdirTemp("", "stag-setuid-")
	r.Must(err)
	r.Cleanup(func() { r.Check(os.RemoveAll(dir)) })
	r.Must(os.Chmod(dir, 0o755))
	program := filepath.Join(dir, "program")
	binary, err := os.ReadFile("/proc/self/exe")
	r.Must(err)
	r.Must(os.WriteFile(program, binary, 0o755))
	r.Must(os.Chown(program, keeper, keeper))
	r.Must(os.Chmod(program, 0o4755|os.ModeSetuid))
	for range 5 {
		const n = 1 << 20
		p := tenant.StartAs(r, nobody)
		addr := p.Number("at %d %d", uint64(0x7a0000000000), n)
		x, y := r.connect(wants{heap: n})
		space := p.Space()
		mr, err := y.pd.RegForeignMR(space, addr, n, all)
		r.Must(err)
		fill(x.mr.Bytes(), 2)
		begun := make(chan string, 1)
		for round := 0; x.qp.State() == RTS; round++ {
			x.qp.PostSend(SendWR{Op: WRWrite, Flags: Signaled, SGL: []SGE{x.mr.SGE(0, n)}, RKey: mr.RKey(), RemoteAddr: addr}) // fails when the memory is gone
			x.sent(1)
			if round == 3 {
				go func() { begun <- p.Do("exec %s %d %d", program, addr, n) }()
			}
		}
		if got := <-begun; got != "ready" {
			t.Fatalf("the new program says %q", got)
		}
		if got := p.Do("who"); got != fmt.Sprint(keeper) {
			t.Fatalf("the new program runs as %s: the file system of %s must allow setuid", got, dir)
		}
		y.done()
		if err := y.qp.Err(); !errors.Is(err, ErrMemoryGone) {
			r.Errorf("%v", err)
		}
		r.untouched(p, addr, n)
		_, err = y.pd.RegForeignMR(space, addr, n, all)
		r.Says(err, ErrNoAccess, "has begun another program")
		r.Must(mr.Close())
		r.Check(y.qp.Close())
		r.Check(x.qp.Close())
	}
}

// A process that forks keeps its memory, and the child does not see later octets. Protection
// against writing does not stop the adapter, as with an RNIC, but is respected when a region
// is registered.
func TestForeignForkAndProtect(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		const n = 100_000
		p := tenant.Start(r)
		x, y := r.connect(wants{heap: n})
		addr := p.Number("private %d", n)
		p.Do("fill %d %d 5", addr, n)
		mr := y.foreign(p, addr, n, all)
		write := func(seed int) {
			r.Helper()
			fill(x.mr.Bytes(), seed)
			y.receive(RecvWR{})
			x.post(SendWR{Op: WRWrite, SGL: []SGE{x.mr.SGE(0, n)}, RKey: mr.RKey(), RemoteAddr: addr}, SendWR{Op: WRSend, Flags: Signaled})
			r.ok(x.sent(1))
			r.ok(y.got(1))
			if got := p.Do("sum %d %d", addr, n); got != tenant.Sum(x.mr.Bytes()) {
				r.Errorf("seed %d: other octets", seed)
			}
		}
		child := p.Number("fork")
		r.Cleanup(func() { unix.Kill(int(child), unix.SIGKILL) })
		write(6)
		its, err := os.Open(fmt.Sprintf("/proc/%d/mem", child))
		r.Must(err)
		defer its.Close()
		octets, want := make([]byte, n), make([]byte, n)
		_, err = its.ReadAt(octets, int64(addr))
		r.Must(err)
		tenant.Fill(want, 5)
		if !bytes.Equal(octets, want) {
			r.Error("the child's memory has changed")
		}
		p.Do("protect %d %d 1", addr, n)
		write(7)
		_, err = y.pd.RegForeignMR(p.Space(), addr, n, all)
		r.Says(err, ErrNoAccess, "may not write")
		r.Says(mr.Rereg(LocalWrite), ErrNoAccess, "may not write")
		r.Must(mr.Rereg(RemoteRead))
	})
}
