package faults

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/test/packet"
)

// strayRates are in frames per second.
var strayRates = []time.Duration{30_000, 70_000, 150_000, 300_000, 600_000}

// TestStrays measures how much a flood at tuples without a connection takes from a connection of stag, and from one of
// the kernel behind the same program. The kernel answers each stray with a reset in both cases. The test prints the
// remaining rate of each, relative to its rate during a flood of as many frames of an unknown protocol. It checks that
// all octets are right.
func TestStrays(t *testing.T) {
	const rounds = 4
	for _, engine := range []bool{true, false} {
		name := "kernel"
		if engine {
			name = "ours"
		}
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Intruder: true})
			r.open()
			our, conn := r.connect(false)
			gun := r.newCannon()
			link := packet.Link{SrcMAC: r.Intruder.MAC.String(), DstMAC: r.Ends[ours].MAC.String()}
			forger := newForger(our.LocalAddr(), our.RemoteAddr(), link)
			forger.seen.Store(&tcp.Info{RcvWnd: 1 << 16})
			peer := (&plain{conn: conn, send: 1 << 50, out: seedTheirs, in: seedTheirs}).start()
			ended := r.echo(our, engine)
			r.Eventually("the echo runs", func() bool { return peer.received.Load() > 16<<20 })

			before := r.kernelCounter(ours, "OutRsts")
			fired := 0
			for _, rate := range strayRates {
				var harmless, stray phase
				n := int(rate) / (2 * rounds)
				for range rounds {
					peer.during(&harmless, func() { gun.fire(n, rate, gun.foreign) })
					peer.during(&stray, func() { gun.fire(n, rate, forger.stray) })
					fired += n
				}
				sent := float64(rounds * n)
				t.Logf("%.0f strays a second: %v, %.2f of the %v with %.0f harmless frames a second",
					sent/stray.took.Seconds(), stray, stray.rate()/harmless.rate(), harmless, sent/harmless.took.Seconds())
			}
			if resets := r.kernelCounter(ours, "OutRsts") - before; resets < uint64(fired)/4 {
				t.Errorf("of %d strays the kernel has answered %d: the flood ran dry", fired, resets)
			}

			peer.stop.Store(true)
			r.Must(<-peer.wrote)
			r.Must(conn.CloseWrite())
			r.Must(<-peer.read)
			r.Must(ended())
			if peer.sent.Load() != peer.received.Load() {
				t.Errorf("%d octets were sent, and %d came back", peer.sent.Load(), peer.received.Load())
			}
		})
	}
}

// echo returns everything that arrives over a connection, offloaded or not. ended waits for the end of the echo.
func (r *rig) echo(our *net.TCPConn, engine bool) (ended func() error) {
	r.Helper()
	if engine {
		ulp := octets.NewEcho()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := r.nic.Take(ctx, our, ulp, nic.DefaultOptions)
		r.Must(err)
		return func() error {
			r.Wait(ulp.Done(), "the end of our side")
			return ulp.Err()
		}
	}
	done := make(chan error, 1)
	go func() {
		buf := make([]byte, 256<<10)
		for {
			n, err := our.Read(buf)
			if n > 0 && err == nil {
				_, err = our.Write(buf[:n])
			}
			if err == io.EOF {
				done <- our.CloseWrite()
				return
			}
			if err != nil {
				done <- err
				return
			}
		}
	}()
	return func() error { return <-done }
}
