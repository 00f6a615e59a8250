package work

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/tpt"
)

var ne = binary.NativeEndian

// twice maps n octets of shared memory at two places, as two processes do.
func twice(t *testing.T, n int) (one, other []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("ring", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	mapped := func() []byte {
		mem, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(mem) }) // the process ends anyway
		return mem
	}
	return mapped(), mapped()
}

// The structs lie as the drawing in layout.go says.
func TestLayout(t *testing.T) {
	offsets := func(v any) string {
		var b strings.Builder
		s := reflect.TypeOf(v)
		for i := range s.NumField() {
			if f := s.Field(i); f.Name != "_" {
				b.WriteString(f.Name + " ")
				b.WriteString(string(ne.AppendUint16(nil, uint16(f.Offset))))
			}
		}
		return b.String()
	}
	want := func(pairs ...any) string {
		var b strings.Builder
		for i := 0; i < len(pairs); i += 2 {
			b.WriteString(pairs[i].(string) + " ")
			b.WriteString(string(ne.AppendUint16(nil, uint16(pairs[i+1].(int)))))
		}
		return b.String()
	}
	for name, c := range map[string]struct {
		v    any
		size uintptr
		want string
	}{
		"ends":      {queueEnds{}, 192, want("tail", 0, "done", 64, "waits", 72, "shape", 128)},
		"cq ends":   {cqEnds{}, 192, want("head", 0, "armed", 8, "overrun", 64, "shape", 128)},
		"shape":     {shape{}, 20, want("version", 0, "depth", 4, "slot", 8, "elements", 12, "inline", 16)},
		"send slot": {sendSlot{}, 32, want("id", 0, "remote", 8, "rkey", 16, "invalidate", 20, "length", 24, "op", 28, "flags", 29, "elements", 30, "inline", 31)},
		"recv slot": {recvSlot{}, 16, want("id", 0, "elements", 8, "free", 12)},
		"element":   {SGE{}, 16, want("Addr", 0, "Length", 8, "LKey", 12)},
		"cell":      {cell{}, 32, want("seq", 0, "id", 8, "op", 16, "status", 17, "solicited", 18, "imm", 19, "invalidated", 20, "length", 24, "qp", 28)},
	} {
		s := reflect.TypeOf(c.v)
		size := s.Size()
		if name == "ends" || name == "cq ends" {
			size = (size + lineLen - 1) &^ (lineLen - 1)
		}
		if size != c.size || offsets(c.v) != c.want {
			t.Errorf("%s: %d octets, fields %q; want %d, %q", name, size, offsets(c.v), c.size, c.want)
		}
	}
}

// A posted request lies at the documented offsets, seen through another mapping.
func TestPostedOctets(t *testing.T) {
	n := SendRingLen(3, 2, 20)
	if n != 192+4*64 {
		t.Fatalf("a send ring has %d octets", n)
	}
	one, other := twice(t, n)
	ring, err := NewSendRing(one, 3, 2, 20)
	if err != nil {
		t.Fatal(err)
	}
	var q SendQueue
	q.Init(ring, 3, 2, 20)
	q.Post([]SendWR{
		{ID: 0x1122334455667788, Op: WRWrite, Flags: Signaled, RemoteAddr: 9, RKey: 10, SGL: []SGE{{1, 2, 3}, {4, 5, 6}}},
		{ID: 7, Op: WRSendInvalidate, Invalidate: 8, Inline: []byte("inline data")},
	})
	u32 := func(at int) int { return int(ne.Uint32(other[at:])) }
	done := func() uint64 { return ne.Uint64(other[64:]) }
	for at, want := range map[int]int{
		0: 2, 128: LayoutVersion, 132: 3, 136: 64, 140: 2, 144: 20,
		192: 0x55667788, 196: 0x11223344, 200: 9, 208: 10, 212: 0, 216: 0, 220: 0 | 2<<8 | 2<<16,
		224: 1, 232: 2, 236: 3, 240: 4, 248: 5, 252: 6,
		256: 7, 276: 8, 280: 11, 284: 9 | 1<<24,
	} {
		if u32(at) != want {
			t.Errorf("at %d: %#x, want %#x", at, u32(at), want)
		}
	}
	if got := string(other[288:][:11]); got != "inline data" {
		t.Errorf("inline: %q", got)
	}
	if done() != 0 {
		t.Errorf("done %#x before any request has completed", done())
	}
	for q.Posted() {
		q.Begin()
	}
	q.Pop()
	q.GiveBack(1, 2)
	if done() != 1<<32+2 {
		t.Errorf("done %#x, want silent 1 and head 2", done())
	}

	one, other = twice(t, RecvRingLen(2, 3))
	if ring, err = NewRecvRing(one, 2, 3); err != nil {
		t.Fatal(err)
	}
	var r RecvQueue
	r.Init(ring, 2, 3)
	r.Post([]RecvWR{{ID: 1}, {ID: 2, SGL: []SGE{{3, 4, 5}}}})
	for at, want := range map[int]int{0: 2, 136: 64, 192: 1, 200: 0, 256: 2, 264: 1, 272: 3, 280: 4, 284: 5} {
		if u32(at) != want {
			t.Errorf("receive ring at %d: %#x, want %#x", at, u32(at), want)
		}
	}
	if r.Pop(); done() != 1 {
		t.Errorf("done %#x, want silent 0 and head 1", done())
	}
}

