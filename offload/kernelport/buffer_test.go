package kernelport

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/octets"
)

// The ring against a plain slice.
func TestRingIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := ring{buf: make([]byte, rapid.IntRange(1, 40).Draw(t, "size"))}
		var model []byte
		next := byte(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			space := r.space()
			if (len(space) == 0) != (len(model) == len(r.buf)) {
				t.Fatalf("%d octets of space, %d of %d used", len(space), len(model), len(r.buf))
			}
			n := rapid.IntRange(0, len(space)).Draw(t, "in")
			for i := range n {
				next++
				space[i] = next
				model = append(model, next)
			}
			r.grow(n)
			views := make([][]byte, 3)
			if got := bytes.Join(views[:r.views(views)], nil); !bytes.Equal(got, model) {
				t.Fatalf("shows %v, want %v", got, model)
			}
			n = rapid.IntRange(0, len(model)).Draw(t, "out")
			r.drop(n)
			model = model[n:]
		}
	})
}

// The outbox against a plain slice: pieces stay contiguous and where they are,
// and an empty one takes whatever fits.
func TestOutboxIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := outbox{buf: make([]byte, rapid.IntRange(1, 40).Draw(t, "size"))}
		var model []byte
		next := byte(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.IntRange(1, len(o.buf)).Draw(t, "in")
			b := o.add(n)
			if b == nil && len(model) == 0 {
				t.Fatalf("an empty outbox of %d refuses %d", len(o.buf), n)
			}
			for i := range b {
				next++
				b[i] = next
				model = append(model, next)
			}
			if b != nil && (len(b) != n || cap(b) != n) {
				t.Fatalf("lent %d octets, room to %d, want %d", len(b), cap(b), n)
			}
			if o.used() != len(model) || !bytes.HasPrefix(model, o.next()) || (len(o.next()) == 0) != (len(model) == 0) {
				t.Fatalf("%d used, next %v, want %v", o.used(), o.next(), model)
			}
			n = rapid.IntRange(0, len(o.next())).Draw(t, "out")
			o.drop(n)
			model = model[n:]
		}
	})
}

// A running connection allocates nothing, whichever way the octets go.
func TestStepAllocatesNothing(t *testing.T) {
	sa, sb := sockets(t)
	const all = 1 << 50
	a := octets.NewTransfer(octets.Plan{Send: all, Seed: 1, Expect: all, PeerSeed: 2})
	b := octets.NewTransfer(octets.Plan{Send: all, Seed: 2, Expect: all, PeerSeed: 1})
	ka, kb := port(t, sa, a, Config{}), port(t, sb, b, Config{})
	defer ka.release()
	defer kb.release()
	both := func() {
		for _, k := range []*Conn{ka, kb} {
			k.step(clock.Now())
			k.bell.Store(true) // wait returns at once
			if err := k.wait(clock.Now(), 0); err != nil {
				t.Fatal(err)
			}
			if err := k.poll(clock.Now()); err != nil {
				t.Fatal(err)
			}
			k.poller.fds[1].Revents = 0
			if err := k.wake(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := testing.AllocsPerRun(500, both); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if a.Received() == 0 || b.Received() == 0 {
		t.Errorf("A received %d octets, B %d", a.Received(), b.Received())
	}
}

// A peer that closes while the ULP does not consume costs no processor time: poll
// does not wait for an event that would end it at once, again and again.
func TestBackPressureDoesNotSpin(t *testing.T) {
	sa, sb := sockets(t)
	u := &lazy{deadline: clock.Now().Add(10e6)}
	k := port(t, sa, u, Config{RcvBuf: 4096})
	if _, err := sb.Write(make([]byte, 20_000)); err != nil {
		t.Fatal(err)
	}
	sb.Close()
	steps := 0
	for now := clock.Now(); clock.Now().Sub(now) < 100e6; steps++ {
		k.step(clock.Now())
		if err := k.wait(clock.Now(), 0); err != nil {
			t.Fatal(err)
		}
		if steps == 3 {
			k.CloseWrite()
		}
		u.deadline = clock.Now().Add(10e6)
	}
	k.release()
	if steps > 150 {
		t.Errorf("%d steps in 100 ms", steps)
	}
}
