package tpt

import (
	"bytes"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// lender is a stage with loans for queue pair 7.
type lender struct {
	*stage
	*Loans
}

func newLender(t testing.TB, c Config, n int) *lender {
	s := newStage(t, c)
	l, err := s.ReserveLoans(s.pd, 7, n)
	if err != nil {
		t.Fatal(err)
	}
	return &lender{s, l}
}

// can reports whether queue pair qp may access n octets of a loan, from offset off on.
func (l *lender) can(s STag, qp uint32, r Rights, off, n uint64) bool {
	_, f := l.Check(Access{STag: s, PD: l.stage.pd, QP: qp, Right: r, TO: off, Len: uint32(n)})
	return f == OK
}

// A loan is for the peer of its queue pair, for its octets, and for its direction; after
// Recall it is for nobody.
func TestLoan(t *testing.T) {
	everywhere(t, 64, func(t *testing.T, c Config) {
		l := newLender(t, c, 4)
		defer l.Release()
		buf := make([]byte, 100)
		s, err := l.Lend(2, [][]byte{buf}, RemoteWrite)
		if err != nil {
			t.Fatal(err)
		}
		mem, f := l.Check(Access{STag: s, PD: l.stage.pd, QP: 7, Right: RemoteWrite, TO: 10, Len: 90})
		if f != OK || &mem[0] != &buf[10] {
			t.Fatalf("fault %v", f)
		}
		for name, no := range map[string]bool{
			"another queue pair": l.can(s, 8, RemoteWrite, 0, 1), "a read": l.can(s, 7, RemoteRead, 0, 1),
			"behind the end": l.can(s, 7, RemoteWrite, 100, 1), "another key": l.can(NewSTag(s.Index(), s.Key()+1), 7, RemoteWrite, 0, 1),
		} {
			if no {
				t.Errorf("%s is allowed", name)
			}
		}
		l.Recall(2, false)
		if l.can(s, 7, RemoteWrite, 0, 1) {
			t.Error("a recalled loan can be used")
		}
		again, err := l.Lend(2, [][]byte{buf}, RemoteRead)
		if err != nil || again.Index() != s.Index() || again.Key() == s.Key() || l.can(s, 7, RemoteRead, 0, 1) || !l.can(again, 7, RemoteRead, 0, 100) {
			t.Errorf("STag %v behind %v, %v", again, s, err)
		}
	})
}

// The peer's Send with Invalidate ends a loan.
func TestLoanInvalidated(t *testing.T) {
	l := newLender(t, Config{Entries: 16}, 1)
	defer l.Release()
	s, err := l.Lend(0, [][]byte{make([]byte, 10)}, RemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	if _, f := l.StartInvalidate(s, l.stage.pd, 8); f == OK {
		t.Error("another queue pair ends the loan")
	}
	own := l.Join() // the engine of the queue pair, within a step
	defer own.Close()
	own.Enter()
	if k, f := l.StartInvalidate(s, l.stage.pd, 7); f != OK || k != 0 || l.can(s, 7, RemoteWrite, 0, 1) {
		t.Errorf("fault %v, ticket %d, or the loan has not ended", f, k)
	}
	if k, f := l.StartInvalidate(s, l.stage.pd, 7); f != OK || k == 0 {
		t.Errorf("fault %v, ticket %d of a loan that somebody has ended", f, k)
	}
	own.Leave()
	l.Recall(0, true)
	if _, err := l.Lend(0, [][]byte{make([]byte, 10)}, RemoteRead); err != nil {
		t.Error(err)
	}
}

// A loan of scattered memory has the octets in their order.
func TestLoanOfPieces(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		l := newLender(t, Config{Entries: 16, Pages: 1024}, 2)
		defer l.Release()
		n := rapid.IntRange(2, 6).Draw(r, "pieces")
		var pieces [][]byte
		var want []byte
		for i := range n {
			size := rapid.IntRange(1, 3).Draw(r, "pages") * MinPageSize
			if i == 0 || i == n-1 {
				size = rapid.IntRange(1, 9000).Draw(r, "octets")
			}
			p := bytes.Repeat([]byte{byte(i + 1)}, size)
			pieces, want = append(pieces, p), append(want, p...)
		}
		for range 3 {
			s, err := l.Lend(1, pieces, RemoteRead)
			if err != nil {
				t.Fatal(err)
			}
			var m Memo
			var got []byte
			mem, f := m.Check(l.Table, Access{STag: s, PD: l.stage.pd, QP: 7, Right: RemoteRead, Len: uint32(len(want))})
			for ; len(mem) != 0; mem = m.Next() {
				got = append(got, mem...)
			}
			if f != OK || !bytes.Equal(got, want) {
				t.Fatalf("fault %v, %d octets of %d", f, len(got), len(want))
			}
			l.Recall(1, false)
		}
	})
}

