package engine_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// unsum sets the checksum of a segment as a kernel leaves it to a device: to the sum of
// the pseudo-header, octet by octet.
func unsum(t *testing.T, b []byte) (p wire.Packet) {
	t.Helper()
	if why := wire.ParsePacket(b, &p); why != wire.OK {
		t.Fatal(why)
	}
	sum := uint32(6 + p.End - p.L4)
	for _, address := range [][]byte{p.Src, p.Dst} {
		for i, octet := range address {
			sum += uint32(octet) << (8 * (1 - i%2))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[p.L4+16:], uint16(sum))
	return p
}

// unsummedWorld returns a world in which what arrives at side 0 passes change.
func unsummedWorld(t *testing.T, accept bool, change func(b []byte)) *world.World {
	t.Helper()
	w, err := world.New(world.Config{
		Link:   simnic.Config{Latency: time.Millisecond},
		Engine: engine.Config{AcceptPartial: accept},
		Arrive: func(side int, b []byte) {
			if side == 0 {
				change(b)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A peer whose checksums are not computed is told from a lossy link: the connection
// ends when the peer repeats itself, whichever end sends, and both ends learn why.
func TestPeerWithoutChecksums(t *testing.T) {
	for name, sends := range map[string][2]uint64{"receiving": {0, 5000}, "sending": {5000, 0}, "both ways": {5000, 5000}} {
		t.Run(name, func(t *testing.T) {
			w := unsummedWorld(t, false, func(b []byte) { unsum(t, b) })
			ours := octets.NewTransfer(octets.Plan{Send: sends[0], Seed: 1, Expect: sends[1], PeerSeed: 2, Hold: true})
			theirs := octets.NewTransfer(octets.Plan{Send: sends[1], Seed: 2, Expect: sends[0], PeerSeed: 1, Hold: true})
			c, err := w.Connect(world.Flow{}, ours, theirs)
			if err != nil {
				t.Fatal(err)
			}
			err = w.Run(10*time.Second, func() bool { return len(w.Ends[0][c.ID[0]]) > 0 && len(w.Ends[1][c.ID[1]]) > 0 })
			if err != nil {
				t.Fatal(err)
			}
			if err := ours.Err(); !errors.Is(err, stream.ErrUnsummed) {
				t.Errorf("our end: %v", err)
			}
			if err := theirs.Err(); !errors.Is(err, stream.ErrReset) {
				t.Errorf("the peer: %v", err)
			}
		})
	}
}

// If they are accepted, such segments do no harm and are counted. If they are refused,
// one in two of them does no harm either.
func TestPartialChecksums(t *testing.T) {
	for name, c := range map[string]struct {
		accept bool
		every  int
	}{"all, accepted": {true, 1}, "one in two, refused": {false, 2}} {
		t.Run(name, func(t *testing.T) {
			n := 0
			w := unsummedWorld(t, c.accept, func(b []byte) {
				if n++; n%c.every == 0 {
					unsum(t, b)
				}
			})
			const volume = 20000
			ours := octets.NewTransfer(octets.Plan{Send: volume, Seed: 1, Expect: volume, PeerSeed: 2})
			theirs := octets.NewTransfer(octets.Plan{Send: volume, Seed: 2, Expect: volume, PeerSeed: 1})
			conn, err := w.Connect(world.Flow{}, ours, theirs)
			if err != nil {
				t.Fatal(err)
			}
			err = w.Run(10*time.Minute, func() bool { return len(w.Ends[0][conn.ID[0]]) > 0 && len(w.Ends[1][conn.ID[1]]) > 0 })
			if err := errors.Join(err, ours.Err(), theirs.Err()); err != nil {
				t.Fatal(err)
			}
			if got := counters(t, w, 0).PartialSums; got == 0 || c.accept && got != uint64(n) {
				t.Errorf("%d of %d segments are counted", got, n)
			}
		})
	}
}

// A sender that does not know the next sequence number cannot end a connection with
// segments whose checksum is not computed.
func TestUnsummedByAGuess(t *testing.T) {
	w := unsummedWorld(t, false, func(b []byte) {
		if p := unsum(t, b); p.TCP.Seq != 0 {
			binary.BigEndian.PutUint32(b[p.L4+4:], uint32(p.TCP.Seq)+1000)
		}
	})
	ours := octets.NewTransfer(octets.Plan{Send: 5000, Seed: 1, Hold: true})
	c, err := w.Connect(world.Flow{ISN: [2]uint32{7, 7}}, ours, octets.NewTransfer(octets.Plan{Expect: 5000, PeerSeed: 1, Hold: true}))
	if err != nil {
		t.Fatal(err)
	}
	w.Pass(5 * time.Second)
	if got := counters(t, w, 0).PartialSums; got < 3 || len(w.Ends[0][c.ID[0]]) != 0 {
		t.Errorf("after %d segments: %v", got, ours.Err())
	}
}