// A completion ring is polled through another mapping, by its octets alone.
func TestPolledElsewhere(t *testing.T) {
	one, other := twice(t, CQRingLen(4))
	c, err := NewCQIn(one, 4, new(signal.Board))
	if err != nil {
		t.Fatal(err)
	}
	fired := 0
	c.News.Fire = func() { fired++ }
	for at, want := range map[int]uint32{128: LayoutVersion, 132: 4, 136: 32, 140: 0, 144: 0} {
		if got := ne.Uint32(other[at:]); got != want {
			t.Errorf("at %d: %d, want %d", at, got, want)
		}
	}
	var p Places
	for pos := range uint64(40) {
		w := Completion{ID: pos * 1000, Op: WCRecv, Status: Flushed, Solicited: true, Invalidated: 7, Length: 8, QP: 9}
		if !c.Push(&p, w, true) {
			t.Fatalf("completion %d was lost", pos)
		}
		cell := other[192+pos%4*32:]
		got := Completion{
			ID: ne.Uint64(cell[8:]), Op: WCOp(cell[16]), Status: Status(cell[17]), Solicited: cell[18] == 1,
			Invalidated: tpt.STag(ne.Uint32(cell[20:])), Length: ne.Uint32(cell[24:]), QP: ne.Uint32(cell[28:]),
		}
		if ne.Uint64(cell) != pos+1 || got != w {
			t.Fatalf("cell %d: seq %d, %+v", pos, ne.Uint64(cell), got)
		}
		ne.PutUint64(other, pos+1)
	}
	ne.PutUint32(other[8:], 2)
	c.Push(&p, Completion{}, false)
	if c.board.Deliver(); fired != 1 || ne.Uint32(other[8:]) != 0 {
		t.Errorf("armed for all: %d news, %d left", fired, ne.Uint32(other[8:]))
	}
	for range 3 {
		c.Push(&p, Completion{}, false)
	}
	if ne.Uint32(other[64:]) != 0 || c.Push(&p, Completion{}, false) || ne.Uint32(other[64:]) != 1 || !c.Overrun() {
		t.Errorf("overrun: %d, %v", ne.Uint32(other[64:]), c.Overrun())
	}
}

// A poller that stores an impossible position overruns its own CQ. No pusher waits for
// it.
func TestPollerLies(t *testing.T) {
	for _, lie := range []uint64{1, 5, 1 << 32, 1<<64 - 1, 1<<64 - 5} {
		one, other := twice(t, CQRingLen(4))
		c, err := NewCQIn(one, 4, new(signal.Board))
		if err != nil {
			t.Fatal(err)
		}
		c.News.Fire = func() {}
		ne.PutUint64(other, lie)
		kept := 0
		for range 20 {
			if c.Push(new(Places), Completion{}, true) {
				kept++
			}
		}
		if !c.Overrun() || kept > 5 {
			t.Errorf("head %#x: overrun %v, %d completions kept", lie, c.Overrun(), kept)
		}
	}
}

