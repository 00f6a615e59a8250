package rdma

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/heap"
	common "github.com/stag-rdma/stag/test/rig"
)

// mapping maps n octets of f or, if f is nil, of anonymous memory.
func (r *rig) mapping(f *os.File, n, prot int) []byte {
	r.Helper()
	fd, flags := -1, unix.MAP_PRIVATE|unix.MAP_ANON
	if f != nil {
		fd, flags = int(f.Fd()), unix.MAP_SHARED
	}
	mem, err := unix.Mmap(fd, 0, n, prot, flags)
	r.Must(err)
	r.Cleanup(func() { unix.Munmap(mem) })
	return mem
}

// file makes a file of n octets with a pattern.
func (r *rig) file(n int) *os.File {
	r.Helper()
	f, err := os.Create(r.TempDir() + "/memory")
	r.Must(err)
	r.Cleanup(func() { f.Close() })
	b := make([]byte, n)
	fill(b, 1)
	_, err = f.Write(b)
	r.Must(err)
	return f
}

// RegMR registers memory only with rights that the process itself has to it, and does not
// change the memory.
func TestRegisterWhatMayBeAccessed(t *testing.T) {
	const rw = unix.PROT_READ | unix.PROT_WRITE
	r := &rig{Stage: common.On(t)}
	a := r.open(Config{KernelPort: true})
	pd, err := a.AllocPD()
	r.Must(err)
	holed := r.mapping(nil, 3*heap.PageSize, rw)
	r.Must(unix.Mprotect(holed[heap.PageSize:2*heap.PageSize], unix.PROT_READ))
	f := r.file(2 * heap.PageSize)
	for name, c := range map[string]struct {
		mem    []byte
		access Access
		refuse string
	}{
		"read-only, to write":            {r.mapping(nil, heap.PageSize, unix.PROT_READ), LocalWrite | RemoteWrite, "may not write to"},
		"read-only, to be read":          {r.mapping(nil, heap.PageSize, unix.PROT_READ), RemoteRead, ""},
		"no access, to read":             {r.mapping(nil, heap.PageSize, unix.PROT_NONE), 0, "may not read"},
		"a heap.PageSize in the middle":  {holed, LocalWrite, "may not write to"},
		"beside that heap.PageSize":      {holed[2*heap.PageSize : 2*heap.PageSize+1], LocalWrite, ""},
		"an octet of that heap.PageSize": {holed[2*heap.PageSize-1 : 2*heap.PageSize+1], LocalWrite, "may not write to"},
		"a file":                         {r.mapping(f, 2*heap.PageSize, rw), LocalWrite, ""},
		"beyond the end of the file":     {r.mapping(f, 4*heap.PageSize, rw), LocalWrite, "as long as that"},
		"the program's own":              {make([]byte, 10*heap.PageSize)[7:], LocalWrite | RemoteWrite, ""},
		"an octet of the program's":      {make([]byte, 1), LocalWrite | RemoteWrite, ""},
	} {
		if c.refuse != "" {
			_, err := pd.RegMR(c.mem, c.access)
			r.Says(err, ErrNoAccess, c.refuse)
			continue
		}
		before := bytes.Clone(c.mem)
		mr, err := pd.RegMR(c.mem, c.access)
		if err != nil || !bytes.Equal(before, c.mem) {
			r.Errorf("%s: registering has changed it, or %v", name, err)
			continue
		}
		r.Must(mr.Close())
	}
}

// If a file is truncated under a region, the connections that access the region end. The
// process and other connections continue. This holds for both kinds of progress.
func TestTruncatedUnderARegion(t *testing.T) {
	accesses := map[string]func(x, y *end, mr *MR){
		"Write":   func(x, _ *end, mr *MR) { x.post(SendWR{Op: WRWrite, Inline: []byte("boom"), RKey: mr.RKey()}) },
		"Read":    func(x, _ *end, mr *MR) { x.post(SendWR{Op: WRRead, SGL: []SGE{x.mr.SGE(0, 4)}, RKey: mr.RKey()}) },
		"receive": func(x, _ *end, _ *MR) { x.post(SendWR{Op: WRSend, Inline: []byte("boom")}) },
		"Send":    func(_, y *end, mr *MR) { y.post(SendWR{Op: WRSend, SGL: []SGE{mr.SGE(0, 4)}}) },
	}
	inEachProgress(t, func(r *rig) {
		for name, access := range accesses {
			x, y := r.connect(wants{})
			good := r.newEnd(r.a, wants{})
			r.Must(r.join(good, y.another(), wants{}))
			f := r.file(heap.PageSize)
			mr, err := y.pd.RegMR(r.mapping(f, heap.PageSize, unix.PROT_READ|unix.PROT_WRITE), all)
			r.Must(err)
			y.receive(RecvWR{SGL: []SGE{mr.SGE(0, 4)}})
			good.post(SendWR{Op: WRRead, SGL: []SGE{good.mr.SGE(0, 4)}, RKey: mr.RKey(), Flags: Signaled})
			r.ok(good.sent(1))
			r.Must(f.Truncate(0))
			access(x, y, mr)
			y.done()
			x.done()
			r.Says(y.qp.Err(), ErrMemoryGone, "truncated")
			if x.qp.Err() == nil {
				r.Errorf("%s: the peer has no error", name)
			}
			good.post(SendWR{Op: WRRead, SGL: []SGE{good.mr.SGE(0, 4)}, RKey: mr.RKey(), Flags: Signaled})
			if c := good.sent(1)[0]; c.Status != RemoteAccessErr {
				r.Errorf("%s: the region afterwards: %+v", name, c)
			}
			r.Must(mr.Close())
			if e := <-r.b.Events(); e.Type != QPFatal || !errors.Is(e.Err, ErrMemoryGone) {
				r.Errorf("%s: event %+v", name, e)
			}
			<-r.b.Events() // the event of the other connection, which ends because of its Read
		}
	})
}

// inEachProgress runs a test over both paths, with each kind of progress.
func inEachProgress(t *testing.T, test func(r *rig)) {
	for _, p := range []Progress{ProgressInline, ProgressEngine} {
		t.Run(p.String()+", kernel port", func(t *testing.T) {
			r := &rig{Stage: common.On(t), host: "127.0.0.1"}
			r.a, r.b = r.open(Config{KernelPort: true, Progress: p}), r.open(Config{KernelPort: true, Progress: p})
			test(r)
		})
		t.Run(p.String()+", offloaded", func(t *testing.T) {
			r := newStage(t, pair.Config{})
			r.openHosts(func(side pair.Side) Config {
				return Config{Ports: []string{r.pair.Ends[side].Name}, Progress: p}
			})
			test(r)
		})
	}
}
