package kernelport

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// ringing is a ULP that counts calls of Transmit.
type ringing struct {
	counting
	rung atomic.Int64
}

func (r *ringing) Transmit(clock.Instant, stream.Stream) { r.rung.Add(1) }

// TestRungDuringShed: a visitor that comes while the buffers are given back leaves its doorbell,
// and Run serves it.
func TestRungDuringShed(t *testing.T) {
	a, b := sockets(t)
	ulp := new(ringing)
	k := port(t, a, ulp, Config{Lot: newLot(t)})
	go k.Run(context.Background())
	for !k.parking.in.Load() {
		time.Sleep(time.Millisecond)
	}
	k.Between(func() {
		if err := k.needRing(); err != nil {
			t.Fatal(err)
		}
	})
	for !k.parking.in.Load() {
		time.Sleep(time.Millisecond)
	}
	before := ulp.rung.Load()
	k.lender.rx.mu.Lock() // so that shed waits while it holds stepping
	shed := make(chan struct{})
	go func() {
		defer close(shed)
		k.shed()
	}()
	for k.stepping.TryLock() {
		k.stepping.Unlock()
		time.Sleep(100 * time.Microsecond)
	}
	k.RingSilently()
	k.Visit(clock.Now())
	if ulp.rung.Load() != before {
		t.Error("the visitor stepped although another goroutine held the connection")
	}
	k.lender.rx.mu.Unlock()
	for end := time.Now().Add(10 * time.Second); ulp.rung.Load() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a doorbell has not been served after 10 s")
		}
	}
	<-shed
	b.CloseWrite()
	if err := k.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestLeftToTheHolder: a goroutine that has held stepping without a step looks at what
// visitors have left to it meanwhile: a doorbell, or room for further octets.
func TestLeftToTheHolder(t *testing.T) {
	for name, leave := range map[string]func(*Conn){
		"doorbell": func(k *Conn) { k.RingSilently() },
		"room":     func(k *Conn) { k.drained = true },
	} {
		for holder, hold := range map[string]func(*Conn, func()){
			"Between": func(k *Conn, fn func()) { k.Between(fn) },
			"a visitor that wants to doze": func(k *Conn, fn func()) {
				k.Between(func() { k.hung = true }) // so that it must not doze
				k.Doze(never)
				k.stepping.Lock()
				fn()
				k.stepping.Unlock()
				k.Doze(never)
			},
		} {
			t.Run(holder+"/"+name, func(t *testing.T) {
				a, b := sockets(t)
				ulp := new(ringing)
				k := port(t, a, ulp, Config{Lot: newLot(t)})
				go k.Run(context.Background())
				for !k.parking.in.Load() {
					time.Sleep(time.Millisecond)
				}
				before := ulp.rung.Load()
				hold(k, func() {
					leave(k)
					k.Visit(clock.Now()) // returns at once
				})
				for end := time.Now().Add(10 * time.Second); ulp.rung.Load() == before; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatal("nobody has looked after 10 s")
					}
				}
				k.Between(func() { k.hung = false })
				b.CloseWrite()
				if err := k.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestLeftBeforeSleep: Run does not sleep while the last step of a visitor has left room for
// octets of the ULP.
func TestLeftBeforeSleep(t *testing.T) {
	a, _ := sockets(t)
	k := port(t, a, new(ringing), Config{})
	defer k.Close(context.Background())
	k.bell.Store(false)
	k.drained = true
	done := make(chan error, 1)
	go func() { done <- k.wait(clock.Now(), 0) }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Run sleeps")
		k.Ring()
		<-done
	}
}