// A tail that moves back, or beyond the depth, breaks the queue for good: no further
// request is started. A slot that changes after it has been copied has no effect.
func TestPosterLies(t *testing.T) {
	for _, c := range []struct{ tail, next uint32 }{{9, 0}, {1 << 31, 0}, {1<<32 - 1, 0}, {0, 2}, {1, 2}, {10, 2}} {
		one, other := twice(t, SendRingLen(8, 1, 0))
		ring, err := NewSendRing(one, 8, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		var q SendQueue
		q.Init(ring, 8, 1, 0)
		q.Post([]SendWR{{ID: 1, SGL: []SGE{{1, 2, 3}}}, {ID: 2}})
		for range c.next {
			w := q.Next()
			clear(other[slotsAt:])
			pos := q.Begin()
			if pos == 0 && (q.At(0).ID != 1 || w.SGL[0] != SGE{1, 2, 3}) {
				t.Errorf("the copy has changed: %+v", *w)
			}
			q.GiveBack(pos, pos) // nothing
		}
		ne.PutUint32(other, c.tail)
		if q.Posted() || !q.Broken() {
			t.Errorf("tail %d behind %d: posted %v, broken %v", c.tail, c.next, q.Posted(), q.Broken())
		}
		if ne.PutUint32(other, c.next+1); q.Posted() {
			t.Errorf("tail %d behind %d: works again", c.tail, c.next)
		}
	}
	one, other := twice(t, RecvRingLen(8, 1))
	ring, err := NewRecvRing(one, 8, 1)
	if err != nil {
		t.Fatal(err)
	}
	var q RecvQueue
	q.Init(ring, 8, 1)
	q.Post([]RecvWR{{ID: 1}, {ID: 2}})
	other[slotsAt+8] = 2 // elements
	if w := q.Front(); w == nil || !w.Bad || w.ID != 1 {
		t.Errorf("two elements where there is room for one: %+v", w)
	}
	q.Pop()
	if ne.PutUint32(other, 0); q.Front() != nil || !q.Broken() {
		t.Error("a tail behind head was believed")
	}
}

// Memory that is too short, too long or not aligned is refused.
func TestMemoryRefused(t *testing.T) {
	mem := lines(SendRingLen(4, 1, 0) + lineLen)
	n := SendRingLen(4, 1, 0)
	for name, m := range map[string][]byte{"short": mem[:n-1], "long": mem[:n+1], "unaligned": mem[8:][:n], "none": nil} {
		if _, err := NewSendRing(m, 4, 1, 0); err == nil || !strings.Contains(err.Error(), "give it") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := NewSendRing(mem[:n], 4, 1, 0); err != nil {
		t.Error(err)
	}
	for _, bad := range [][3]int{{0, 1, 0}, {1, 256, 0}, {1, 1, -1}, {1<<30 + 1, 1, 0}} {
		if _, err := NewSendRing(mem, bad[0], bad[1], bad[2]); err == nil {
			t.Errorf("%v was accepted", bad)
		}
	}
	for inline, want := range map[int]string{1 << 16: "", 1<<16 + 1: "at most 65536 octets inline"} {
		_, err := NewSendRing(lines(SendRingLen(1, 1, inline)), 1, 1, inline)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%d octets inline: %v", inline, err)
		}
	}
	// The length of this ring overflows to 320 octets.
	if n := SendRingLen(4, 1, 1<<62); n != 320 {
		t.Fatalf("a send ring with 2^62 octets inline has %d octets", n)
	}
	if _, err := NewSendRing(mem[:320], 4, 1, 1<<62); err == nil || !strings.Contains(err.Error(), "at most 65536 octets inline") {
		t.Errorf("a ring whose length overflows: %v", err)
	}
	if _, err := NewRecvRing(mem[:n], 4, 9); err == nil {
		t.Error("a receive ring of another length was accepted")
	}
	if _, err := NewCQIn(mem[:n], 4, nil); err == nil {
		t.Error("a completion ring of another length was accepted")
	}
}

// The word waits lies at the documented offset. A queue of one QP sets and clears it. A
// shared queue sets it for each QP, and clears it when somebody wakes them.
func TestWaitsInRing(t *testing.T) {
	one, other := twice(t, RecvRingLen(4, 1))
	waits := func(want uint32) {
		t.Helper()
		if got := ne.Uint32(other[72:]); got != want {
			t.Errorf("waits is %d, want %d", got, want)
		}
	}
	ring, err := NewRecvRing(one, 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	var own RecvQueue
	own.Init(ring, 4, 1)
	waits(0)
	own.Wait(true)
	waits(1)
	own.Wait(false)
	waits(0)

	var shared SharedQueue
	shared.Init(ring, 4, 1, new(signal.Board))
	var x, y RecvQueue
	x.Share(&shared)
	y.Share(&shared)
	x.Wait(true)
	y.Wait(true)
	y.Wait(false)
	waits(1)
	if !shared.TakeWaits() || shared.TakeWaits() {
		t.Error("the waits are not taken once")
	}
	waits(0)
	var none RecvQueue // without a ring nothing happens
	none.Init(nil, 4, 1)
	none.Wait(true)
}

// A state of the version before has the same work requests, and an older one has not.
func TestStatesOfOtherLayouts(t *testing.T) {
	var q RecvQueue
	q.Init(nil, 4, 1)
	q.Post([]RecvWR{{ID: 5}})
	for layout, good := range map[uint32]bool{1: false, 2: true, LayoutVersion: true, LayoutVersion + 1: false} {
		s := q.Export()
		s.Layout = layout
		var again RecvQueue
		again.Init(nil, 4, 1)
		if err := again.Import(&s); (err == nil) != good {
			t.Errorf("layout %d: %v", layout, err)
		} else if good && again.Front().ID != 5 {
			t.Errorf("layout %d: receive %d", layout, again.Front().ID)
		}
	}
}
