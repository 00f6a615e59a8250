package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// TestTorn: decode refuses a mixture of two versions of a slot, at every boundary between
// the versions.
func TestTorn(t *testing.T) {
	for _, c := range []struct{ before, after slot }{
		{slot{}, slot{1, "key", "value"}},
		{slot{1, "key", strings.Repeat("a", maxValue)}, slot{2, "key", strings.Repeat("b", maxValue)}},
		{slot{7, "key", "a long value"}, slot{8, "key", ""}},
		{slot{7, "key", "same"}, slot{8, "key", "same"}},
	} {
		var before, after [slotLen]byte
		c.before.encode(before[:])
		copy(after[:], before[:])
		c.after.encode(after[:])
		for cut := range slotLen + 1 {
			for _, mixed := range [][]byte{
				append(append([]byte{}, after[:cut]...), before[cut:]...),
				append(append([]byte{}, before[:cut]...), after[cut:]...),
			} {
				got, err := decode(mixed)
				if (err != errTorn || string(mixed) == string(before[:]) || string(mixed) == string(after[:])) && got != c.before && got != c.after {
					t.Errorf("cut at %d: %+v, %v", cut, got, err)
				}
			}
		}
	}
	var mem [slotLen]byte
	slot{3, strings.Repeat("k", maxKey), strings.Repeat("v", maxValue)}.encode(mem[:])
	if s, err := decode(mem[:]); err != nil || s.version != 3 || len(s.key) != maxKey || len(s.value) != maxValue {
		t.Errorf("the largest slot: %+v, %v", s, err)
	}
}

// TestReadersBesideWriter: while one client puts new values without a pause, other clients
// read. Every value that they get is complete, and versions never decrease.
func TestReadersBesideWriter(t *testing.T) {
	const puts, readers = 300, 3
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	a, err := rdma.Open(rdma.Config{KernelPort: true})
	rig.Must(t, err)
	defer a.Close()
	at, served := make(chan string, 1), make(chan error, 1)
	stop, end := context.WithCancel(ctx)
	go func() { served <- serve(stop, a, "127.0.0.1:0", func(s string) { at <- s }) }()
	address := rig.Wait(t, at, "the server is ready")
	writer := connected(t, ctx, a, address)
	value := func(n int) string { return strings.Repeat(string(rune('a'+n%26)), maxValue) }
	_, err = writer.put(ctx, "key", value(1))
	rig.Must(t, err)
	results := make(chan error, readers)
	for range readers {
		c := connected(t, ctx, a, address)
		go func() { results <- watch(ctx, c, puts, value) }()
	}
	for n := 2; n <= puts; n++ {
		if version, err := writer.put(ctx, "key", value(n)); err != nil || version != uint64(n) {
			t.Fatalf("put %d: version %d, %v", n, version, err)
		}
	}
	for range readers {
		rig.Check(t, <-results)
	}
	end()
	rig.Check(t, rig.Wait(t, served, "the server has ended"))
}

// TestServerWithoutMemory: if the server has no memory for a client, the client gets an error.
func TestServerWithoutMemory(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	a, err := rdma.Open(rdma.Config{KernelPort: true, RegionHeap: slots * slotLen}) // enough for the table alone
	rig.Must(t, err)
	defer a.Close()
	b, err := rdma.Open(rdma.Config{KernelPort: true})
	rig.Must(t, err)
	defer b.Close()
	at, served := make(chan string, 1), make(chan error, 1)
	stop, end := context.WithCancel(ctx)
	defer end()
	go func() { served <- serve(stop, a, "127.0.0.1:0", func(s string) { at <- s }) }()
	_, err = dial(ctx, b, rig.Wait(t, at, "the server is ready"))
	if err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the end of the connection", err)
	}
	end()
	rig.Check(t, rig.Wait(t, served, "the server has ended"))
}

func connected(t *testing.T, ctx context.Context, a *rdma.Adapter, address string) *client {
	t.Helper()
	c, err := dial(ctx, a, address)
	rig.Must(t, err)
	t.Cleanup(c.close)
	return c
}

// watch reads until it gets the last version.
func watch(ctx context.Context, c *client, last uint64, value func(n int) string) error {
	for before := uint64(0); before < last; {
		s, err := c.get(ctx, "key")
		if err != nil {
			return err
		}
		if s.version < before || s.value != value(int(s.version)) {
			return fmt.Errorf("version %d after %d: %q", s.version, before, s.value)
		}
		before = s.version
	}
	return nil
}

// TestFull: if all slots for a key are in use, put returns an error, and the other keys stay.
func TestFull(t *testing.T) {
	a, err := rdma.Open(rdma.Config{KernelPort: true})
	rig.Must(t, err)
	defer a.Close()
	pd, err := a.AllocPD()
	rig.Must(t, err)
	s := &server{adapter: a, pd: pd}
	s.table, err = pd.AllocMR(slots*slotLen, rdma.RemoteRead)
	rig.Must(t, err)
	for i := range slots {
		slot{5, "somebody else's", ""}.encode(s.memory(i))
	}
	message := append([]byte{3}, "keyvalue"...)
	if version, err := s.put(message); version != 0 || err != nil {
		t.Errorf("version %d, %v", version, err)
	}
	slot{}.encode(s.memory(place("key", probes-1)))
	if version, err := s.put(message); version != 1 || err != nil {
		t.Errorf("with one place: version %d, %v", version, err)
	}
	for _, malformed := range []string{"", "\x05key", "\x00value", "\x03key" + strings.Repeat("v", maxValue+1)} {
		if _, err := s.put([]byte(malformed)); err == nil {
			t.Errorf("%q was taken", malformed)
		}
	}
}
