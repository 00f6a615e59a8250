package tpt

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/rig"
)

const pageSize = MinPageSize

// cut returns a page list of mem in a random order of its pages. The first page lacks its first lead
// octets, and the last page its last tail octets. mem must be whole pages.
func cut(luck *rand.Rand, mem []byte, lead, tail int) (list [][]byte) {
	for _, i := range luck.Perm(len(mem) / pageSize) {
		list = append(list, mem[i*pageSize:][:pageSize:pageSize])
	}
	last := len(list) - 1
	list[last] = list[last][:pageSize-tail]
	list[0] = list[0][lead:]
	return list
}

// flat returns the octets of a list in order.
func flat(list [][]byte) []byte { return bytes.Join(list, nil) }

// scattered returns a table with room for pages, and memory of whole pages with random
// octets in the heap and outside.
func scattered(t testing.TB, c Config, pages int) (s *stage, heap, external []byte) {
	heap, external = make([]byte, pages*pageSize), make([]byte, pages*pageSize)
	luck := rand.NewChaCha8([32]byte{1})
	luck.Read(heap)
	luck.Read(external)
	c.Heap = heap
	return newStage(t, c), heap, external
}

// mustPages registers a page list.
func (s *stage) mustPages(list [][]byte, size, start uint64, r Rights) STag {
	s.t.Helper()
	stag, err := s.Register(Region{PD: s.pd, Pages: list, PageSize: size, Start: start, Rights: r})
	if err != nil {
		s.t.Fatal(err)
	}
	return stag
}

