package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/clock"
)

// TestCarryRecords fails when a record has changed and the version has not. Raise
// carryVersion, and then the numbers here.
func TestCarryRecords(t *testing.T) {
	const version = 1
	for _, r := range []struct {
		name   string
		record any
		size   int
	}{
		{"state", stateRecord{}, 175}, {"moved", movedRecord{}, 579}, {"TIME-WAIT", timeWaitRecord{}, 71},
	} {
		if n := binary.Size(r.record); n != r.size || carryVersion != version {
			t.Errorf("the record %s has %d octets in version %d, and had %d in version %d", r.name, n, carryVersion, r.size, version)
		}
	}
}

// someState returns the State of a connection with everything in it.
func someState(t tb, control func(Start) Congestion) (State, clock.Instant) {
	now := scriptStart
	c := control(Start{Now: now, MSS: 1000, Cwnd: 10000, Threshold: NoThreshold})
	c.Acked(Ack{Now: now.Add(ms), Octets: 1000, SRTT: ms, RTT: ms, Una: 1001, Nxt: 2001, Limited: true})
	c.Loss(now.Add(2*ms), 8000)
	c.Acked(Ack{Now: now.Add(3 * ms), Octets: 4000, SRTT: ms, Una: 5001, Nxt: 6001, Limited: true})
	st := State{
		At: now, SndUna: 1, SndNxt: 101, SndWnd: 60000, MaxWnd: 60000, SndWL1: 7, RcvNxt: 9, RcvWup: 9, RcvWnd: 20000,
		MSS: 1000, MTU: 1500, RTO: 200 * ms, SRTT: 10 * ms, RTTVar: 5 * ms, Cwnd: 10000, Congestion: "cubic",
		Queue: bytes.Repeat([]byte{5}, 150), Unread: []byte("abc"),
		Moved: &Moved{RTOAt: now.Add(100 * ms), HeardAt: now.Add(-ms), FirstMTU: 1500, LinkMTU: 1500, Missing: 20, Control: c},
	}
	if err := st.Check(); err != nil {
		t.Fatal(err)
	}
	return st, now.Add(5 * ms)
}

// Octets that are no State are refused, and no octet of a State may be missing.
func TestDecodeStateRefuses(t *testing.T) {
	st, now := someState(t, NewCubic)
	good, err := st.AppendTo(nil, now)
	if err != nil {
		t.Fatal(err)
	}
	for n := range good {
		if _, err := DecodeState(good[:n], now); !errors.Is(err, ErrEncoding) {
			t.Fatalf("the first %d of %d octets: %v", n, len(good), err)
		}
	}
	for _, c := range []struct {
		name   string
		change func(b []byte) []byte
		want   string
	}{
		{"surplus", func(b []byte) []byte { return append(b, 0) }, "154 octets of data"},
		{"version", func(b []byte) []byte { b[0]++; return b }, "version 2, and this stag has 1"},
		{"kind", func(b []byte) []byte { b[1] = carriedTimeWait; return b }, "kind 2"},
		{"age", func(b []byte) []byte { b[2+7] = 0x40; return b }, "an instant"},
		{"no age", func(b []byte) []byte { clear(b[2:10]); b[2+7] = 0x80; return b }, "an instant"},
		{"scale", func(b []byte) []byte { b[2+8+32] = 15; return b }, "SndScale 15"},
	} {
		if _, err := DecodeState(c.change(bytes.Clone(good)), now); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	bad := *st.Moved
	bad.Missing = 151
	st.Moved = &bad
	b, err := st.AppendTo(nil, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeState(b, now); !errors.Is(err, ErrEncoding) {
		t.Errorf("more octets lost than there are: %v", err)
	}
}

// A congestion control whose numbers make no sense is refused.
func TestDecodeControlRefuses(t *testing.T) {
	for _, change := range []func(*controlRecord){
		func(r *controlRecord) { r.Kind = 9 },
		func(r *controlRecord) { r.MSS = 0 },
		func(r *controlRecord) { r.Cubic.Cwnd = math.NaN() },
		func(r *controlRecord) { r.Cubic.Cwnd = 0 },
		func(r *controlRecord) { r.Was.WMax = math.Inf(1) },
		func(r *controlRecord) { r.Cubic.WEst = -1 },
		func(r *controlRecord) { r.Slow.Left = -1 },
		func(r *controlRecord) { r.Cubic.Epoch = longestAge + 1 },
		func(r *controlRecord) { r.Kind = controlReno },
	} {
		st, now := someState(t, NewCubic)
		r := controlRecordOf(st.Moved.Control, now)
		if _, err := r.control(now); err != nil {
			t.Fatal(err)
		}
		change(&r)
		if _, err := r.control(now); !errors.Is(err, ErrEncoding) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

// A connection in TIME-WAIT answers in the other process as it would have here.
func TestCarryTimeWait(t *testing.T) {
	each(t, func(s *script) {
		w := waiting(s, withTS)
		b, err := w.AppendTo(nil, s.now)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeTimeWait(b, s.now-5e17)
		if err != nil {
			t.Fatal(err)
		}
		if d, want := got.Deadline().Sub(s.now-5e17), w.Deadline().Sub(s.now); d != want {
			t.Errorf("ends after %v, want %v", d, want)
		}
		if a, b := w.stamp.now(s.now.Add(7*ms)), got.stamp.now((s.now - 5e17).Add(7*ms)); a != b {
			t.Errorf("the timestamp clock shows %d, and %d in the other process", a, b)
		}
		for n := range b {
			if _, err := DecodeTimeWait(b[:n], s.now); !errors.Is(err, ErrEncoding) {
				t.Fatalf("the first %d of %d octets: %v", n, len(b), err)
			}
		}
		if _, err := DecodeTimeWait(append(b, 0), s.now); !errors.Is(err, ErrEncoding) {
			t.Errorf("surplus octet: %v", err)
		}
	})
}

// FuzzDecodeState: no octets make DecodeState or New panic, and a State that is decoded
// is encoded to the same octets.
func FuzzDecodeState(f *testing.F) {
	for _, control := range []func(Start) Congestion{NewReno, NewCubic} {
		st, now := someState(f, control)
		b, err := st.AppendTo(nil, now)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte{carryVersion, carriedTimeWait})
	f.Fuzz(func(t *testing.T, b []byte) {
		now := scriptStart
		if w, err := DecodeTimeWait(b, now); err == nil {
			if _, err := w.AppendTo(nil, now); err != nil {
				t.Fatal(err)
			}
		}
		st, err := DecodeState(b, now)
		if err != nil {
			return
		}
		once, err := st.AppendTo(nil, now)
		if err != nil {
			t.Fatal(err)
		}
		again, err := DecodeState(once, now)
		if err != nil {
			t.Fatal(err)
		}
		twice, err := again.AppendTo(nil, now)
		if err != nil || !bytes.Equal(once, twice) {
			t.Fatalf("encoded twice: %v, equal %v", err, bytes.Equal(once, twice))
		}
		m := newMemory(t, 128, 128, 2048, 64).withSlabs(8)
		if c, err := New(now, st, Config{SndSegs: 64, RcvSegs: 64, RcvBuf: 20000}, m); err == nil {
			c.Transmit(now, &sink{t: t, c: c, room: 8})
			c.Close()
		}
	})
}
