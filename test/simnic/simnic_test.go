package simnic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/packet"
	"pgregory.net/rapid"
)

func newLink(t testing.TB, c Config) *Link {
	t.Helper()
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// send sends one numbered packet of n octets and frees its chunk. It returns false if there is no chunk or no room.
func send(p port.Port, number uint64, n int) bool {
	var f [1]port.Frame
	if p.Room() == 0 || p.Take(f[:]) == 0 {
		return false
	}
	f[0].Len = uint32(n)
	b := p.Bytes(f[0])
	for i := range b {
		b[i] = byte(i)
	}
	binary.BigEndian.PutUint64(b[ethernetLen:], number)
	p.Send(f[:])
	p.Flush()
	p.Free(f[:])
	return true
}

// arrivals fetches and recycles what has arrived, and returns the packets' numbers.
func arrivals(p port.Port) (numbers []uint64) {
	var f [7]port.Frame
	for n := p.Receive(f[:]); n > 0; n = p.Receive(f[:]) {
		for _, f := range f[:n] {
			numbers = append(numbers, binary.BigEndian.Uint64(p.Bytes(f)[ethernetLen:]))
		}
		p.Recycle(f[:n])
	}
	return numbers
}

func TestLatencyAndRate(t *testing.T) {
	// 1000 octets take 8 µs at 1 Gb/s.
	l := newLink(t, Config{Latency: 100 * time.Microsecond, Rate: 1e9, Check: true})
	start := l.Now()
	send(l.A(), 1, 1000)
	send(l.A(), 2, 1000)
	for _, c := range []struct {
		at   time.Duration
		want []uint64
	}{
		{107999 * time.Nanosecond, nil},
		{108 * time.Microsecond, []uint64{1}},
		{115999 * time.Nanosecond, nil},
		{116 * time.Microsecond, []uint64{2}},
	} {
		l.Advance(start.Add(c.at))
		if got := arrivals(l.B()); !slices.Equal(got, c.want) {
			t.Errorf("at %v: %v, want %v", c.at, got, c.want)
		}
	}
	if l.Next() != clock.Never {
		t.Errorf("something is to happen at %d", l.Next())
	}
}

// Next returns the time of each event, and nothing happens in between.
func TestNext(t *testing.T) {
	l := newLink(t, Config{Latency: 50, Rate: 8e9}) // an octet a nanosecond
	start := l.Now()
	send(l.A(), 1, 100)
	send(l.B(), 2, 60)
	for _, want := range []time.Duration{60, 100, 110, 150} {
		if got := l.Next().Sub(start); got != want {
			t.Fatalf("next at %d, want %d", got, want)
		}
		l.Advance(l.Next())
	}
	if a, b := arrivals(l.A()), arrivals(l.B()); len(a) != 1 || len(b) != 1 || l.Next() != clock.Never {
		t.Errorf("arrived %v and %v, next %d", a, b, l.Next())
	}
}

func TestNothingMovesBeforeFlush(t *testing.T) {
	l := newLink(t, Config{})
	var f [1]port.Frame
	l.A().Take(f[:])
	f[0].Len = 100
	l.A().Send(f[:])
	if l.Next() != clock.Never || !l.A().InFlight(f[0]) {
		t.Fatal("moved, or not in flight, after Send")
	}
	l.A().Flush()
	l.Advance(l.Next())
	if l.A().InFlight(f[0]) || len(arrivals(l.B())) != 1 {
		t.Fatal("still in flight, or not there, after Flush")
	}
}

func TestFullRingAndFullQueue(t *testing.T) {
	l := newLink(t, Config{Rate: 1e9, TxRing: 4, QueueLen: 2})
	var f [6]port.Frame
	l.A().Take(f[:])
	for i := range f {
		f[i].Len = 100
	}
	if n := l.A().Send(f[:]); n != 4 || l.A().Room() != 0 {
		t.Errorf("the ring of 4 took %d, has room for %d", n, l.A().Room())
	}
	l.A().Flush()
	if s := l.Stats(A); s.Sent != 4 || s.QueueFull != 2 {
		t.Errorf("%+v, want 4 sent, 2 beyond the queue", s)
	}
	if got := l.A().Room(); got != 2 {
		t.Errorf("room %d while 2 wait, want 2", got)
	}
}

func TestNoReceiveChunk(t *testing.T) {
	l := newLink(t, Config{Frames: 3})
	for i := range 3 {
		send(l.A(), uint64(i), 100)
		l.Advance(l.Now() + 1)
	}
	send(l.A(), 3, 100)
	l.Advance(l.Now() + 1)
	if s := l.Stats(A); s.Delivered != 3 || s.NoFrame != 1 {
		t.Errorf("%+v, want 3 delivered, 1 without chunk", s)
	}
	if got := arrivals(l.B()); !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("arrived %v", got)
	}
}

