package memgroup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/tpt"
)

func (m *member) write(s tpt.STag, n uint32) ([]byte, tpt.Fault) {
	return m.table.Check(tpt.Access{STag: s, PD: pool, Right: tpt.RemoteWrite, Len: n})
}

// Many questions at the same time are one. A list may need several packets. Regions that
// are made later need no question.
func TestResolve(t *testing.T) {
	a, b := newMember(t, io.Discard), newMember(t, io.Discard)
	var last tpt.STag
	mem, first := a.region(t, 4096)
	for range maxItems + 100 {
		s, err := a.table.Register(tpt.Region{PD: pool, Memory: mem, Rights: rights})
		rig.Must(t, err)
		last = s
	}
	if _, f := b.write(first, 8); f != tpt.Unresolved {
		t.Fatalf("before: %v", f)
	}
	var wait sync.WaitGroup
	var refused atomic.Int32
	for i := range 50 {
		wait.Go(func() {
			s := first
			if i%2 == 0 {
				s = last
			}
			if !b.resolve(s) {
				refused.Add(1)
			}
		})
	}
	wait.Wait()
	got, f := b.write(first, 8)
	if f != tpt.OK || refused.Load() != 0 {
		t.Fatalf("%v, %d refused", f, refused.Load())
	}
	if got[3] = 42; mem[3] != 42 {
		t.Error("the octets are not the owner's")
	}
	if _, f := b.write(last, 8); f != tpt.OK {
		t.Errorf("the last of the list: %v", f)
	}
	_, later := a.region(t, 8192)
	if _, f := b.write(later, 8); f != tpt.OK {
		t.Errorf("a later one: %v", f)
	}
	if c := b.Counters(); c.Asked != 1 || c.Mapped != 1 {
		t.Errorf("%+v", c)
	}
	if c := a.Counters(); c.Answered != 1 || c.Asked != 0 {
		t.Errorf("the owner: %+v", c)
	}
	// Both directions.
	_, back := b.region(t, 4096)
	if !a.resolve(back) {
		t.Error("the other direction")
	}
	if _, f := a.write(back, 8); f != tpt.OK {
		t.Errorf("the other direction: %v", f)
	}
}

// Memory that cannot be shared is refused by name. An STag that is not there is refused as absent.
func TestResolveRefused(t *testing.T) {
	var log bytes.Buffer
	a, b := newMember(t, io.Discard), newMember(t, &log)
	own, err := a.table.Register(tpt.Region{PD: pool, Memory: make([]byte, 64), Rights: rights})
	rig.Must(t, err)
	_, gone := a.region(t, 64)
	rig.Must(t, a.table.Deregister(gone, pool))
	_, mine := b.region(t, 64)
	for name, s := range map[string]tpt.STag{
		"deregistered":   gone,
		"free":           tpt.NewSTag(uint32(a.table.Stats().First+1000), 7),
		"own":            mine,
		"beyond":         tpt.NewSTag(1<<24-1, 0),
		"nobody's range": tpt.NewSTag(15*1024+3, 0),
	} {
		if b.resolve(s) {
			t.Errorf("%s was resolved", name)
		}
	}
	if log.Reset(); b.resolve(own) {
		t.Error("memory of the Go heap was resolved")
	}
	b.mu.Lock()
	b.grumbled = b.grumbled.Add(-2 * grumbleEvery)
	b.mu.Unlock()
	if b.resolve(own) || !strings.Contains(log.String(), "use AllocMR") {
		t.Errorf("the log says %q", log.String())
	}
	if c := b.Counters(); c.NotShareable != 2 || c.Absent != 4 || c.Mapped != 0 {
		t.Errorf("%+v", c)
	}
	if n := b.table.Refusals()[tpt.Unresolved]; n != 6 {
		t.Errorf("%d accesses count as unresolved", n)
	}
}

// An owner that leaves takes its memory with it. One that comes after it is asked anew.
func TestOwnerLeaves(t *testing.T) {
	b := newMember(t, io.Discard)
	var old tpt.STag
	for round := range 3 {
		t.Run("owner", func(t *testing.T) {
			a := newNamedMember(t, b.registry.name, io.Discard)
			_, s := a.region(t, 4096)
			if round > 0 && b.resolve(old) {
				t.Error("an STag of the owner before was resolved")
			}
			if !b.resolve(s) {
				t.Fatal("not resolved")
			}
			if _, f := b.write(s, 8); f != tpt.OK {
				t.Error(f)
			}
			old = s
		})
		rig.Eventually(t, "the memory is dropped", func() bool { return b.Counters().Dropped == uint64(round+1) })
		if _, f := b.write(old, 8); f == tpt.OK {
			t.Error("memory of an owner that has left is used")
		}
	}
	if b.resolve(old) {
		t.Error("resolved, and the owner has left")
	}
}

