package reach_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stag-rdma/stag/offload/reach"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/test/tenant"
)

// mark is what these tests know about a piece.
type mark int

// region makes a region, which ends with the test.
func region(t testing.TB, s *reach.Space, addr, n uint64, write bool) *reach.Region {
	t.Helper()
	r, err := reach.NewRegion(s, addr, n, write)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, r.Release()) })
	return r
}

// put writes octets to mem, in whichever way is right.
func put(t testing.TB, mem, octets []byte) {
	t.Helper()
	if !reach.Foreign(mem) {
		copy(mem, octets)
		return
	}
	var pool reach.Pool[mark]
	b := pool.Batch()
	for len(octets) != 0 {
		n := b.Add(mem, octets, 0)
		mem, octets = mem[n:], octets[n:]
		if _, ok := b.Flush(); !ok {
			t.Fatal("the memory is gone")
		}
	}
}

// get reads mem, in whichever way is right.
func get(mem []byte) (octets []byte) {
	if !reach.Foreign(mem) {
		return bytes.Clone(mem)
	}
	var pool reach.Pool[mark]
	s := pool.Stage()
	for len(mem) != 0 {
		n := min(len(mem), 5000)
		octets = append(octets, s.Fetch(mem[:n], uint64(len(mem)), true)...)
		mem = mem[n:]
	}
	return octets
}

// Memory of every kind can be written and read. Shared memory is mapped.
func TestKindsOfMemory(t *testing.T) {
	p := tenant.Start(t)
	s := p.Space()
	const n = 200_000
	for kind, shared := range map[string]bool{"heap": false, "private": false, "copied": false, "shared": true, "memfd": true} {
		addr := p.Number("%s %d", kind, n)
		p.Do("fill %d %d 1", addr, n)
		r := region(t, s, addr+3, n-5, true)
		if got := r.Unmapped(); (got == nil) != shared {
			t.Errorf("%s: mapped %v, %v", kind, got == nil, got)
		}
		want := make([]byte, n)
		tenant.Fill(want, 1)
		if !bytes.Equal(get(r.Octets()), want[3:n-2]) {
			t.Errorf("%s: other octets were read", kind)
		}
		tenant.Fill(want[3:n-2], 2)
		put(t, r.Octets(), want[3:n-2])
		if got := p.Do("sum %d %d", addr, n); got != tenant.Sum(want) {
			t.Errorf("%s: other octets were written", kind)
		}
	}
	addr := p.Number("stack 8192")
	r := region(t, s, addr, 8192, true)
	want := make([]byte, 8192)
	tenant.Fill(want, 3)
	put(t, r.Octets(), want)
	if got := p.Do("sum %d 8192", addr); got != tenant.Sum(want) {
		t.Errorf("stack: other octets were written")
	}
}

// Random lists of pieces, written through several regions that overlap, against a model.
func TestPiecesAgainstAModel(t *testing.T) {
	p := tenant.Start(t)
	s := p.Space()
	const n = 300_000
	addr := p.Number("private %d", n)
	regions := []*reach.Region{region(t, s, addr, n, true), region(t, s, addr+777, 100_000, true), region(t, s, addr+90_001, 150_000, true)}
	offsets := []int{0, 777, 90_001}
	model := make([]byte, n)
	luck := rand.New(rand.NewPCG(1, 2))
	var pool reach.Pool[mark]
	for round := range 200 {
		b := pool.Batch()
		at := 0
		for range luck.IntN(600) {
			i := luck.IntN(len(regions))
			mem := regions[i].Octets()
			size := []int{1, 8, 64, 1448, 9000, 70_000}[luck.IntN(6)]
			if at+size > len(mem) || luck.IntN(3) == 0 { // otherwise it goes on where the last piece ended
				at = luck.IntN(len(mem) - size)
			}
			octets := make([]byte, size)
			tenant.Fill(octets, luck.Int())
			copy(model[offsets[i]+at:], octets)
			for to := mem[at : at+size]; len(octets) != 0; {
				k := b.Add(to, octets, mark(i))
				if to, octets = to[k:], octets[k:]; len(octets) != 0 {
					if _, ok := b.Flush(); !ok {
						t.Fatal("it cannot be written")
					}
				}
			}
			at += size
		}
		if _, ok := b.Flush(); !ok || !b.Empty() {
			t.Fatal("it cannot be written")
		}
		pool.Return(b)
		if got := p.Do("sum %d %d", addr, n); got != tenant.Sum(model) {
			t.Fatalf("round %d: the memory differs from the model", round)
		}
		i := luck.IntN(len(regions))
		from := luck.IntN(len(regions[i].Octets()))
		mem := regions[i].Octets()[from:]
		if got := get(mem); !bytes.Equal(got, model[offsets[i]+from:][:len(mem)]) {
			t.Fatalf("round %d: other octets were read", round)
		}
	}
}

