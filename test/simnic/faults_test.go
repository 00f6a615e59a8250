package simnic

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/packet"
)

// cross sends the packets one after the other, each when the previous one has departed, and returns what arrives.
func cross(t *testing.T, c Config, packets [][]byte) (arrived [][]byte, stats Stats) {
	t.Helper()
	l := newLink(t, c)
	fetch := func() {
		var f [1]port.Frame
		for l.B().Receive(f[:]) == 1 {
			arrived = append(arrived, bytes.Clone(l.B().Bytes(f[0])))
			l.B().Recycle(f[:])
		}
	}
	for _, b := range packets {
		var f [1]port.Frame
		if l.A().Take(f[:]) == 0 {
			t.Fatal("no chunk")
		}
		f[0].Len = uint32(copy(l.A().Bytes(f[0]), b))
		l.A().Send(f[:])
		l.A().Flush()
		l.A().Free(f[:])
		l.Advance(l.Now().Add(time.Microsecond))
		fetch()
	}
	for l.Next() != clock.Never {
		l.Advance(l.Next())
		fetch()
	}
	stats = l.Stats(A)
	if got, want := stats.Lost+stats.TooLong+stats.NoFrame+stats.Delivered, stats.Sent+stats.Duplicated+stats.Split-stats.Merged; got != want {
		t.Errorf("%+v: %d packets accounted for, want %d", stats, got, want)
	}
	return arrived, stats
}

// numbered returns n packets, each with its number.
func numbered(n int) (packets [][]byte) {
	for i := range n {
		b := make([]byte, 60)
		b[ethernetLen], b[ethernetLen+1] = byte(i>>8), byte(i)
		packets = append(packets, b)
	}
	return packets
}

func number(b []byte) int { return int(b[ethernetLen])<<8 | int(b[ethernetLen+1]) }

// segments returns a stream of n octets in segments of mss.
func segments(n, mss int, v6 bool) (packets [][]byte) {
	for at := 0; at < n; at += mss {
		data := make([]byte, min(mss, n-at))
		octets.Pattern(5).Fill(data, uint64(at))
		p := packet.TCP{IP: packet.IP{V6: v6}, Seq: uint32(at) - 3000, Ack: 7, Window: 100, TS: &packet.TS{Val: 9, Ecr: 8}, Payload: data}
		if at+mss >= n {
			p.Flags = "FPA"
		}
		packets = append(packets, p.Bytes())
	}
	return packets
}

// Losses of a burst come together: there are fewer bursts than lost packets, by the mean length of a stay in the bad
// state.
func TestBurst(t *testing.T) {
	const sent = 20000
	arrived, stats := cross(t, Config{Seed: 1, Burst: Burst{Enter: 0.01, Leave: 0.1, Loss: 1}}, numbered(sent))
	gaps, last := 0, -1
	for _, b := range arrived {
		if number(b) != last+1 {
			gaps++
		}
		last = number(b)
	}
	// The path is bad for 1/(1+10) of the packets, 10 at a time.
	if share := float64(stats.Lost) / sent; share < 0.06 || share > 0.13 {
		t.Errorf("%.3f of the packets were lost, want about 0.091", share)
	}
	if mean := float64(stats.Lost) / float64(gaps); mean < 7 || mean > 13 {
		t.Errorf("%.1f packets were lost together, want about 10", mean)
	}
}

// A burst ends in time even if only single packets meet it.
func TestBurstEnds(t *testing.T) {
	for stay, want := range map[time.Duration]uint64{0: 1000, 10 * time.Microsecond: 910} {
		_, stats := cross(t, Config{Burst: Burst{Enter: 1, Leave: 1e-12, Loss: 1, For: stay}}, numbered(1000))
		// One packet a microsecond: every eleventh packet finds the path good, and makes it bad again.
		if stats.Lost < want-10 || stats.Lost > want {
			t.Errorf("bursts of %v: %d of 1000 packets lost, want about %d", stay, stats.Lost, want)
		}
	}
}

