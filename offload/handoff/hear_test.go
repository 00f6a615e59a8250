package handoff

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/rig"
)

// short is for tests that wait until the end.
var short = patience{within: time.Second, past: 300 * time.Millisecond, again: 200 * time.Millisecond, look: 5 * time.Millisecond}

// unheard are steps whose engine gets nothing.
func (w *world) unheard(s *Socket) *steps {
	st := w.steps(s)
	st.heard = make(chan struct{})
	s.patience = short
	return st
}

// opened makes a connection and opens the socket of side A, which is a.
func opened(t *testing.T) (w *world, s *Socket, a, b *net.TCPConn) {
	t.Helper()
	w = newWorld(t)
	a, b = w.connect(how{})
	s, err := Open(a)
	w.Must(err)
	t.Cleanup(func() { s.Close() })
	return w, s, a, b
}

// The peer is asked by an empty segment in front of what it expects, and asked
// again; without a segment of it the socket stays as it is.
func TestTakeWithoutEvidence(t *testing.T) {
	w := newWorld(t)
	for _, h := range []how{{}, {accepted: true}, {v6: true}, {accepted: true, v6: true}} {
		t.Run(h.String(), func(t *testing.T) {
			a, b := w.connect(h)
			w.Must(exchange(a, b))
			before := settings(t, a)
			s, err := Open(a)
			w.Must(err)
			defer s.Close()
			was, err := getTCPInfo(s.fd)
			w.Must(err)
			st := w.unheard(s)
			err = s.Take(t.Context(), st, &w.grace)
			wantErr(t, err, ErrUnseen)
			if st.parked != 1 || st.unparked != 1 || st.placeholder != nil {
				t.Errorf("parked %d times, unparked %d times", st.parked, st.unparked)
			}
			now, err := getTCPInfo(s.fd)
			w.Must(err)
			if n := now.Segs_out - was.Segs_out; n < 3 {
				t.Errorf("the peer was asked %d times", n)
			}
			if after := settings(t, a); after != before {
				t.Errorf("socket options %v, before %v", after, before)
			}
			w.Must(exchange(a, b))
		})
	}
}

// The answers reach the kernel past the steering: the take-over fails soon, and says so.
func TestTakeWithEvidencePastTheProgram(t *testing.T) {
	w, s, a, b := opened(t)
	s.patience = short
	s.patience.within = time.Hour
	s.patience.again = 600 * time.Millisecond // the peer's kernel answers no more often
	st := &leaky{steps{heard: make(chan struct{})}}
	err := s.Take(t.Context(), st, &w.grace)
	wantErr(t, err, ErrUnseen)
	if err != nil && !strings.Contains(err.Error(), "past the XDP program") {
		t.Errorf("the error does not say where the segments are: %v", err)
	}
	w.Must(exchange(a, b))
}

// A segment that comes while the kernel gets some, too, is evidence enough.
func TestTakeHearsAtLast(t *testing.T) {
	w := newWorld(t)
	a, _ := w.connect(how{})
	s, err := Open(a)
	w.Must(err)
	st := w.unheard(s)
	s.patience.within = time.Hour
	go func() {
		time.Sleep(500 * time.Millisecond)
		close(st.heard)
	}()
	w.Must(s.Take(t.Context(), st, &w.grace))
	w.Must(st.placeholder.Err())
	w.Must(st.placeholder.Close())
}

// The context ends the wait, and the error says what was waited for.
func TestTakeCancelledWhileUnheard(t *testing.T) {
	w, s, a, b := opened(t)
	st := w.unheard(s)
	s.patience.within = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := s.Take(ctx, st, &w.grace)
	wantErr(t, err, ErrUnseen)
	wantErr(t, err, context.DeadlineExceeded)
	w.Must(exchange(a, b))
}

// A connection that ends while nothing of it is heard is not waited for.
func TestTakeOfConnectionThatEndsUnheard(t *testing.T) {
	w, s, _, b := opened(t)
	s.patience = short
	s.patience.within = time.Hour
	st := &leaky{steps{heard: make(chan struct{})}}
	time.AfterFunc(100*time.Millisecond, func() { b.Close() })
	wantErr(t, s.Take(t.Context(), st, &w.grace), ErrNotEstablished)
}

// The question is the segment that every TCP answers: empty, and in front of the
// first octet that the peer expects.
func TestQuestion(t *testing.T) {
	w := newWorld(t)
	a, b := w.connect(how{})
	w.Must(exchange(a, b))
	sniffer := w.sniff(pair.A)
	s, err := Open(a)
	w.Must(err)
	defer s.Close()
	w.Must(setReuse(s.fd, 1))
	w.Must(s.ask(make(chan struct{})))
	var frame []byte
	rig.Eventually(t, "the question", func() bool {
		if all := captured(t, sniffer, uint16(a.LocalAddr().(*net.TCPAddr).Port)); len(all) != 0 {
			frame = all[len(all)-1]
		}
		return frame != nil
	})
	const ip, tcp = 14, 34
	seq := binary.BigEndian.Uint32(frame[tcp+4:])
	length := int(binary.BigEndian.Uint16(frame[ip+2:])) - 20 - int(frame[tcp+12]>>4)*4
	if reuse, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR); err != nil || reuse != 1 {
		t.Errorf("SO_REUSEADDR is %d afterwards, %v", reuse, err)
	}
	w.Must(s.enterRepair())
	defer s.leaveRepair()
	next, err := s.queueSeq(sendQueue)
	w.Must(err)
	if seq != uint32(next)-1 || length != 0 {
		t.Errorf("the question has sequence number %d and %d octets, the next octet is %d", seq, length, next)
	}
	// A socket that has been heard of is not asked.
	before, err := getTCPInfo(s.fd)
	w.Must(err)
	w.Must(s.ask(closedChannel()))
	after, err := getTCPInfo(s.fd)
	if w.Must(err); after.Segs_out != before.Segs_out {
		t.Error("a segment was sent although one of the peer's had been heard")
	}
}

func setReuse(fd, v int) error {
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, v)
}

// Linux answers a connection's probes every 500 ms only. The second question is for a
// first one that was lost; the third comes as soon as it can be answered when the
// first answer was lost.
func TestQuestionsAreSpaced(t *testing.T) {
	began := time.Unix(100, 0)
	for _, c := range []struct {
		rto  time.Duration
		want []time.Duration // after began
	}{
		{200 * time.Millisecond, []time.Duration{200 * time.Millisecond, 600 * time.Millisecond, 1200 * time.Millisecond}},
		{500 * time.Millisecond, []time.Duration{500 * time.Millisecond, time.Second, 1600 * time.Millisecond}},
		{2 * time.Second, []time.Duration{600 * time.Millisecond, 2600 * time.Millisecond, 4600 * time.Millisecond}},
	} {
		h := &hearing{s: &Socket{patience: usual}, began: began, rto: c.rto, next: began.Add(min(c.rto, usual.again)), asked: 1}
		for i, want := range c.want {
			if got := h.next.Sub(began); got != want {
				t.Errorf("timeout %v: question %d comes after %v, want %v", c.rto, i+2, got, want)
			}
			h.next = h.after(h.next)
			h.asked++
		}
	}
}
