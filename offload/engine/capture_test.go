package engine_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/tap"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/packet"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// listened returns a world with a ring at each engine.
func listened(t *testing.T, c world.Config, tc tap.Config) (w *world.World, rings [2]*tap.Ring) {
	t.Helper()
	w, err := world.New(c)
	if err != nil {
		t.Fatal(err)
	}
	for side := range rings {
		if rings[side], err = tap.New(tc); err != nil {
			t.Fatal(err)
		}
		if err := w.Engines[side].AddTap(rings[side]); err != nil {
			t.Fatal(err)
		}
	}
	return w, rings
}

// taken returns the packets of a ring, by direction.
func taken(r *tap.Ring) (in, out []tap.Record) {
	for _, rec := range r.Take(nil, 1<<62, 1<<30) {
		if rec.Out {
			out = append(out, rec)
		} else {
			in = append(in, rec)
		}
	}
	return in, out
}

// TestTapSeesTheWire: the packets that one engine sends are those that the other
// receives, whole, with checksums and retransmissions. Packets that the link loses show
// as missing.
func TestTapSeesTheWire(t *testing.T) {
	for name, v6 := range map[string]bool{"IPv4": false, "IPv6": true} {
		t.Run(name, func(t *testing.T) {
			w, rings := listened(t, world.Config{Link: simnic.Config{Seed: 4, Latency: time.Millisecond, Loss: 0.02, Check: true}}, tap.Config{})
			const n = 256 << 10
			a := octets.NewTransfer(octets.Plan{Send: n, Seed: 1, Expect: n, PeerSeed: 2})
			b := octets.NewTransfer(octets.Plan{Send: n, Seed: 2, Expect: n, PeerSeed: 1})
			c, err := w.Connect(world.Flow{V6: v6}, a, b)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Run(10*time.Minute, func() bool { return isDone(a.Done()) && isDone(b.Done()) }); err != nil {
				t.Fatal(err)
			}
			w.Pass(5 * time.Second) // packets under way arrive
			var in, out [2][]tap.Record
			for side, r := range rings {
				in[side], out[side] = taken(r)
				counts := counters(t, w, side)
				if r.Lost() != 0 || uint64(len(in[side])) != counts.RxPackets || uint64(len(out[side])) != counts.TxPackets {
					t.Errorf("side %d: %d in, %d out, %d lost; the engine counts %d and %d", side, len(in[side]), len(out[side]), r.Lost(), counts.RxPackets, counts.TxPackets)
				}
				for _, rec := range append(in[side], out[side]...) {
					whole(t, rec, c.ID[side])
				}
			}
			for side := range rings {
				lost := subsequence(out[1-side], in[side])
				if want := int(w.Link.Stats(simnic.Side(1 - side)).Lost); lost < 0 || lost == 0 || lost != want {
					t.Errorf("side %d: %d packets did not arrive, the link lost %d", side, lost, want)
				}
				if again(out[side]) == 0 {
					t.Errorf("side %d: no retransmission was seen", side)
				}
			}
		})
	}
}

// whole checks for a packet of the flow with good checksums.
func whole(t *testing.T, rec tap.Record, id engine.FlowID) {
	t.Helper()
	var p wire.Packet
	if rec.Flow != id || rec.Length != len(rec.Data) {
		t.Errorf("a packet of flow %#x, %d of %d octets, want flow %#x", uint32(rec.Flow), len(rec.Data), rec.Length, uint32(id))
	}
	if why := wire.ParsePacket(rec.Data, &p); why != wire.OK {
		t.Errorf("a packet does not parse: %v", why)
	} else if why := p.VerifyChecksum(rec.Data, false); why != wire.OK {
		t.Errorf("a packet has a %v", why)
	}
}

// subsequence returns how many of sent are missing in got, which must have the same
// order. It returns -1 if got has other packets.
func subsequence(sent, got []tap.Record) (missing int) {
	i := 0
	for _, s := range sent {
		if i < len(got) && bytes.Equal(got[i].Data, s.Data) {
			i++
		} else {
			missing++
		}
	}
	if i != len(got) {
		return -1
	}
	return missing
}

// again counts segments with payload whose sequence number was seen before.
func again(out []tap.Record) (n int) {
	seen := map[uint32]bool{}
	var p wire.Packet
	for _, rec := range out {
		if wire.ParsePacket(rec.Data, &p) != wire.OK || len(p.Data(rec.Data)) == 0 {
			continue
		}
		if seen[uint32(p.TCP.Seq)] {
			n++
		}
		seen[uint32(p.TCP.Seq)] = true
	}
	return n
}