// Lent counts the chunks that were not given back.
func TestLent(t *testing.T) {
	l := newLink(t, Config{})
	var f [3]port.Frame
	l.A().Take(f[:])
	send(l.A(), 1, 100)
	l.Advance(l.Now() + 1)
	l.B().Receive(f[:1])
	if rx, tx := l.Lent(A); rx != 0 || tx != 3 {
		t.Errorf("A holds %d and %d, want 0 and 3", rx, tx)
	}
	if rx, tx := l.Lent(B); rx != 1 || tx != 0 {
		t.Errorf("B holds %d and %d, want 1 and 0", rx, tx)
	}
}

func TestLossOfAcksSparesData(t *testing.T) {
	packets := segments(20000, 1000, false)
	for range 20 {
		packets = append(packets, packet.TCP{}.Bytes(), packet.TCP{Flags: "FA"}.Bytes(), packet.TCP{Flags: "RA"}.Bytes())
	}
	if arrived, stats := cross(t, Config{LossAcks: 1}, packets); len(arrived) != 60 || stats.Lost != 20 {
		t.Errorf("%d arrived, %d lost; want all but 20 ACKs", len(arrived), stats.Lost)
	}
}

// At most the configured number of packets overtake a packet. If no packet follows, it continues after ReorderBy.
func TestOvertaken(t *testing.T) {
	const by = 50
	arrived, stats := cross(t, Config{Seed: 2, Overtaken: 0.01, OvertakenBy: by, ReorderBy: time.Millisecond}, numbered(5000))
	if len(arrived) != 5000 || stats.Reordered < 25 || stats.Reordered > 100 {
		t.Fatalf("%d arrived, %d of them overtaken", len(arrived), stats.Reordered)
	}
	most, late := 0, 0
	for i, b := range arrived {
		before := 0
		for _, other := range arrived[max(0, i-200):i] {
			if number(other) > number(b) {
				before++
			}
		}
		late += min(before, 1)
		most = max(most, before)
	}
	// A packet that was overtaken itself does not count as passing again.
	if most < by/2 || most > by+10 || late < 25 {
		t.Errorf("%d packets were overtaken, by up to %d; want up to %d", late, most, by)
	}
	arrived, _ = cross(t, Config{Overtaken: 1, OvertakenBy: by}, numbered(1))
	if len(arrived) != 1 {
		t.Error("the last packet never came")
	}
}

// A forged packet has a wrong payload and a correct checksum.
func TestForgedPassesTheChecksum(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		packets := segments(50000, 1000, v6)
		arrived, stats := cross(t, Config{Seed: 3, Forge: 1}, packets)
		differ := 0
		for i, b := range arrived {
			var p wire.Packet
			if wire.ParsePacket(b, &p) != wire.OK || p.VerifyChecksum(b, false) != wire.OK {
				t.Fatalf("packet %d does not pass", i)
			}
			if !bytes.Equal(b, packets[i]) {
				differ++
			}
		}
		if differ < 45 || uint64(differ) != stats.Forged {
			t.Errorf("%d of %d packets differ, %d counted", differ, len(packets), stats.Forged)
		}
	}
}

// A middlebox cuts and merges segments, and the stream stays the same.
func TestMiddleboxKeepsTheStream(t *testing.T) {
	for name, c := range map[string]Config{
		"splits": {Split: 1}, "merges": {Merge: 1}, "both": {Split: 0.3, Merge: 0.3},
	} {
		for _, v6 := range []bool{false, true} {
			const total, mss = 100_000, 1000
			c.Seed = 4
			arrived, stats := cross(t, c, segments(total, mss, v6))
			at, longest := 0, 0
			for i, b := range arrived {
				var p wire.Packet
				if wire.ParsePacket(b, &p) != wire.OK || p.VerifyChecksum(b, false) != wire.OK {
					t.Fatalf("%s: packet %d does not pass: % x", name, i, b)
				}
				data := p.Data(b)
				if got := int(int32(uint32(p.TCP.Seq) + 3000)); got != at {
					t.Fatalf("%s: packet %d begins at %d, want %d", name, i, got, at)
				}
				if k := octets.Pattern(5).Differs(data, uint64(at)); k >= 0 || !p.TCP.HasTS || p.TCP.TSVal != 9 {
					t.Fatalf("%s: octet %d is wrong, or the timestamp", name, at+k)
				}
				at += len(data)
				longest = max(longest, len(data))
				if fin := p.TCP.Flags&wire.FIN != 0; fin != (at == total) {
					t.Fatalf("%s: FIN %v behind octet %d", name, fin, at)
				}
			}
			if at != total || (c.Split > 0) != (stats.Split > 0) || (c.Merge > 0) != (stats.Merged > 0) {
				t.Errorf("%s: %d of %d octets, %d cut, %d merged", name, at, total, stats.Split, stats.Merged)
			}
			if c.Merge == 1 && longest != 3*mss {
				t.Errorf("%s: the longest segment has %d octets; a chunk has room for 3", name, longest)
			}
		}
	}
}