func TestDownAndUp(t *testing.T) {
	l := newLink(t, Config{Latency: 10})
	send(l.A(), 1, 100)
	l.Advance(l.Now() + 1)
	l.SetDown(true)
	send(l.A(), 2, 100)
	if err := l.A().Flush(); !errors.Is(err, syscall.ENETDOWN) {
		t.Errorf("Flush says %v", err)
	}
	l.Advance(l.Now() + 100)
	l.SetDown(false)
	send(l.A(), 3, 100)
	l.Advance(l.Now() + 100)
	if got := arrivals(l.B()); !slices.Equal(got, []uint64{3}) || l.A().Flush() != nil {
		t.Errorf("arrived %v", got)
	}
	if s := l.Stats(A); s.Down != 2 {
		t.Errorf("%+v, want 2 lost to the link being down", s)
	}
}

func TestDropHook(t *testing.T) {
	l := newLink(t, Config{Drop: func(from Side, b []byte) bool {
		return from == A && binary.BigEndian.Uint64(b[ethernetLen:]) == 2
	}})
	for i := range 3 {
		send(l.A(), uint64(i+1), 60)
		send(l.B(), uint64(i+1), 60)
	}
	l.Advance(l.Now() + 1)
	if a, b := arrivals(l.A()), arrivals(l.B()); !slices.Equal(a, []uint64{1, 2, 3}) || !slices.Equal(b, []uint64{1, 3}) {
		t.Errorf("arrived %v and %v", a, b)
	}
}

func TestSteeringRecord(t *testing.T) {
	record := bytes.Repeat([]byte{7}, port.RecordLen)
	l := newLink(t, Config{Record: func(b []byte) []byte {
		if binary.BigEndian.Uint64(b[ethernetLen:]) == 1 {
			return record
		}
		return nil
	}})
	send(l.A(), 1, 60)
	send(l.A(), 2, 60)
	l.Advance(l.Now() + 1)
	var f [2]port.Frame
	l.B().Receive(f[:])
	if got := l.B().Record(f[0]); !bytes.Equal(got, record) {
		t.Errorf("record % x", got)
	}
	if got := l.B().Record(f[1]); !bytes.Equal(got, make([]byte, port.RecordLen)) {
		t.Errorf("record of a packet without one % x", got)
	}
	if plain := newLink(t, Config{}); true {
		send(plain.A(), 1, 60)
		plain.Advance(plain.Now() + 1)
		plain.B().Receive(f[:1])
		if plain.B().Record(f[0]) != nil {
			t.Error("a record without metadata support")
		}
	}
}

// history runs a link with every fault and returns what arrived and when.
func history(t testing.TB, seed uint64) (log []uint64, stats Stats) {
	l := newLink(t, Config{Seed: seed, Latency: 1000, Rate: 10e9, Loss: 0.1, Duplicate: 0.1, Reorder: 0.1, Corrupt: 0.1, Check: true})
	for number := uint64(0); number < 2000 || l.Next() != clock.Never; {
		l.Advance(max(l.Next(), l.Now()))
		if number < 2000 && send(l.A(), number, 60+int(number%1000)) {
			number++
		}
		for _, n := range arrivals(l.B()) {
			log = append(log, uint64(l.Now()), n)
		}
	}
	return log, l.Stats(A)
}

func TestSameSeedSameHistory(t *testing.T) {
	first, stats := history(t, 1)
	again, _ := history(t, 1)
	other, _ := history(t, 2)
	if !slices.Equal(first, again) {
		t.Error("the same seed gave two histories")
	}
	if slices.Equal(first, other) {
		t.Error("two seeds gave the same history")
	}
	if got := stats.Lost + stats.Delivered + stats.NoFrame; got != stats.Sent+stats.Duplicated {
		t.Errorf("%+v: %d packets accounted for", stats, got)
	}
	for name, n := range map[string]uint64{"lost": stats.Lost, "duplicated": stats.Duplicated, "reordered": stats.Reordered, "corrupted": stats.Corrupted} {
		if n < 100 || n > 300 {
			t.Errorf("%d of 2000 %s at a probability of 0.1", n, name)
		}
	}
}

