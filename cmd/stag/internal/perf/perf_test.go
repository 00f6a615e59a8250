package perf

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// small returns the options with which every case begins.
func small(t Test) Options {
	return Options{Test: t, KernelPort: true, Address: "127.0.0.1", Size: 100, Iterations: 10, QPs: 1, TxDepth: 4, RxDepth: 6, Verify: true}
}

// newNotes returns a lane of a runner that is not connected.
func newNotes(t *testing.T, o Options) *notes {
	t.Helper()
	a, err := rdma.Open(rdma.Config{KernelPort: true, RegionHeap: o.heap()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	p := &stagPeer{run: &runner{Options: o, adapter: a, interrupted: func() bool { return false }}}
	p.run.peer = p
	if err := p.makeLanes(); err != nil {
		t.Fatal(err)
	}
	p.notes[0].start(1, o.Size)
	return p.notes[0]
}

// TestVerify: verify finds a wrong octet anywhere, and an old message in the place of a new one.
func TestVerify(t *testing.T) {
	for _, test := range Tests {
		x := newNotes(t, small(test))
		for n := range uint64(9) {
			at := x.offset(n)
			got := x.in.Bytes()[at:][:x.l.size]
			x.pattern(true).Fill(got, x.place(n))
			if err := x.verify(n, at); err != nil {
				t.Errorf("%s: message %d: %v", test, n, err)
			}
			for _, i := range []int{0, 57, x.l.size - 1} {
				got[i] ^= 4
				if err := x.verify(n, at); err == nil || !strings.Contains(err.Error(), "is not what was sent") {
					t.Errorf("%s: octet %d of message %d is wrong, and the check says %v", test, i, n, err)
				}
				got[i] ^= 4
			}
			if err := x.verify(n+4, at); test.op() != rdma.WRRead && err == nil {
				t.Errorf("%s: message %d passes for %d", test, n, n+4)
			}
		}
	}
}

// TestVerifyEndOfWrites: all slots that the last Writes left are compared.
func TestVerifyEndOfWrites(t *testing.T) {
	const count = 10
	x := newNotes(t, small(WriteBW))
	for n := range uint64(count) {
		x.pattern(true).Fill(x.in.Bytes()[x.offset(n):][:x.l.size], x.place(n))
	}
	if err := x.checkWritten(count); err != nil {
		t.Error(err)
	}
	for n := uint64(count - 4); n < count; n++ {
		b := &x.in.Bytes()[x.offset(n)+x.l.size/2]
		*b++
		if err := x.checkWritten(count); err == nil {
			t.Errorf("message %d is wrong, and nobody finds it", n)
		}
		*b--
	}
	if err := x.checkWritten(count - 1); err == nil {
		t.Error("a message too many is not found")
	}
}

// TestNotes: a note that the peer must not send is an error.
func TestNotes(t *testing.T) {
	for says, n := range map[string]note{
		"octets that differ":         {kind: differs},
		"sent a note for round 2":    {kind: done, round: 2},
		"kind 99":                    {kind: 99, round: 1},
		"0 Sends arrived of 7":       {kind: last, round: 1, count: 7},
		"is not what was sent":       {kind: done, round: 1, count: 7},
		"":                           {kind: ready, round: 2},
		rdma.ErrNotConnected.Error(): {kind: last, round: 1}, // this end would have to answer the note
	} {
		test := SendBW
		if n.kind == done {
			test = WriteBW
		}
		x := newNotes(t, small(test))
		copy(x.inbox.Bytes(), n.append(nil))
		err := x.note()
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%+v: %v, want %q", n, err, says)
		}
	}
	want := note{kind: done, round: 3, count: 1 << 40, took: time.Hour, measured: 1 << 39}
	if got := parseNote(want.append(nil)); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestTerms: each differing option is named, and an invalid hello is refused.
func TestTerms(t *testing.T) {
	mine := Options{Test: WriteBW, Size: 1, Iterations: 2, QPs: 3, TxDepth: 4, RxDepth: 5}
	for flag, change := range map[string]func(*Options){
		"test": func(o *Options) { o.Test = ReadBW },
		"-a":   func(o *Options) { o.All = true },
		"-s":   func(o *Options) { o.Size++ },
		"-n":   func(o *Options) { o.Iterations++ },
		"-D":   func(o *Options) { o.Duration++ },
		"-q":   func(o *Options) { o.QPs++ },
		"-t":   func(o *Options) { o.TxDepth++ },
		"-r":   func(o *Options) { o.RxDepth++ },
		"-l":   func(o *Options) { o.List = 2 },
		"-Q":   func(o *Options) { o.Moderation = 3 },
		"-I":   func(o *Options) { o.Inline = 1 },
		"-f":   func(o *Options) { o.Margin++ },
		"-e":   func(o *Options) { o.Events = true },
		"-b":   func(o *Options) { o.Both = true },

		"--run_infinitely": func(o *Options) { o.Endless = true },
		"--verify":         func(o *Options) { o.Verify = true },
	} {
		theirs := mine
		change(&theirs)
		if err := mine.terms().differs(theirs.terms()); err == nil || !strings.Contains(err.Error(), flag+" is ") {
			t.Errorf("%s differs: %v", flag, err)
		}
	}
	if err := mine.terms().differs(mine.terms()); err != nil {
		t.Error(err)
	}
	for _, b := range []string{"", "{}", "hello", `{"stag_perf":1}`, `{"stag_perf":2,"more":0}`} {
		if _, err := parseHello([]byte(b)); !errors.Is(err, errStranger) {
			t.Errorf("%q: %v", b, err)
		}
	}
}

// TestHelloFits: the largest hello fits into private data.
func TestHelloFits(t *testing.T) {
	x := newNotes(t, small(WriteLat))
	x.l.run.Options = Options{Test: WriteLat, Size: MaxSize, Iterations: 1 << 40, Duration: 123456789 * time.Millisecond,
		QPs: 1024, TxDepth: 4096, RxDepth: 4096, Both: true, Verify: true,
		List: 1024, Moderation: 1024, Inline: 1024, Margin: 23456789 * time.Millisecond, Endless: true, Events: true}
	x.l.index = 1023
	b, err := x.hello()
	if err != nil || len(b) > 508 {
		t.Errorf("%d octets, %v: %s", len(b), err, b)
	}
	if h, err := parseHello(b); err != nil || h.Terms != x.l.run.terms() || h.QP != 1023 || h.Ticket.Notes != x.inbox.RKey() {
		t.Errorf("%+v, %v", h, err)
	}
}

// TestStranger: the server refuses a client that is another program, and tells it which program it has called.
func TestStranger(t *testing.T) {
	x := newNotes(t, small(WriteBW))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	listener, err := x.l.run.adapter.Listen(ctx, "127.0.0.1:0", rdma.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	stranger := newNotes(t, small(WriteBW))
	told := make(chan error, 1)
	go func() {
		told <- stranger.l.qp.Dial(ctx, listener.Addr().String(), rdma.ConnParams{PrivateData: []byte("rping")})
	}()
	if err := x.accept(ctx, listener); !errors.Is(err, errStranger) {
		t.Errorf("accepted with %v", err)
	}
	no := new(rdma.RejectedError)
	if err := <-told; !errors.As(err, &no) {
		t.Fatalf("the stranger was told %v", err)
	}
	if h, err := parseHello(no.PrivateData); err != nil || h.Terms != x.l.run.terms() {
		t.Errorf("%q: %v", no.PrivateData, err)
	}
}

// staged is an error whose text takes some time to make.
type staged struct{ text func() string }

func (e staged) Error() string { return e.text() }

// TestFirstFailure: when a lane fails, the runner aborts the others, which fail too. The run reports the failure that
// came first.
func TestFirstFailure(t *testing.T) {
	a, err := rdma.Open(rdma.Config{KernelPort: true})
	rig.Must(t, err)
	defer a.Close()
	s := &runner{}
	for i := range 2 {
		ep, err := a.CreateEndpoint(rdma.EndpointConfig{})
		rig.Must(t, err)
		s.lanes = append(s.lanes, &lane{run: s, index: i, qp: ep.QP})
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // ends the lanes if the runner does not
	defer cancel()
	second := make(chan struct{})
	var once sync.Once
	first := staged{func() string {
		if s.aborted.Load() { // too late: let the other lane report before this one
			select {
			case <-second:
			case <-ctx.Done():
			}
			time.Sleep(10 * time.Millisecond)
		}
		return "the cause"
	}}
	err = s.each(func(l *lane) error {
		if l.index == 0 {
			return first
		}
		for !s.aborted.Load() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		return staged{func() string { once.Do(func() { close(second) }); return "aborted" }}
	})
	if err == nil || !strings.Contains(err.Error(), "the cause") {
		t.Errorf("the run reports %q", err)
	}
}