// liar is an owner that tells lies.
type liar struct {
	owner  uint16
	size   uint64 // of the heap, as it says
	items  []Item
	file   func(t *testing.T) *os.File
	files  int
	packet func([][]byte) [][]byte // changes the packets
	none   bool                    // closes without an answer
}

func memfd(t *testing.T, size int64, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	rig.Must(t, err)
	f := os.NewFile(uintptr(fd), "test")
	rig.Must(t, f.Truncate(size))
	if seals != 0 {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
		rig.Must(t, err)
	}
	return f
}

// A hostile owner's answer is refused, whatever is wrong with it, and nothing is mapped or
// left open.
func TestLies(t *testing.T) {
	const mib = 1 << 20
	sealed := func(t *testing.T) *os.File { return memfd(t, mib, unix.F_SEAL_SHRINK) }
	item := func(offset, length uint64) []Item {
		return []Item{{STag: 0x1234, PD: pool, Rights: rights, Offset: offset, Length: length}}
	}
	good := liar{owner: 7, size: mib, items: item(4096, 4096), file: sealed, files: 1}
	cases := map[string]func(*liar){
		"truth":            func(*liar) {},
		"short file":       func(l *liar) { l.file = func(t *testing.T) *os.File { return memfd(t, mib-4096, unix.F_SEAL_SHRINK) } },
		"empty file":       func(l *liar) { l.file = func(t *testing.T) *os.File { return memfd(t, 0, unix.F_SEAL_SHRINK) } },
		"not sealed":       func(l *liar) { l.file = func(t *testing.T) *os.File { return memfd(t, mib, 0) } },
		"only sealed grow": func(l *liar) { l.file = func(t *testing.T) *os.File { return memfd(t, mib, unix.F_SEAL_GROW) } },
		"no file":          func(l *liar) { l.files = 0 },
		"two files":        func(l *liar) { l.files = 2 },
		"twenty files":     func(l *liar) { l.files = 20 },
		"a directory":      func(l *liar) { l.file = opened("/") },
		"a device":         func(l *liar) { l.file = opened("/dev/zero") },
		"an ordinary file": func(l *liar) { l.file = ordinary(mib) },
		"a longer heap":    func(l *liar) { l.size = 2 * mib },
		"an endless heap":  func(l *liar) { l.size = 1 << 63 },
		"no heap":          func(l *liar) { l.size = 0; l.items = nil },
		"an odd heap":      func(l *liar) { l.size = mib - 1 },
		"outside":          func(l *liar) { l.items = item(mib-4096, 8192) },
		"behind":           func(l *liar) { l.items = item(mib, 1) },
		"around":           func(l *liar) { l.items = item(1<<64-4096, 8192) },
		"no octets":        func(l *liar) { l.items = item(0, 0) },
		"private domain":   func(l *liar) { l.items[0].PD = 5 },
		"unknown reason":   func(l *liar) { l.items[0].Why = 200 },
		"another member":   func(l *liar) { l.owner = 8 },
		"too many":         func(l *liar) { l.items = make([]Item, 5000) },
		"no answer":        func(l *liar) { l.none = true },
		"half an answer":   func(l *liar) { l.packet = func(p [][]byte) [][]byte { return [][]byte{p[0][:30]} } },
		"another version":  func(l *liar) { l.packet = func(p [][]byte) [][]byte { p[0][4] = 9; return p } },
		"another protocol": func(l *liar) { l.packet = func([][]byte) [][]byte { return [][]byte{[]byte("HTTP/1.1 200 OK")} } },
		"a question":       func(l *liar) { l.packet = func(p [][]byte) [][]byte { p[0][5] = kindQuestion; return p } },
		"a wrong count":    func(l *liar) { l.packet = func(p [][]byte) [][]byte { p[0][11]++; return p } },
		"a wrong total":    func(l *liar) { l.packet = func(p [][]byte) [][]byte { p[0][15]++; return p } },
		"never the last":   func(l *liar) { l.packet = func(p [][]byte) [][]byte { p[0][7] = 0; return p } },
		"a long packet": func(l *liar) {
			l.packet = func(p [][]byte) [][]byte { return [][]byte{append(p[0], make([]byte, maxPacket)...)} }
		},
		"two different":     func(l *liar) { l.packet = different },
		"files in the tail": func(l *liar) { l.packet = func(p [][]byte) [][]byte { return append([][]byte{{}}, p...) } },
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			rig.NoLeaks(t)
			l := good
			l.items = append([]Item(nil), good.items...)
			change(&l)
			path := filepath.Join(t.TempDir(), "s")
			defer l.listen(t, path)()
			a, err := ask(path, 7, os.Getpid(), 1000)
			if name == "truth" {
				rig.Must(t, err)
				mem, err := a.mapHeap()
				rig.Must(t, err)
				rig.Check(t, unix.Munmap(mem))
				a.close()
				return
			}
			if err == nil {
				a.close()
				t.Fatal("it was believed")
			}
			if !errors.Is(err, ErrLies) && !errors.Is(err, ErrGone) {
				t.Error(err)
			}
		})
	}
}

