// Package badline is a relay between the ends of an iSCSI connection that damages data
// segments, as a network does whose damage TCP's checksum does not show. Tests of digests and
// of error recovery use it.
package badline

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// Line is a relay to a target. Both digests must be in force on the connections.
type Line struct {
	t       testing.TB
	l       net.Listener
	dial    func() (net.Conn, error)
	rates   Rates
	running sync.WaitGroup
	damaged atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
}

// Rates say how often a PDU with data is damaged: one of so many. 0: never.
type Rates struct {
	ToTarget, ToInitiator int
}

// New starts a relay on a listener. dial connects to the target. The end of the test ends
// the relay and its connections.
func New(t testing.TB, l net.Listener, r Rates, dial func() (net.Conn, error)) *Line {
	b := &Line{t: t, l: l, dial: dial, rates: r}
	b.running.Go(b.accept)
	t.Cleanup(b.close)
	return b
}

// Address returns host:port of the relay.
func (b *Line) Address() string { return b.l.Addr().String() }

// Damaged returns how many PDUs were damaged.
func (b *Line) Damaged() int { return int(b.damaged.Load()) }

func (b *Line) close() {
	b.l.Close()
	b.mu.Lock()
	for _, c := range b.conns {
		c.Close()
	}
	b.mu.Unlock()
	b.running.Wait()
}

func (b *Line) accept() {
	for n := uint64(0); ; n++ {
		near, err := b.l.Accept()
		if err != nil {
			return
		}
		far, err := b.dial()
		if err != nil {
			b.t.Error("the relay cannot reach the target: ", err)
			near.Close()
			continue
		}
		b.mu.Lock()
		b.conns = append(b.conns, near, far)
		b.mu.Unlock()
		b.running.Go(func() { b.carry(near, far, b.rates.ToTarget, rand.New(rand.NewPCG(n, 1))) })
		b.running.Go(func() { b.carry(far, near, b.rates.ToInitiator, rand.New(rand.NewPCG(n, 2))) })
	}
}

// carry carries PDUs from one end to the other until the connection ends.
func (b *Line) carry(from, to net.Conn, oneOf int, luck *rand.Rand) {
	defer from.Close()
	defer to.Close()
	buf := make([]byte, pdu.HeaderLen, 1<<20)
	for {
		buf = buf[:pdu.HeaderLen]
		if _, err := io.ReadFull(from, buf); err != nil {
			return
		}
		h := pdu.Header(buf)
		n := h.AHSLength() + pdu.Padded(h.DataLength())
		login := h.Opcode() == pdu.OpLogin || h.Opcode() == pdu.OpLoginResponse
		if !login {
			n += pdu.DigestLen
			if h.DataLength() != 0 {
				n += pdu.DigestLen
			}
		}
		buf = append(buf, make([]byte, n)...)
		if _, err := io.ReadFull(from, buf[pdu.HeaderLen:]); err != nil {
			return
		}
		if !login && h.DataLength() != 0 && oneOf != 0 && luck.IntN(oneOf) == 0 {
			at := pdu.HeaderLen + h.AHSLength() + pdu.DigestLen + luck.IntN(h.DataLength())
			buf[at] ^= byte(1 << luck.IntN(8))
			b.damaged.Add(1)
		}
		if _, err := to.Write(buf); err != nil && !errors.Is(err, net.ErrClosed) {
			return
		}
	}
}