// The receiver's checks reject every corrupted packet.
func TestCorruptionIsCaught(t *testing.T) {
	l := newLink(t, Config{Seed: 3, Corrupt: 1})
	frame := packet.TCP{TS: &packet.TS{}, Payload: []byte("some octets of payload")}.Bytes()
	for range 5000 {
		var f [1]port.Frame
		l.A().Take(f[:])
		f[0].Len = uint32(copy(l.A().Bytes(f[0]), frame))
		l.A().Send(f[:])
		l.A().Flush()
		l.A().Free(f[:])
		l.Advance(l.Now() + 1)
		l.B().Receive(f[:])
		b := l.B().Bytes(f[0])
		var p wire.Packet
		if bytes.Equal(b, frame) || wire.ParsePacket(b, &p) == wire.OK && p.VerifyChecksum(b, true) == wire.OK {
			t.Fatalf("passed: % x", b)
		}
		l.B().Recycle(f[:])
	}
}

// Without these faults, packets are neither reordered nor duplicated.
func TestPerfectLinkKeepsOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		l := newLink(t, Config{
			Latency: time.Duration(rapid.IntRange(0, 1000).Draw(rt, "latency")),
			Rate:    rapid.Uint64Range(0, 1e10).Draw(rt, "rate"),
			Frames:  64, Check: true,
		})
		var got []uint64
		total := rapid.IntRange(1, 200).Draw(rt, "packets")
		for number := 0; number < total || l.Next() != clock.Never; {
			if number < total && rapid.Bool().Draw(rt, "send") && send(l.A(), uint64(number), rapid.IntRange(60, 1500).Draw(rt, "octets")) {
				number++
			}
			l.Advance(max(l.Next(), l.Now()))
			got = append(got, arrivals(l.B())...)
		}
		for i, n := range got {
			if uint64(i) != n {
				rt.Fatalf("packet %d came in place of %d", n, i)
			}
		}
		if len(got) != total {
			rt.Fatalf("%d of %d packets came", len(got), total)
		}
	})
}

func TestSleep(t *testing.T) {
	l := newLink(t, Config{})
	e := l.ends[A]
	arm := func(d, want time.Duration) {
		t.Helper()
		if limit, err := e.Arm(d); limit != want || err != nil {
			t.Errorf("Arm(%d): %d, %v; want %d", d, limit, err, want)
		}
	}
	arm(0, 0)
	arm(time.Second, time.Second)
	if err := e.Sleep(time.Second); !errors.Is(err, ErrVirtualTime) {
		t.Errorf("Sleep: %v", err)
	}
	e.Wake()
	arm(-1, 0)
	arm(time.Second, time.Second)
	e.Wake() // between the two
	if err := e.Sleep(time.Second); err != nil {
		t.Errorf("Sleep after Wake: %v", err)
	}
	send(l.B(), 1, 60)
	l.Advance(l.Now() + 1)
	arm(-1, 0)
}

func TestConfigMistakes(t *testing.T) {
	_, err := New(Config{Loss: 1.5, Corrupt: -1, MTU: 4000, FrameSize: 3000, Latency: -1,
		Burst: Burst{Enter: 0.1}, Overtaken: 0.1, Split: 2})
	if err == nil {
		t.Fatal("no complaint")
	}
	for _, want := range []string{"Loss", "Corrupt", "MTU 4000", "power of two", "negative", "never leaves", "OvertakenBy", "Split 2"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	l := newLink(t, Config{Seed: 1, Latency: 1000, Rate: 10e9, Loss: 0.05, Duplicate: 0.05, Reorder: 0.05, Corrupt: 0.05,
		Burst: Burst{Enter: 0.01, Leave: 0.5, Loss: 0.5}, LossAcks: 0.1, Overtaken: 0.05, OvertakenBy: 20, Forge: 0.1, Split: 0.1, Merge: 0.1})
	var f [16]port.Frame
	round := func() {
		for s, p := range [2]port.Port{l.A(), l.B()} {
			n := p.Take(f[:])
			for i := range f[:n] {
				f[i].Len = uint32(60 + 90*i + s)
			}
			p.Send(f[:n])
			p.Flush()
			p.Free(f[:n])
		}
		l.Advance(l.Now().Add(5 * time.Microsecond))
		for _, p := range [2]port.Port{l.A(), l.B()} {
			for n := p.Receive(f[:]); n > 0; n = p.Receive(f[:]) {
				p.Recycle(f[:n])
			}
		}
	}
	if n := testing.AllocsPerRun(10000, round); n != 0 {
		t.Errorf("%v allocations a round", n)
	}
	if s := l.Stats(B); s.Delivered < 10000 {
		t.Errorf("only %d packets delivered", s.Delivered)
	}
}