// A Stage reads ahead within the limits: never behind the message or the region, and few
// octets unless it is sure.
func TestReadsAhead(t *testing.T) {
	p := tenant.Start(t)
	s := p.Space()
	addr := p.Number("private 200000")
	mem := region(t, s, addr, 100_000, false).Octets()
	var pool reach.Pool[mark]
	stage := pool.Stage()
	at := func(off, n int, rest uint64, sure bool) byte {
		t.Helper()
		octets := stage.Fetch(mem[off:off+n], rest, sure)
		if len(octets) != n {
			t.Fatalf("%d octets of %d", len(octets), n)
		}
		return octets[0]
	}
	fresh := func(seed int) { p.Do("fill %d 100000 %d", addr, seed) }
	model := make([]byte, 100_000)
	old, next := bytes.Clone(model), bytes.Clone(model)
	tenant.Fill(old, 1)
	tenant.Fill(next, 2)
	fresh(1)
	at(0, 100, 1000, true)
	fresh(2)
	for off, want := range map[int][]byte{100: old, 900: old, 950: next} { // 950 is in part behind the message
		if at(0, 100, 1000, true); off == 950 {
			stage.Drop()
		}
		if got := at(off, 100, 1000-uint64(min(off, 900)), true); got != want[off] {
			t.Errorf("octet %d is not of the expected time", off)
		}
		stage.Drop()
		fresh(1)
		at(0, 100, 1000, true)
		fresh(2)
	}
	stage.Drop()
	if got := at(99_900, 100, 65536, true); got != next[99_900] {
		t.Error("the end of the region")
	}
	fresh(1)
	if stage.Drop(); at(0, 10, 90_000, false) != old[0] {
		t.Error("not sure")
	}
	fresh(2)
	if at(4000, 10, 86_000, false) != old[4000] || at(5000, 10, 85_000, false) != next[5000] {
		t.Error("not sure: it must have read 4096 octets ahead, and no more")
	}
	pool.ReturnStage(stage)
}

// The client takes memory away while octets are on their way. The mark names the piece.
func TestMemoryGoes(t *testing.T) {
	p := tenant.Start(t)
	s := p.Space()
	addr := p.Number("private %d", 3*4096)
	r := region(t, s, addr, 3*4096, true)
	p.Do("unmap %d 4096", addr+4096)
	var pool reach.Pool[mark]
	b := pool.Batch()
	for i, off := range []int{0, 4090, 4094, 4098, 8192} {
		if n := b.Add(r.Octets()[off:], []byte{1, 2, 3, 4}, mark(i)); n != 4 {
			t.Fatal(n)
		}
	}
	if failed, ok := b.Flush(); ok || failed != 2 || !b.Empty() {
		t.Errorf("piece %d, %v", failed, ok)
	}
	stage := pool.Stage()
	if got := stage.Fetch(r.Octets()[:4096], 3*4096, true); len(got) != 4096 || got[4094] != 1 {
		t.Errorf("%d octets before the hole", len(got))
	}
	if got := stage.Fetch(r.Octets()[4090:4100], 100, true); got != nil {
		t.Errorf("%d octets of the hole", len(got))
	}
	if got := stage.Fetch(r.Octets()[8192:8196], 4, true); !bytes.Equal(got, make([]byte, 4)) {
		t.Errorf("behind the hole: %v", got)
	}
	c := reach.CellAt(r.Octets()[4096:])
	c.Lock()
	if _, ok := c.Load(); ok || c.Store(1) {
		t.Error("a word in the hole")
	}
	c.Unlock()
	p.Kill()
	if got := stage.Fetch(r.Octets()[:1], 1, true); got != nil {
		t.Error("memory of a process that has ended")
	}
	if b.Add(r.Octets(), []byte{1}, 7); true {
		if failed, ok := b.Flush(); ok || failed != 7 {
			t.Error("memory of a process that has ended")
		}
	}
	if _, err := reach.NewRegion(s, addr, 4096, true); !errors.Is(err, reach.ErrNoAccess) {
		t.Errorf("a region of a process that has ended: %v", err)
	}
}

