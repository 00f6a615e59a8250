package handoff

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/octets"
)

// Take-overs in the middle of transfers both ways, many at once: not an octet
// is lost, doubled or moved.
func TestTakeInFullTraffic(t *testing.T) {
	w := newWorld(t)
	var all sync.WaitGroup
	var found [3]int // connections with unread, unacknowledged, any octets
	var mu sync.Mutex
	for i := range 24 {
		h := how{accepted: i%2 == 0, v6: i%4 < 2}
		all.Go(func() {
			st, err := w.takeInTraffic(h, octets.Pattern(i))
			if err != nil {
				t.Errorf("%v: %v", h, err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if len(st.state.Unread) > 0 {
				found[0]++
			}
			if len(st.state.Queue) > 0 {
				found[1]++
			}
			found[2]++
		})
	}
	all.Wait()
	t.Logf("%d with unread octets, %d with unacknowledged ones, of %d", found[0], found[1], found[2])
	if found[0] == 0 || found[1] == 0 {
		t.Error("no take-over was in the middle of anything")
	}
}

// takeInTraffic moves a connection while side B sends and receives, and
// completes both transfers over a restored one.
func (w *world) takeInTraffic(h how, seed octets.Pattern) (*steps, error) {
	const fromB, fromA = 3 << 20, 1 << 20
	a, b := w.connect(h)
	deadline := time.Now().Add(30 * time.Second)
	b.SetDeadline(deadline)
	peer := make(chan error, 2)
	go func() { peer <- send(b, fromB, seed) }()
	go func() { peer <- receivePattern(b, fromA, seed+1) }()

	// Read some, write some, and stop in the middle.
	if err := receivePattern(a, 1<<20, seed); err != nil {
		return nil, err
	}
	out := make([]byte, fromA)
	(seed + 1).Fill(out, 0)
	a.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	written, _ := a.Write(out)

	s, err := Open(a)
	if err != nil {
		return nil, err
	}
	st := w.steps(s)
	if err := s.Take(w.Context(), st, &w.grace); err != nil {
		return nil, err
	}
	again := w.restore(st, s)
	again.SetDeadline(deadline)
	go func() {
		_, err := again.Write(out[written:])
		peer <- err
	}()
	if err := receiveFrom(again, 1<<20, fromB, seed); err != nil {
		return nil, err
	}
	for range 3 {
		if err := <-peer; err != nil {
			return nil, err
		}
	}
	return st, nil
}

// send writes the first n octets of a pattern.
func send(c net.Conn, n int, seed octets.Pattern) error {
	b := make([]byte, n)
	seed.Fill(b, 0)
	_, err := io.Copy(c, bytes.NewReader(b))
	return err
}

// receivePattern reads and checks the first n octets of a pattern.
func receivePattern(c net.Conn, n int, seed octets.Pattern) error {
	return receiveFrom(c, 0, n, seed)
}

// receiveFrom reads and checks the octets [pos, end) of a pattern.
func receiveFrom(c net.Conn, pos, end int, seed octets.Pattern) error {
	b := make([]byte, 64<<10)
	for pos < end {
		n, err := c.Read(b[:min(len(b), end-pos)])
		if i := seed.Differs(b[:n], uint64(pos)); i >= 0 {
			return fmt.Errorf("octet %d is wrong", pos+i)
		}
		pos += n
		if err != nil {
			return fmt.Errorf("after octet %d: %w", pos, err)
		}
	}
	return nil
}