// Pieces that are no pages are refused, and the entries count in the domain's share.
func TestLoanRefused(t *testing.T) {
	l := newLender(t, Config{Entries: 16}, 2)
	bad := [][]byte{make([]byte, 10), make([]byte, 10), make([]byte, 10)}
	if _, err := l.Lend(0, bad, RemoteRead); !errors.Is(err, ErrMemory) {
		t.Errorf("pieces of 10 octets: %v", err)
	}
	if _, err := l.Lend(0, [][]byte{{}}, RemoteRead); !errors.Is(err, ErrMemory) {
		t.Errorf("no octets: %v", err)
	}
	if _, err := l.ReserveLoans(l.stage.pd, 1, 1000); !errors.Is(err, ErrTableFull) {
		t.Errorf("1000 loans: %v", err)
	}
	free := l.Stats().Used
	l.Release()
	l.Release()
	if now := l.Stats().Used; now != free-2 {
		t.Errorf("%d entries are used, before %d", now, free)
	}
	if err := l.FreePD(l.stage.pd); err != nil {
		t.Error(err)
	}
}

// A loan of one piece allocates nothing.
func TestLoanAllocatesNothing(t *testing.T) {
	l := newLender(t, Config{Entries: 16}, 1)
	defer l.Release()
	mem := [][]byte{make([]byte, 4096)}
	n := testing.AllocsPerRun(100, func() {
		if _, err := l.Lend(0, mem, RemoteWrite); err != nil {
			t.Fatal(err)
		}
		l.Recall(0, false)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// When Recall has returned, no step writes to the memory any more.
func TestRecallWaits(t *testing.T) {
	l := newLender(t, Config{Entries: 16}, 1)
	defer l.Release()
	var wg sync.WaitGroup
	var mu sync.Mutex // guards now
	var now STag
	stop := make(chan struct{})
	reader := l.Join()
	defer reader.Close()
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			mu.Lock()
			s := now
			mu.Unlock()
			reader.Enter()
			if mem, f := l.Check(Access{STag: s, PD: l.stage.pd, QP: 7, Right: RemoteWrite, Len: 64}); f == OK {
				for i := range mem {
					mem[i]++
				}
			}
			reader.Leave()
		}
	})
	for range 2000 {
		buf := make([]byte, 64)
		s, err := l.Lend(0, [][]byte{buf}, RemoteWrite)
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		now = s
		mu.Unlock()
		l.Recall(0, false)
		clear(buf) // the race detector, and the comparison, find a late write
		if !bytes.Equal(buf, make([]byte, 64)) {
			t.Fatal("a late write")
		}
	}
	close(stop)
	wg.Wait()
}

// Replace moves a loan to other memory while the peer uses it: no access is refused, and
// none reaches the old memory afterwards. The old memory may be in the heap or not.
func TestLoanReplaced(t *testing.T) {
	for _, heap := range []bool{false, true} {
		l := newLender(t, Config{Entries: 16}, 1)
		reader := l.Join()
		var wg sync.WaitGroup
		var now atomic.Uint32
		stop := make(chan struct{})
		wg.Go(func() {
			var m Memo
			for {
				select {
				case <-stop:
					return
				default:
				}
				reader.Enter()
				s := STag(now.Load())
				mem, f := m.Check(l.Table, Access{STag: s, PD: l.stage.pd, QP: 7, Right: RemoteWrite, Len: 64})
				for i := range mem {
					mem[i]++
				}
				if same := STag(now.Load()) == s; f != OK && s != 0 && same {
					t.Errorf("an access is refused: %v", f)
				}
				reader.Leave()
			}
		})
		for range 1000 {
			buf := make([]byte, 64)
			if heap {
				buf = l.heap[:64]
			}
			s, err := l.Lend(0, [][]byte{buf}, RemoteWrite)
			if err != nil {
				t.Fatal(err)
			}
			now.Store(uint32(s))
			if !l.Replace(0, make([]byte, 64)) {
				t.Fatal("not replaced")
			}
			clear(buf)
			runtime.Gosched()
			if !bytes.Equal(buf, make([]byte, 64)) {
				t.Fatal("a late write")
			}
			now.Store(0)
			l.Recall(0, false)
		}
		close(stop)
		wg.Wait()
		if l.Replace(0, make([]byte, 64)) {
			t.Error("a loan that has ended is replaced")
		}
		reader.Close()
		l.Release()
	}
}