// Each access to a page list reaches the octets that the list has at these offsets, in
// pieces that are in order and in one page each (US 7,299,266, FIG. 12 and 13). This is
// true for both indirect translations, for windows, and for all kinds of memory.
func TestPageLists(t *testing.T) {
	const pages = 700 // more than a leaf has
	luck := rand.New(rand.NewPCG(5, 6))
	for most, c := range map[uint32]Config{0: {Entries: 64, Pages: 4096}, 1500: arrays(t, 64, 4096)} {
		c.MaxPiece = most
		s, heap, external := scattered(t, c, pages)
		mixed := append(cut(luck, heap[:5*pageSize], 7, 0), cut(luck, external[:4*pageSize], 0, 9)...)
		for name, list := range map[string][][]byte{
			"one page":        {heap[10:200]},
			"two pages":       {external[4000:4096], heap[:3]},
			"large elements":  {heap[100 : 3*pageSize], external[:5*pageSize], external[8*pageSize:][:300]},
			"heap, first":     cut(luck, heap[:9*pageSize], 100, 50),
			"external, first": cut(luck, external[:9*pageSize], 4095, 4095),
			"mixed":           mixed,
			"a whole leaf":    cut(luck, heap[:leafLen*pageSize], 0, 0),
			"heap, second":    cut(luck, heap, 1, 1),
			"external second": cut(luck, external, 4000, 17),
		} {
			for _, start := range []uint64{0, 0x7f0012345678, math.MaxUint64 - uint64(len(flat(list))) + 1} {
				region := s.mustPages(list, pageSize, start, LocalWrite|RemoteRead|Bind)
				tryPages(t, luck, s, name, Access{STag: region, PD: s.pd, QP: 1, Right: RemoteRead, TO: start}, flat(list), most)
				tryWindow(t, luck, s, name, region, start, flat(list), most)
				if err := s.Deregister(region, s.pd); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := s.runs.free; got != 4096 || len(s.translations) != 0 {
			t.Errorf("%d places are free in the end, and %d translations are left", got, len(s.translations))
		}
		for i := range uint32(4096) {
			if first, _ := s.outer.at(i); first != nil {
				t.Fatalf("place %d keeps memory of a region that is gone", i)
			}
		}
	}
}

// tryPages makes random accesses to an entry with the octets whole.
func tryPages(t *testing.T, luck *rand.Rand, s *stage, name string, a Access, whole []byte, most uint32) {
	t.Helper()
	var m Memo
	start := a.TO
	for i := range 200 {
		off := luck.IntN(len(whole))
		n := 1 + luck.IntN(len(whole)-off)
		if i%2 == 0 {
			n = min(n, 1+luck.IntN(2*pageSize))
		}
		a.TO, a.Len = start+uint64(off), uint32(n)
		var got []byte
		mem, f := m.Check(s.Table, a)
		if f != OK || len(mem) == 0 {
			t.Fatalf("%s, %d octets from %d: %v", name, n, off, f)
		}
		for ; len(mem) != 0; mem = m.Next() {
			if len(mem) > pageSize || most != 0 && len(mem) > int(most) || cap(mem) != len(mem) {
				t.Fatalf("%s: a piece of %d octets, capacity %d", name, len(mem), cap(mem))
			}
			got = append(got, mem...)
		}
		if !bytes.Equal(got, whole[off:off+n]) || m.Next() != nil {
			t.Fatalf("%s, %d octets from %d: %d octets, or others", name, n, off, len(got))
		}
	}
	a.TO, a.Len = start+uint64(len(whole)-1), 2
	if mem, f := m.Check(s.Table, a); f != OutOfBounds && f != Wrap || mem != nil || m.Next() != nil {
		t.Errorf("%s, behind the end: %v, %d octets", name, f, len(mem))
	}
	if a.TO = start - 1; start != 0 {
		if mem, f := m.Check(s.Table, a); f != OutOfBounds || mem != nil || m.Next() != nil {
			t.Errorf("%s, before the beginning: %v, %d octets", name, f, len(mem))
		}
	}
	a.Len = 0
	if mem, f := m.Check(s.Table, a); f != OK || mem != nil || m.Next() != nil {
		t.Errorf("%s, no octets: %v, %d octets", name, f, len(mem))
	}
}

// tryWindow binds a window to a random part of the region.
func tryWindow(t *testing.T, luck *rand.Rand, s *stage, name string, region STag, start uint64, whole []byte, most uint32) {
	t.Helper()
	off := luck.IntN(len(whole))
	n := 1 + luck.IntN(len(whole)-off)
	window := s.bind(Binding{STag: s.window(Type1), Region: region, TO: start + uint64(off), Len: uint64(n), Rights: RemoteRead, ZeroBased: true})
	tryPages(t, luck, s, name+", window", Access{STag: window, PD: s.pd, QP: 1, Right: RemoteRead}, whole[off:off+n], most)
	if err := s.Deregister(window, s.pd); err != nil {
		t.Fatal(err)
	}
}

// The size of the list decides about the translation.
func TestTranslationBySize(t *testing.T) {
	s, heap, _ := scattered(t, Config{Entries: 64, Pages: 4096}, leafLen+1)
	for _, c := range []struct {
		name   string
		list   [][]byte
		kind   uint32
		pages  uint64
		places uint32 // of att
	}{
		{"a part of a page", [][]byte{heap[100:200]}, translationDirect, 1, 0},
		{"contiguous", [][]byte{heap[:3*pageSize-1]}, translationDirect, 3, 0},
		{"two pages", [][]byte{heap[pageSize-1 : pageSize], heap[:1]}, translationFirst, 2, 2},
		{"a leaf", [][]byte{heap[:(leafLen-1)*pageSize], heap[:1]}, translationFirst, leafLen, leafLen},
		{"one page more", [][]byte{heap[1 : leafLen*pageSize], heap[:1]}, translationSecond, leafLen + 1, leafLen + 3},
	} {
		stag := s.mustPages(c.list, pageSize, 0, RemoteRead)
		e, _ := s.at(stag)
		info, _ := s.Entry(stag.Index())
		if got := e.translation.Load() & translationKind; got != c.kind || 4096-s.runs.free != c.places {
			t.Errorf("%s: translation %d in %d places, want %d in %d", c.name, got, 4096-s.runs.free, c.kind, c.places)
		}
		if info.PageSize != pageSize || info.Pages != c.pages || info.Length != uint64(len(flat(c.list))) || info.External {
			t.Errorf("%s: %+v", c.name, info)
		}
		if err := s.Deregister(stag, s.pd); err != nil {
			t.Fatal(err)
		}
	}
}

// The arithmetic of a region of 1 TiB. The same pages stand in the list again and again,
// and no octet is touched, so that the region needs no memory.
func TestTebibyte(t *testing.T) {
	const tebi = 1 << 40
	heap, err := unix.Mmap(-1, 0, 2*MaxPageSize, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(heap)
	luck := rand.New(rand.NewPCG(7, 8))
	for _, size := range []uint64{1 << 20, 16 << 20, MaxPageSize} {
		for _, lead := range []uint64{0, 1, size - 1} {
			s := newStage(t, Config{Entries: 64, Pages: 1 << 21, Heap: heap})
			list := make([][]byte, (tebi+lead+size-1)/size)
			for i := range list {
				list[i] = heap[uint64(i)%3*(size/2):][:size]
			}
			list[0] = list[0][lead:]
			if lead != 0 {
				list[len(list)-1] = list[len(list)-1][:lead]
			}
			start := uint64(math.MaxUint64 - tebi + 1)
			stag := s.mustPages(list, size, start, RemoteRead)
			if info, _ := s.Entry(stag.Index()); info.Length != tebi || info.Pages != uint64(len(list)) || info.PageSize != size {
				t.Fatalf("%+v", info)
			}
			for i := range 3000 {
				off := luck.Uint64N(tebi)
				n := min(1+luck.Uint64N(2*size), math.MaxUint32, tebi-off)
				if i == 0 {
					off, n = tebi-1, 1
				}
				tryFar(t, s, Access{STag: stag, PD: s.pd, Right: RemoteRead, TO: start + off, Len: uint32(n)}, list, size, lead+off)
			}
			for _, c := range []struct {
				to   uint64
				n    uint32
				want Fault
			}{{start - 1, 1, OutOfBounds}, {math.MaxUint64, 2, Wrap}, {math.MaxUint64, 1, OK}, {start, math.MaxUint32, OK}} {
				if _, f := s.Check(Access{STag: stag, PD: s.pd, Right: RemoteRead, TO: c.to, Len: c.n}); f != c.want {
					t.Errorf("%d octets at %#x: %v", c.n, c.to, f)
				}
			}
		}
	}
}

// tryFar compares the pieces of an access with the pages of the list from position pos on.
func tryFar(t *testing.T, s *stage, a Access, list [][]byte, size, pos uint64) {
	t.Helper()
	var m Memo
	mem, f := m.Check(s.Table, a)
	left := uint64(a.Len)
	for ; len(mem) != 0; mem = m.Next() {
		page, in := list[pos/size], pos%size
		if pos < size {
			in -= size - uint64(len(page)) // the first page lacks its first octets
		}
		if len(mem) != int(min(left, uint64(len(page))-in)) || &mem[0] != &page[in] {
			t.Fatalf("%+v: a piece of %d octets in page %d, or elsewhere", a, len(mem), pos/size)
		}
		pos, left = pos+uint64(len(mem)), left-uint64(len(mem))
	}
	if f != OK || left != 0 {
		t.Fatalf("%+v: %v, %d octets are missing", a, f, left)
	}
}

func TestRefusedPageLists(t *testing.T) {
	s, heap, _ := scattered(t, Config{Entries: 8}, 16)
	page := heap[:pageSize]
	for name, c := range map[string]struct {
		r   Region
		say string
	}{
		"no page size":     {Region{Pages: [][]byte{page}}, "power of two"},
		"odd page size":    {Region{Pages: [][]byte{page}, PageSize: 5000}, "power of two"},
		"small page size":  {Region{Pages: [][]byte{page}, PageSize: 2048}, "4096 to 268435456"},
		"large page size":  {Region{Pages: [][]byte{page}, PageSize: 512 << 20}, "4096 to 268435456"},
		"no pages":         {Region{Pages: [][]byte{}, PageSize: pageSize}, "at least one octet"},
		"empty element":    {Region{Pages: [][]byte{page, nil, page}, PageSize: pageSize}, "element 1 is empty"},
		"part in between":  {Region{Pages: [][]byte{page, page[:100], page}, PageSize: pageSize}, "element 1 has 100 octets"},
		"two descriptions": {Region{Memory: page, Pages: [][]byte{page}, PageSize: pageSize}, "one of them"},
		"beyond the top":   {Region{Pages: [][]byte{page, page}, PageSize: pageSize, Start: math.MaxUint64 - 2*pageSize + 2}, "begin lower"},
	} {
		c.r.PD = s.pd
		_, err := s.Register(c.r)
		if rig.Says(t, err, ErrMemory, "register", c.say); s.Stats().Used != 0 {
			t.Errorf("%s: %d entries used", name, s.Stats().Used)
		}
	}
}

// Without room for the pages a registration fails and changes nothing. The room of
// deregistered lists is used again.
func TestNoRoomForPages(t *testing.T) {
	s, heap, _ := scattered(t, Config{Entries: 64, Pages: 1000}, 600)
	two := [][]byte{heap[:10*pageSize], heap[:pageSize]}
	var stags []STag
	for range 90 {
		stag, err := s.Register(Region{PD: s.pd, Pages: two, PageSize: pageSize})
		if err != nil {
			rig.Says(t, err, ErrTableFull)
			break
		}
		stags = append(stags, stag)
	}
	used := s.Stats()
	if err := s.Deregister(stags[0], s.pd); err != nil {
		t.Fatal(err)
	}
	_, err := s.Register(Region{PD: s.pd, Pages: [][]byte{heap[:510*pageSize], heap[:pageSize]}, PageSize: pageSize})
	rig.Says(t, err, ErrPagesFull, "511 pages", "318 of the table's 1000 places")
	stags[0] = s.mustPages(two, pageSize, 0, 0)
	if got := s.Stats(); got != used {
		t.Errorf("%+v, before %+v", got, used)
	}
	for _, stag := range stags {
		if err := s.Deregister(stag, s.pd); err != nil {
			t.Fatal(err)
		}
	}
	s.mustPages([][]byte{heap[:599*pageSize], heap[:pageSize]}, pageSize, 0, 0)
}

// A page list that an engine has deregistered makes room, and its memory is dropped.
func TestEngineDeregistersPages(t *testing.T) {
	s, _, external := scattered(t, Config{Entries: 8, Pages: 10}, 16)
	list := [][]byte{external[:5*pageSize], external[:3*pageSize]}
	r := s.Join()
	defer r.Close()
	for range 20 {
		stag := s.mustPages(list, pageSize, 0, RemoteRead)
		r.Enter()
		if _, f := s.StartDeregister(stag, s.pd, 1); f != OK {
			t.Fatal(f)
		}
		r.Leave()
	}
	if used := s.Stats().Used; used != 0 || s.runs.free != 10 {
		t.Errorf("%d entries are in use, and %d places are free", used, s.runs.free)
	}
	if first, _ := s.outer.at(0); first != nil {
		t.Error("the memory is kept alive")
	}
}

// A work request registers the page list that MapPages has given to an entry.
func TestMapPages(t *testing.T) {
	luck := rand.New(rand.NewPCG(11, 12))
	s, heap, external := scattered(t, Config{Entries: 8, Pages: 20}, 16)
	stag, err := s.Reserve(s.pd, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range [][][]byte{cut(luck, heap, 10, 10), {external[:50]}, cut(luck, external, 0, 1), {heap[:100]}} {
		whole := flat(list)
		if stag, err = s.MapPages(stag, s.pd, list, pageSize); err != nil {
			t.Fatal(err)
		}
		if f := s.StartRegister(&Registration{STag: stag, PD: s.pd, Start: 77, Len: uint64(len(whole) - 1), Rights: RemoteRead}); f != OK {
			t.Fatal(f)
		}
		tryPages(t, luck, s, "mapped", Access{STag: stag, PD: s.pd, Right: RemoteRead, TO: 77}, whole[:len(whole)-1], 0)
		if err := s.Invalidate(stag, s.pd); err != nil {
			t.Fatal(err)
		}
	}
	_, err = s.MapPages(stag, s.pd, [][]byte{heap[:100], heap[:100]}, 0)
	rig.Says(t, err, ErrMemory, "power of two")
	stag, err = s.MapPages(stag, s.pd, [][]byte{heap, heap}, pageSize)
	rig.Says(t, err, ErrPagesFull, "32 pages", "20 of the table's 20 places")
	if f := s.StartRegister(&Registration{STag: stag, PD: s.pd, Len: 1}); f != NoSpace {
		t.Errorf("no memory, and %v", f)
	}
	if err := s.Deregister(stag, s.pd); err != nil {
		t.Fatal(err)
	}
	if used := s.Stats().Used; used != 0 || s.runs.free != 20 {
		t.Errorf("%d entries are in use, and %d places are free", used, s.runs.free)
	}
}

// Another process can write anything into the page lists. A check then neither panics nor
// finds other memory.
func TestForeignPages(t *testing.T) {
	s, heap, external := scattered(t, Config{Entries: 64}, 700)
	luck := rand.New(rand.NewPCG(9, 10))
	for _, list := range [][][]byte{cut(luck, heap[:9*pageSize], 5, 5), cut(luck, heap, 5, 5), cut(luck, external[:9*pageSize], 5, 5)} {
		stag := s.mustPages(list, pageSize, 0, RemoteRead)
		e, _ := s.at(stag)
		known := map[*byte]bool{}
		for range 20000 {
			i := (luck.IntN(len(list)+3) + int(e.base.Load()&baseIndex)) % len(s.att)
			s.att[i].Store(luck.Uint64() >> luck.IntN(64))
			var m Memo
			a := Access{STag: stag, PD: s.pd, Right: RemoteRead, TO: luck.Uint64N(uint64(len(flat(list[:2])))), Len: uint32(1 + luck.IntN(9000))}
			for mem, _ := m.Check(s.Table, a); len(mem) != 0; mem = m.Next() {
				_, in := offsetIn(heap, mem)
				_, out := offsetIn(external, mem)
				if !in && !out {
					t.Fatal("memory that is not registered")
				}
				known[&mem[0]] = true
			}
		}
		if len(known) < 100 {
			t.Errorf("only %d pieces were found: the test does not try", len(known))
		}
	}
	if s.Refusals()[BadSTag] == 0 {
		t.Error("no access was refused")
	}
}