// Segments that do not follow, and segments that must not be merged, pass unchanged.
func TestMiddleboxLeavesAlone(t *testing.T) {
	data := bytes.Repeat([]byte{1, 2}, 50)
	packets := [][]byte{
		packet.TCP{Seq: 1, Payload: data}.Bytes(),
		packet.TCP{Seq: 201, Payload: data}.Bytes(),         // after a hole
		packet.TCP{Seq: 301, Ack: 5, Payload: data}.Bytes(), // another ACK
		packet.TCP{Seq: 401, Ack: 5, Flags: "RA"}.Bytes(),   // a reset
		packet.TCP{Seq: 401, Ack: 5, Sum: packet.SumWrong, Payload: data}.Bytes(),
		packet.TCP{Seq: 501, Ack: 5}.Bytes(),
	}
	arrived, stats := cross(t, Config{Merge: 1}, packets)
	if !slices.EqualFunc(arrived, packets, bytes.Equal) || stats.Merged != 0 {
		t.Errorf("%d merged, or changed: % x", stats.Merged, arrived)
	}
}

// Only ECN-capable packets are marked, and their checksums stay correct.
func TestMarks(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		var packets [][]byte
		for tos := range uint8(4) {
			packets = append(packets, packet.TCP{IP: packet.IP{V6: v6, TOS: 0x54 | tos}, Payload: []byte{1, 2, 3}}.Bytes())
		}
		arrived, stats := cross(t, Config{Mark: 1}, packets)
		for i, b := range arrived {
			var p wire.Packet
			if wire.ParsePacket(b, &p) != wire.OK || p.VerifyChecksum(b, false) != wire.OK || p.CE != (i > 0) {
				t.Errorf("IPv6 %v, ECN %d: CE %v, % x", v6, i, p.CE, b)
			}
		}
		if len(arrived) != 4 || stats.Marked != 3 || !bytes.Equal(arrived[0], packets[0]) {
			t.Errorf("IPv6 %v: %+v", v6, stats)
		}
	}
}

func TestPathMTU(t *testing.T) {
	packets := append(segments(3000, 1000, false), segments(3000, 300, false)...)
	arrived, stats := cross(t, Config{PathMTU: 600}, packets)
	if len(arrived) != 10 || stats.TooLong != 3 {
		t.Errorf("%d arrived, %d were too long; want 10 and 3", len(arrived), stats.TooLong)
	}
}

// The seed determines all faults, and the older faults are the same with and without the newer ones.
func TestFaultsAreSeeded(t *testing.T) {
	c := Config{Seed: 5, Latency: 1000, Loss: 0.05, Duplicate: 0.05, Burst: Burst{Enter: 0.01, Leave: 0.2, Loss: 0.5}, LossAcks: 0.1,
		Overtaken: 0.05, OvertakenBy: 20, Forge: 0.05, Split: 0.1, Merge: 0.1, Corrupt: 0.05}
	packets := segments(300_000, 1000, false)
	first, one := cross(t, c, packets)
	again, two := cross(t, c, packets)
	if !slices.EqualFunc(first, again, bytes.Equal) || one != two {
		t.Errorf("the same seed gave two histories: %+v, %+v", one, two)
	}
	c.Seed = 6
	if other, _ := cross(t, c, packets); slices.EqualFunc(first, other, bytes.Equal) {
		t.Error("two seeds gave the same history")
	}
	_, plain := cross(t, Config{Seed: 5, Loss: 0.05}, packets)
	_, more := cross(t, Config{Seed: 5, Loss: 0.05, Overtaken: 0.5, OvertakenBy: 9, Forge: 0.5, Split: 0.5}, packets)
	if plain.Lost != more.Lost {
		t.Errorf("%d packets were lost, and %d with other faults beside", plain.Lost, more.Lost)
	}
}
