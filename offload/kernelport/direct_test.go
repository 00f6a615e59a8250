package kernelport

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
)

// placing is a ULP whose messages have a length in front of them. It names the place of the
// rest of a message whose length it knows.
type placing struct {
	t       *testing.T
	into    []byte // memory for a message: in several pieces
	left    int
	have    int
	length  [4]byte
	got     bytes.Buffer
	placed  int
	viewed  int
	pieces  int // of a message
	invalid []byte
	ended   chan error
}

func (p *placing) Place(dst [][]byte) (n int) {
	if p.left == 0 {
		return 0
	}
	if p.invalid != nil {
		dst[0] = p.invalid
		return 1
	}
	rest := p.into[:p.left]
	for n < len(dst) && n < p.pieces && len(rest) > 0 {
		k := min(len(rest), max(1, p.left/p.pieces))
		dst[n], rest = rest[:k], rest[k:]
		n++
	}
	return n
}

func (p *placing) Placed(n int) {
	p.got.Write(p.into[:n])
	p.placed += n
	p.left -= n
}

func (p *placing) Receive(_ clock.Instant, s stream.Stream) {
	var views [4][]byte
	for n := s.Views(views[:]); n > 0; n = s.Views(views[:]) {
		for _, v := range views[:n] {
			s.Consume(len(v))
			p.feed(v)
		}
	}
	if s.EOF() {
		s.CloseWrite()
	}
}

func (p *placing) feed(v []byte) {
	for len(v) > 0 {
		if p.left != 0 {
			n := min(p.left, len(v))
			p.got.Write(v[:n])
			p.viewed += n
			p.left -= n
			v = v[n:]
			continue
		}
		n := copy(p.length[p.have:], v)
		v = v[n:]
		if p.have += n; p.have == len(p.length) {
			p.have, p.left = 0, int(binary.BigEndian.Uint32(p.length[:]))
		}
	}
}

func (p *placing) Transmit(clock.Instant, stream.Stream) {}
func (p *placing) Deadline() clock.Instant               { return clock.Never }
func (p *placing) Fault(_ clock.Instant, err error)      { p.ended <- err }

// TestPlacer: the octets of long messages go to the place that the ULP names, those of
// short ones through the ring, and none is lost or doubled, however they arrive.
func TestPlacer(t *testing.T) {
	for _, pieces := range []int{1, 3, 20} {
		a, b := sockets(t)
		p := &placing{t: t, into: make([]byte, 1<<20), pieces: pieces, ended: make(chan error, 1)}
		k := port(t, a, p, Config{RcvBuf: 64 << 10})
		go k.Run(context.Background())
		random := rand.New(rand.NewPCG(1, uint64(pieces)))
		var want, wire []byte
		for range 300 {
			n := 1 + random.IntN(1<<random.IntN(19))
			message := make([]byte, n)
			for i := range message {
				message[i] = byte(random.Uint32())
			}
			want = append(want, message...)
			wire = append(binary.BigEndian.AppendUint32(wire, uint32(n)), message...)
		}
		for len(wire) > 0 {
			n := min(len(wire), 1+random.IntN(300_000))
			if _, err := b.Write(wire[:n]); err != nil {
				t.Fatal(err)
			}
			wire = wire[n:]
		}
		b.CloseWrite()
		if err := <-p.ended; err != nil {
			t.Error(err)
		}
		if !bytes.Equal(p.got.Bytes(), want) {
			t.Errorf("%d pieces: other octets: %d, want %d", pieces, p.got.Len(), len(want))
		}
		if p.placed == 0 || p.viewed == 0 {
			t.Errorf("%d pieces: %d octets were placed, %d viewed", pieces, p.placed, p.viewed)
		}
	}
}

// TestPlaceIsGone: a place that cannot be written to does not end the connection. The ULP
// sees the octets in Views instead.
func TestPlaceIsGone(t *testing.T) {
	gone, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(gone)
	a, b := sockets(t)
	p := &placing{t: t, into: make([]byte, 1<<20), pieces: 1, invalid: gone, ended: make(chan error, 1)}
	k := port(t, a, p, Config{})
	go k.Run(context.Background())
	message := bytes.Repeat([]byte("0123456789"), 10_000)
	b.Write(binary.BigEndian.AppendUint32(nil, uint32(len(message))))
	time.Sleep(10 * time.Millisecond) // the length is read before the message comes
	b.Write(message)
	b.CloseWrite()
	if err := <-p.ended; err != nil {
		t.Error(err)
	}
	if !bytes.Equal(p.got.Bytes(), message) || p.placed != 0 {
		t.Errorf("%d octets, %d placed", p.got.Len(), p.placed)
	}
}