func counters(t *testing.T, w *world.World, side int) (c engine.Counters) {
	t.Helper()
	err := w.Do(side, func(ctx context.Context) (err error) {
		c, err = w.Engines[side].Counters(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestTapSeesTooBig: a router's ICMP error about a segment has the segment's flow.
func TestTapSeesTooBig(t *testing.T) {
	w, rings := listened(t, world.Config{}, tap.Config{})
	const n = 64 << 10
	a := octets.NewTransfer(octets.Plan{Send: n, Seed: 1, Expect: n, PeerSeed: 2})
	b := octets.NewTransfer(octets.Plan{Send: n, Seed: 2, Expect: n, PeerSeed: 1})
	c, err := w.Connect(world.Flow{}, a, b)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(time.Minute, func() bool { return a.Sent() != 0 }); err != nil {
		t.Fatal(err)
	}
	var quote []byte
	for _, rec := range rings[0].Take(nil, 1<<62, 1<<30) {
		if rec.Out {
			quote = rec.Data
		}
	}
	says := packet.TooBig{IP: packet.IP{Src: "198.51.100.1:0", Dst: "192.0.2.1:0"}, MTU: 1280, Quote: quote}.Bytes()
	sendRaw(t, w.Link.B(), says)
	if err := w.Run(time.Minute, func() bool { return isDone(a.Done()) && isDone(b.Done()) }); err != nil {
		t.Fatal(err)
	}
	for _, rec := range rings[0].Take(nil, 1<<62, 1<<30) {
		if bytes.Equal(rec.Data, says) {
			if rec.Flow != c.ID[0] || rec.Out {
				t.Errorf("it is %+v, want flow %#x", rec, uint32(c.ID[0]))
			}
			return
		}
	}
	t.Error("it was not seen")
}

// sendRaw sends a frame that no engine made.
func sendRaw(t *testing.T, from port.Port, frame []byte) {
	t.Helper()
	frames := make([]port.Frame, 1)
	if from.Take(frames) != 1 {
		t.Fatal("no frame")
	}
	taken := frames[0]
	frames[0].Len = uint32(copy(from.Bytes(taken), frame))
	if from.Send(frames) != 1 || from.Flush() != nil {
		t.Fatal("not sent")
	}
	from.Free([]port.Frame{taken})
}

// TestTapsAtATime: several taps see the same packets, each as configured. A tap that is
// removed sees no more, and a tap that is full changes nothing for the others.
func TestTapsAtATime(t *testing.T) {
	w, rings := listened(t, world.Config{}, tap.Config{})
	e := w.Engines[0]
	more := map[string]*tap.Ring{}
	for name, c := range map[string]tap.Config{"small": {Size: 64 << 10}, "headers": {SnapLen: 54}, "nobody's": {Flow: 0xfff00007}, "removed": {}} {
		r, err := tap.New(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.AddTap(r); err != nil {
			t.Fatal(err)
		}
		more[name] = r
	}
	e.RemoveTap(more["removed"])
	const n = 1 << 20
	a := octets.NewTransfer(octets.Plan{Send: n, Seed: 1, Expect: n, PeerSeed: 2})
	b := octets.NewTransfer(octets.Plan{Send: n, Seed: 2, Expect: n, PeerSeed: 1})
	if _, err := w.Connect(world.Flow{}, a, b); err != nil {
		t.Fatal(err)
	}
	if err := w.Run(time.Minute, func() bool { return isDone(a.Done()) && isDone(b.Done()) }); err != nil {
		t.Fatal(err)
	}
	if a.Err() != nil || b.Err() != nil {
		t.Errorf("%v, %v", a.Err(), b.Err())
	}
	got := map[string][]tap.Record{}
	for name, r := range more {
		got[name] = r.Take(nil, 1<<62, 1<<30)
	}
	all := rings[0].Take(nil, 1<<62, 1<<30)
	if len(all) < 2*n/1460 || len(got["headers"]) != len(all) || len(got["nobody's"]) != 0 || len(got["removed"]) != 0 {
		t.Errorf("%d packets, %d headers, %d of no flow, %d after the end", len(all), len(got["headers"]), len(got["nobody's"]), len(got["removed"]))
	}
	for i, h := range got["headers"] {
		if !bytes.Equal(h.Data, all[i].Data[:54]) || h.Length != all[i].Length {
			t.Fatalf("packet %d: %d of %d octets", i, len(h.Data), h.Length)
		}
	}
	small := got["small"]
	if lost := more["small"].Lost(); lost == 0 || int(lost)+len(small) != len(all) || rings[0].Lost() != 0 {
		t.Errorf("the small ring has %d packets and lost %d of %d", len(small), lost, len(all))
	}
	if missing := subsequence(all, small); missing != len(all)-len(small) {
		t.Errorf("what the small ring has is not of what there was: %d missing", missing)
	}
}

// TestTapSeesStrangers: taps see a packet that belongs to no flow, and one that cannot
// be parsed. Neither has a flow.
func TestTapSeesStrangers(t *testing.T) {
	w, rings := listened(t, world.Config{}, tap.Config{})
	junk := make([]byte, 60)
	binary.BigEndian.PutUint16(junk[12:], 0x88b5)
	sendRaw(t, w.Link.A(), junk)
	w.Pass(time.Second)
	got := rings[1].Take(nil, 1<<62, 1<<30)
	if len(got) != 1 || got[0].Flow != 0 || got[0].Out || !bytes.Equal(got[0].Data, junk) {
		t.Errorf("seen: %v", got)
	}
}

// TestTappedStepAllocatesNothing: a step with a tap allocates nothing, and does not
// wait for an absent reader.
func TestTappedStepAllocatesNothing(t *testing.T) {
	w, rings := listened(t, world.Config{Link: simnic.Config{Seed: 3, Latency: 100 * time.Microsecond, Loss: 0.01, Frames: 1024}}, tap.Config{Size: 1 << 20})
	const endless = 1 << 40
	a := octets.NewTransfer(octets.Plan{Send: endless, Seed: 1, Expect: endless, PeerSeed: 2})
	b := octets.NewTransfer(octets.Plan{Send: endless, Seed: 2, Expect: endless, PeerSeed: 1})
	if _, err := w.Connect(world.Flow{}, a, b); err != nil {
		t.Fatal(err)
	}
	allocs := testing.AllocsPerRun(4, func() { // what the garbage collector needs once does not count
		for lost := rings[0].Lost(); rings[0].Lost() < lost+2500; {
			if !w.Step(w.Now().Add(time.Minute)) {
				t.Fatal("nothing happens any more")
			}
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	if a.Received() == 0 || b.Received() == 0 {
		t.Error("nothing was delivered")
	}
}