// A region needs the rights that the client itself has.
func TestRights(t *testing.T) {
	p := tenant.Start(t)
	s := p.Space()
	const page = 4096
	viewed := p.Number("viewed %d", page) // first, because it could take the place of the hole
	whole := p.Number("private %d", 6*page)
	p.Do("protect %d %d 1", whole+page, page)
	p.Do("protect %d %d 0", whole+3*page, page)
	p.Do("unmap %d %d", whole+4*page, page)
	for name, c := range map[string]struct {
		addr, n uint64
		write   bool
		refuse  string
	}{
		"a page":                        {whole, page, true, ""},
		"read-only, to read":            {whole + page, page, false, ""},
		"read-only, to write":           {whole + page, page, true, "may not write"},
		"an octet of it at the end":     {whole, page + 1, true, "may not write"},
		"read-only and others, to read": {whole, 3 * page, false, ""},
		"no rights":                     {whole + 3*page, 1, false, "may not read"},
		"an octet without rights":       {whole + 2*page, page + 1, true, "may not read"},
		"a hole":                        {whole + 4*page, page, false, "nothing is mapped"},
		"across a hole":                 {whole + 4*page + 1, page, false, "nothing is mapped"},
		"behind the hole":               {whole + 5*page, page, true, ""},
		"a shared view, to read":        {viewed, page, false, ""},
		"a shared view, to write":       {viewed, page, true, "may not write"},
		"behind everything":             {1<<47 - page, page, false, "mapped"},
		"no octets":                     {whole, 0, false, "at least 1"},
		"around the end":                {^uint64(0), 2, false, "2^64"},
	} {
		r, err := reach.NewRegion(s, c.addr, c.n, c.write)
		if c.refuse == "" {
			rig.Must(t, err)
			rig.Check(t, r.Release())
			continue
		}
		if err == nil {
			t.Errorf("%s: it is allowed", name)
			rig.Check(t, r.Release())
		} else if !bytes.Contains([]byte(err.Error()), []byte(c.refuse)) || c.n != 0 && c.addr+c.n > c.addr && !errors.Is(err, reach.ErrNoAccess) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Open takes only the files of procfs that it needs: it must not write to another file with
// the rights of this process.
func TestOpenRefuses(t *testing.T) {
	p := tenant.Start(t)
	name := filepath.Join(t.TempDir(), "mem")
	rig.Must(t, os.WriteFile(name, make([]byte, 1<<20), 0o600))
	file := func(name string, flags int) func() *os.File {
		return func() *os.File {
			f, err := os.OpenFile(name, flags, 0)
			rig.Must(t, err)
			return f
		}
	}
	of := func(name string) string { return fmt.Sprintf("/proc/%d/%s", p.Pid(), name) }
	for what, c := range map[string]struct {
		mem, maps func() *os.File
		says      string
	}{
		"an ordinary file":             {file(name, os.O_RDWR), nil, "another file"},
		"a file of a user's mappings":  {file(of("uid_map"), os.O_RDWR), nil, "another file"},
		"memory that is not writable":  {file(of("mem"), os.O_RDONLY), nil, "for reading and writing"},
		"a list that is a file":        {nil, file(name, os.O_RDONLY), "another file"},
		"a list that is a text":        {nil, file(of("cmdline"), os.O_RDONLY), "maps"},
		"nothing":                      {func() *os.File { return nil }, nil, "must pass"},
		"no list":                      {nil, func() *os.File { return nil }, "must pass"},
		"a setting that only root has": {file("/proc/sys/net/ipv4/tcp_fastopen_key", os.O_RDWR), nil, "descriptor for /proc/self/mem"},
	} {
		client := p.Client()
		if c.mem != nil {
			rig.Must(t, client.Mem.Close())
			client.Mem = c.mem()
		}
		if c.maps != nil {
			rig.Must(t, client.Maps.Close())
			client.Maps = c.maps()
		}
		s, err := reach.Open(client)
		if err == nil {
			t.Errorf("%s: it is taken", what)
			rig.Check(t, s.Close())
		} else if !bytes.Contains([]byte(err.Error()), []byte(c.says)) {
			t.Errorf("%s: %v", what, err)
		}
		if client.Process.Fd() != ^uintptr(0) {
			t.Errorf("%s: a descriptor is open", what)
		}
	}
}

// A Space closes its descriptors when the last region has gone.
func TestClosesWithTheLastRegion(t *testing.T) {
	p := tenant.Start(t)
	addr := p.Number("private 4096")
	before := len(rig.Files(t))
	s, err := reach.Open(p.Client())
	rig.Must(t, err)
	r, err := reach.NewRegion(s, addr, 4096, true)
	rig.Must(t, err)
	rig.Must(t, s.Close())
	put(t, r.Octets(), []byte("still there"))
	if _, err := reach.NewRegion(s, addr, 4096, true); err == nil {
		t.Error("a region of a closed space")
	}
	rig.Must(t, r.Release())
	if after := len(rig.Files(t)); after != before {
		t.Errorf("%d files are open, were %d", after, before)
	}
}

// The path of a segment allocates nothing.
func TestNoAllocation(t *testing.T) {
	p := tenant.Start(t)
	mem := region(t, p.Space(), p.Number("private 100000"), 100_000, true).Octets()
	var pool reach.Pool[mark]
	octets := make([]byte, 1448)
	for name, f := range map[string]func(){
		"writes": func() {
			b := pool.Batch()
			for i := range 40 {
				b.Add(mem[i*1448:], octets, 1)
			}
			b.Flush()
			pool.Return(b)
		},
		"reads": func() {
			s := pool.Stage()
			for i := range 40 {
				s.Fetch(mem[1+i*1448:][:1448], 58_000, true)
			}
			pool.ReturnStage(s)
		},
		"words": func() {
			c := reach.CellAt(mem[8:])
			c.Lock()
			v, _ := c.Load()
			c.Store(v + 1)
			c.Unlock()
		},
	} {
		if n := testing.AllocsPerRun(50, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// The two ways to ask for the client's mappings give the same answer.
func TestBothListsAgree(t *testing.T) {
	p := tenant.Start(t)
	reach.CompareLists(t, p.Space())
}