// Replace moves a loan of several pages to other memory while the peer uses it: no access is
// refused, none reaches the old memory afterwards, and the octets are in their order.
func TestLoanOfPiecesReplaced(t *testing.T) {
	const most = (leafLen + 40) * MinPageSize
	l := newLender(t, Config{Entries: 16, Heap: make([]byte, most), Pages: 2048}, 1)
	defer l.Release()
	outer := make([]byte, most)
	for name, pieces := range map[string][][]byte{
		"in the heap":  {l.heap[:1000], l.heap[MinPageSize : 3*MinPageSize], l.heap[5*MinPageSize:][:77]},
		"outside":      {outer[:1000], outer[MinPageSize : 3*MinPageSize], outer[5*MinPageSize:][:77]},
		"mixed":        {outer[:1000], l.heap[MinPageSize : 3*MinPageSize], outer[5*MinPageSize:][:77]},
		"second level": {outer[:1000], l.heap[MinPageSize : (leafLen+30)*MinPageSize], outer[5*MinPageSize:][:77]},
	} {
		t.Run(name, func(t *testing.T) {
			size := 0
			for _, p := range pieces {
				size += len(p)
			}
			reader := l.Join()
			var now atomic.Uint32
			var wg sync.WaitGroup
			stop := make(chan struct{})
			defer func() {
				close(stop)
				wg.Wait()
				reader.Close()
			}()
			wg.Go(func() { countUp(t, l, reader, &now, uint32(size), stop) })
			for range 100 {
				s, err := l.Lend(0, pieces, RemoteWrite)
				if err != nil {
					t.Fatal(err)
				}
				now.Store(uint32(s))
				fresh := make([]byte, size)
				if !l.Replace(0, fresh) {
					t.Fatal("not replaced")
				}
				now.Store(0)
				for _, p := range pieces {
					clear(p)
				}
				runtime.Gosched()
				for _, p := range pieces {
					if bytes.Count(p, []byte{0}) != len(p) {
						t.Fatal("a late write")
					}
				}
				l.inOrder(t, s, fresh)
				l.Recall(0, false)
			}
		})
	}
	if l.runs.free != 2048 {
		t.Errorf("%d of 2048 places are free", l.runs.free)
	}
}

// countUp adds one to all octets of the loan that now has, again and again.
func countUp(t *testing.T, l *lender, reader *Reader, now *atomic.Uint32, size uint32, stop chan struct{}) {
	var m Memo
	for {
		select {
		case <-stop:
			return
		default:
		}
		reader.Enter()
		s := STag(now.Load())
		mem, f := m.Check(l.Table, Access{STag: s, PD: l.stage.pd, QP: 7, Right: RemoteWrite, Len: size})
		got := 0
		for ; len(mem) != 0; mem = m.Next() {
			got += len(mem)
			for i := range mem {
				mem[i]++
			}
		}
		if same := STag(now.Load()) == s; s != 0 && same && (f != OK || got != int(size)) {
			t.Errorf("an access is refused: %v, %d octets", f, got)
		}
		reader.Leave()
	}
}

// inOrder fails unless the octets of a loan are those of mem.
func (l *lender) inOrder(t *testing.T, s STag, mem []byte) {
	t.Helper()
	var m Memo
	at := 0
	piece, f := m.Check(l.Table, Access{STag: s, PD: l.stage.pd, QP: 7, Right: RemoteWrite, Len: uint32(len(mem))})
	for ; len(piece) != 0; piece = m.Next() {
		if &piece[0] != &mem[at] {
			t.Fatalf("octet %d is elsewhere", at)
		}
		at += len(piece)
	}
	if f != OK || at != len(mem) {
		t.Fatalf("%v, %d octets of %d", f, at, len(mem))
	}
}
