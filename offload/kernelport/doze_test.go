package kernelport

import (
	"context"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/visits"
)

var _ visits.Sleeper = (*Conn)(nil)

func never() bool { return false }

// TestDoze: arrivals, a nudge, and the end of the connection end a visitor's sleep. A
// second visitor does not sleep, and nobody does who has something to do.
func TestDoze(t *testing.T) {
	a, b := sockets(t)
	ulp := new(counting)
	k := port(t, a, ulp, Config{})
	done := make(chan error, 1)
	go func() { done <- k.Run(context.Background()) }()
	for up := false; !up; {
		k.Between(func() { up = k.running })
	}
	if !k.Doze(func() bool { return true }) {
		t.Error("a visitor that has something to do cannot doze")
	}
	// Each octet is received by a visitor that dozed, or by Run before it left arrivals to
	// the visitor. In both cases all arrive.
	for i := range 100 {
		if _, err := b.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		arrived := func() bool {
			got := 0
			k.Between(func() { got = ulp.octets })
			return got > i
		}
		for !arrived() {
			k.Doze(arrived)
			k.Visit(clock.Now())
		}
	}
	k.Watch()
	var all sync.WaitGroup
	all.Go(func() {
		for !k.Doze(never) { // Run may end it before it leaves arrivals to itself
		}
	})
	for !k.doze.asleep.Load() {
		time.Sleep(time.Millisecond)
	}
	if k.Doze(func() bool { return true }) {
		t.Error("two visitors doze")
	}
	k.Nudge()
	all.Wait()
	all.Go(func() { k.Doze(never) })
	for !k.doze.asleep.Load() {
		time.Sleep(time.Millisecond)
	}
	b.CloseWrite()
	all.Wait()
	k.Visit(clock.Now())
	if err := k.Close(context.Background()); err != nil {
		t.Error(err)
	}
	<-done
	if k.Doze(never) {
		t.Error("a visitor dozes after the end")
	}
	k.Nudge()
}

// TestDozeAtTheEnd: a visitor that is about to sleep when the connection ends wakes up, also if
// the numbers of its descriptors are in use again.
func TestDozeAtTheEnd(t *testing.T) {
	a, b := sockets(t)
	k := port(t, a, new(counting), Config{})
	done := make(chan error, 1)
	go func() { done <- k.Run(context.Background()) }()
	for up := false; !up; {
		k.Between(func() { up = k.running })
	}
	k.Doze(func() bool {
		b.SetLinger(0)
		b.Close()
		for open := true; open; time.Sleep(time.Millisecond) {
			k.mu.Lock()
			open = k.fd >= 0
			k.mu.Unlock()
		}
		for range 4 { // they get the numbers of the descriptors
			fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
			if err != nil {
				t.Error(err)
			}
			t.Cleanup(func() { unix.Close(fd) })
		}
		return false
	})
	<-done
	if fd := k.doze.fd.Load(); fd != -1 {
		t.Errorf("the eventfd is open: %d", fd)
	}
}

// TestLongDoze: Run ends the sleep of a visitor for which nothing arrives, whether Run waits
// in a Lot or not.
func TestLongDoze(t *testing.T) {
	a, b := sockets(t)
	k := port(t, a, new(counting), Config{Lot: newLot(t)})
	done := make(chan error, 1)
	go func() { done <- k.Run(context.Background()) }()
	for range 3 {
		for !k.parking.in.Load() {
			time.Sleep(100 * time.Microsecond)
		}
		for range 3 {
			for k.Doze(never) { // an earlier octet, or a left-over nudge
			}
			k.Watch()
		}
		if _, err := b.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	b.CloseWrite()
	if err := k.Close(context.Background()); err != nil {
		t.Error(err)
	}
	<-done
}