// different returns two packets whose heads say different things.
func different([][]byte) [][]byte {
	p := packets(7, 1<<20, make([]Item, 0))
	h := head{kind: kindAnswer, owner: 7, count: 1, total: 2, heap: 1 << 20}
	i := Item{STag: 1, PD: pool, Offset: 0, Length: 1}
	one := i.append(h.append(nil))
	h.heap, h.last = 2<<20, true
	two := i.append(h.append(nil))
	return append(p[:0], one, two)
}

func opened(path string) func(*testing.T) *os.File {
	return func(t *testing.T) *os.File {
		f, err := os.Open(path)
		rig.Must(t, err)
		return f
	}
}

func ordinary(size int64) func(*testing.T) *os.File {
	return func(t *testing.T) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), "f"))
		rig.Must(t, err)
		rig.Must(t, f.Truncate(size))
		return f
	}
}

// listen answers one caller at path.
func (l *liar) listen(t *testing.T, path string) (stop func()) {
	t.Helper()
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	rig.Must(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := listener.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		question := make([]byte, 100)
		n, err := c.Read(question)
		if err != nil || n != headLen || l.none {
			return
		}
		l.answer(t, c)
		c.Read(question) // until the other end closes
	}()
	return func() { listener.Close(); <-done }
}

func (l *liar) answer(t *testing.T, c *net.UnixConn) {
	f := l.file(t)
	defer f.Close()
	var fds []int
	for range l.files {
		fds = append(fds, int(f.Fd()))
	}
	all := packets(l.owner, l.size, l.items)
	if l.packet != nil {
		all = l.packet(all)
	}
	var rights []byte
	if len(fds) != 0 {
		rights = unix.UnixRights(fds...)
	}
	for _, p := range all {
		c.WriteMsgUnix(p, rights, nil)
		rights = nil
	}
}

// An answer of another process than the registry's is not asked for.
func TestImpostor(t *testing.T) {
	l := liar{owner: 7, size: 4096, file: func(t *testing.T) *os.File { return memfd(t, 4096, unix.F_SEAL_SHRINK) }, files: 1}
	path := filepath.Join(t.TempDir(), "s")
	defer l.listen(t, path)()
	if _, err := ask(path, 7, os.Getpid()+1, 1000); !errors.Is(err, ErrLies) {
		t.Error(err)
	}
	if _, err := ask(path+"x", 7, os.Getpid(), 1000); !errors.Is(err, ErrGone) {
		t.Error(err)
	}
}

// A caller that asks no question gets no answer, and the owner goes on.
func TestBadQuestions(t *testing.T) {
	a, b := newMember(t, io.Discard), newMember(t, io.Discard)
	path := a.registry.socket(a.seat.index)
	h := head{kind: kindQuestion, last: true}
	for name, packet := range map[string][]byte{
		"short":   h.append(nil)[:20],
		"long":    append(h.append(nil), 1, 2, 3),
		"answer":  packets(3, 4096, nil)[0],
		"garbage": bytes.Repeat([]byte{0xff}, headLen),
	} {
		c, err := net.Dial("unixpacket", path)
		rig.Must(t, err)
		_, err = c.Write(packet)
		rig.Must(t, err)
		if n, err := c.Read(make([]byte, maxPacket)); n != 0 || err == nil {
			t.Errorf("%s: %d octets, %v", name, n, err)
		}
		c.Close()
	}
	_, s := a.region(t, 64)
	if !b.resolve(s) {
		t.Error("the owner does not answer any more")
	}
}

// An owner that changes the table under the others cannot make them access anything but its
// heap.
func TestLyingTable(t *testing.T) {
	a, b := newMember(t, io.Discard), newMember(t, io.Discard)
	_, s := a.region(t, 4096)
	if !b.resolve(s) {
		t.Fatal("not resolved")
	}
	entry := a.memory.Memory()[int(s.Index())*tpt.EntryLen:][:tpt.EntryLen]
	binary.NativeEndian.PutUint64(entry[24:], 1<<20-8) // base
	if _, f := b.write(s, 8); f != tpt.Unresolved {
		t.Errorf("memory behind the heap: %v", f)
	}
	if b.resolve(s) {
		t.Error("memory behind the heap was resolved")
	}
	if b.Counters().BadAnswers != 1 {
		t.Errorf("%+v", b.Counters())
	}
	binary.NativeEndian.PutUint64(entry[24:], 0)
	if mem, f := b.write(s, 8); f != tpt.OK || len(mem) != 8 {
		t.Errorf("%v", f)
	}
}
