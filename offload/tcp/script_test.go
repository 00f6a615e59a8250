package tcp

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

const ms = time.Millisecond

// script drives one connection on virtual time. Segments are written as
//
//	FLAGS from:to ack N [win N] [sack a-b,c-d] [ts val/echo] [ce] [ect]
//
// with numbers relative to the initial ones, as tcpdump has them: our first
// octet and the peer's first octet are both 1. Octet n of either stream has
// the value byte(n). win is the field as on the wire.
type script struct {
	*testing.T
	iss, irs seq.Num
	c        *Conn
	m        *memory
	w        *watch
	now      clock.Instant
	sent     []string
	room     int // segments that Send takes; negative: no limit
	lastDrop Drop
}

const scriptStart clock.Instant = 1e9

// each runs a script with initial sequence numbers that do not wrap, and with ones that wrap within the first octets
// of either direction.
func each(t *testing.T, run func(s *script)) {
	t.Helper()
	for _, isn := range [][2]seq.Num{{1000, 5000}, {0xffffff00, 0xfffffff0}, {0xfffffffe, 0x7ffffff0}, {0x7fffff00, 0xfffff800}} {
		t.Run(fmt.Sprintf("%x-%x", uint32(isn[0]), uint32(isn[1])), func(t *testing.T) {
			run(&script{T: t, iss: isn[0], irs: isn[1], now: scriptStart, room: -1})
		})
	}
}

// open makes the connection: EMSS 1000, no options, a congestion window of ten
// segments, and a peer whose window is 60000.
func (s *script) open(change ...func(*State, *Config)) {
	s.Helper()
	st := State{
		At: s.now, SndUna: s.iss + 1, SndNxt: s.iss + 1, SndWnd: 60000, MaxWnd: 60000, SndWL1: s.irs + 1,
		RcvNxt: s.irs + 1, RcvWup: s.irs + 1, RcvWnd: 20000,
		MSS: 1000, MTU: 1500, RTO: 200 * ms, SRTT: 10 * ms, RTTVar: 5 * ms, Cwnd: 10000, NoDelay: true,
	}
	cfg := Config{RcvBuf: 20000, SndSegs: 64, RcvSegs: 64}
	s.m = newMemory(s.T, 128, 128, 2048, 64)
	for _, f := range change {
		f(&st, &cfg)
	}
	for i := range st.Queue {
		st.Queue[i] = byte(i + 1)
	}
	c, err := New(s.now, st, cfg, s.m) // s.m: change may have replaced it
	if err != nil {
		s.Fatal(err)
	}
	s.c, s.w = c, newWatch(s.T, c, s.m)
	s.Cleanup(func() { c.Close(); s.m.empty(s.T) })
}

func withSACK(st *State, _ *Config)  { st.SACK = true }
func withNagle(st *State, _ *Config) { st.NoDelay = false }
func withTS(st *State, _ *Config)    { st.Timestamps, st.TSNow = true, 1000 }

// emit queues n octets in one Emit.
func (s *script) emit(n int) {
	s.Helper()
	at := s.c.dataEnd
	b := s.c.Emit(n)
	if b == nil {
		s.Fatalf("Emit(%d) has no room", n)
	}
	for i := range b {
		b[i] = byte(uint32(at-s.iss) + uint32(i))
	}
	s.w.check()
}

// write queues n octets in the largest possible segments.
func (s *script) write(n int) {
	s.Helper()
	for n > 0 {
		k := min(n, s.c.MaxEmit())
		s.emit(k)
		n -= k
	}
}

// read consumes n octets and checks them.
func (s *script) read(n int) {
	s.Helper()
	var views [4][]byte
	for n > 0 {
		k := s.c.Views(views[:])
		if k == 0 {
			s.Fatalf("%d octets to read are missing", n)
		}
		v := views[0][:min(n, len(views[0]))]
		at := uint32(s.c.rcvNxt-s.irs) - uint32(b2i(s.c.peerFin)) - s.c.in.unread
		for i, b := range v {
			if b != byte(at+uint32(i)) {
				s.Fatalf("octet %d is %d", at+uint32(i), b)
			}
		}
		n -= len(v)
		s.c.Consume(len(v))
		s.w.check()
	}
}

func (s *script) at(d time.Duration) {
	s.Helper()
	if t := scriptStart.Add(d); t < s.now {
		s.Fatalf("script goes back in time to %v", d)
	} else {
		s.now = t
	}
}

// gets delivers one segment at time d.
func (s *script) gets(d time.Duration, text string) {
	s.Helper()
	s.at(d)
	seg, n := s.parse(text)
	payload := make([]byte, n)
	for i := range payload {
		payload[i] = byte(uint32(seg.Seq-s.irs) + uint32(i))
	}
	f, b, ok := s.m.arrive(payload)
	if !ok {
		s.Fatal("no receive frame left in the test's pool")
	}
	seg.Payload, seg.Frame = b, f
	kept, why := s.c.Receive(s.now, &seg)
	if !kept {
		s.m.Release(f)
	}
	s.lastDrop = why
	s.w.check()
}

// drops delivers a segment as gets does, and demands that it is dropped because of why.
func (s *script) drops(d time.Duration, text string, why Drop) {
	s.Helper()
	s.gets(d, text)
	if s.lastDrop != why {
		s.Errorf("%v %q: reason %v, want %v", d, text, s.lastDrop, why)
	}
}

// sends runs Transmit at time d and demands exactly these segments. It compares only the options that the text names,
// and SACK.
func (s *script) sends(d time.Duration, want ...string) {
	s.Helper()
	s.at(d)
	s.sent = s.sent[:0]
	s.c.Transmit(s.now, s)
	s.w.afterTransmit()
	for i := range max(len(want), len(s.sent)) {
		w, g := "nothing", "nothing"
		if i < len(want) {
			w = want[i]
		}
		if i < len(s.sent) {
			g = trimTo(s.sent[i], w)
		}
		if w != g {
			s.Errorf("at %v, segment %d:\n got %s\nwant %s", d, i+1, g, w)
		}
	}
	if s.Failed() {
		s.Fatalf("all of them:\n%s\n%+v", strings.Join(s.sent, "\n"), s.c.Info())
	}
}

// trimTo returns got without the options that want does not name.
func trimTo(got, want string) string {
	for _, key := range []string{" win ", " ts "} {
		if i := strings.Index(got, key); i >= 0 && !strings.Contains(want, key) {
			j := len(got)
			if k := strings.Index(got[i+len(key):], " "); k >= 0 {
				j = i + len(key) + k
			}
			got = got[:i] + got[j:]
		}
	}
	return got
}

const flagLetters = "FSRPAUEC"

// Send implements Output.
func (s *script) Send(h *wire.TCPFields, f port.Frame, off, n int) bool {
	if n == 0 {
		return s.SendCopy(h, nil)
	}
	return s.SendCopy(h, s.m.Bytes(f)[off:off+n])
}

// SendCopy implements Output.
func (s *script) SendCopy(h *wire.TCPFields, payload []byte) bool {
	n := len(payload)
	if s.room == 0 {
		return false
	}
	s.room--
	var b strings.Builder
	for i := range len(flagLetters) {
		if h.Flags&(1<<i) != 0 {
			b.WriteByte(flagLetters[i])
		}
	}
	rel := uint32(h.Seq - s.iss)
	fmt.Fprintf(&b, " %d:%d ack %d win %d", int32(rel), int32(rel)+int32(n), int32(h.Ack-s.irs), h.Window)
	for i, k := range h.SACK[:h.NSACK] {
		sep := ","
		if i == 0 {
			sep = " sack "
		}
		fmt.Fprintf(&b, "%s%d-%d", sep, int32(k.Left-s.irs), int32(k.Right-s.irs))
	}
	if h.HasTS {
		fmt.Fprintf(&b, " ts %d/%d", h.TSVal, h.TSEcr)
	}
	if h.ECT {
		b.WriteString(" ect")
	}
	if n > 0 {
		for i, v := range payload {
			if v != byte(rel+uint32(i)) {
				s.Errorf("segment %s carries %d as octet %d", b.String(), v, rel+uint32(i))
				break
			}
		}
	}
	s.sent = append(s.sent, b.String())
	return true
}

// parse reads a segment of the peer.
func (s *script) parse(text string) (seg Segment, n int) {
	s.Helper()
	words := strings.Fields(text)
	for _, l := range words[0] {
		seg.Flags |= 1 << strings.IndexRune(flagLetters, l)
	}
	var from, to int
	s.scan(words[1], "%d:%d", &from, &to)
	seg.Seq = s.irs.Add(seq.Len(from))
	seg.Window = 60000
	for i := 2; i < len(words); i++ {
		if words[i] == "ce" {
			seg.CE = true
			continue
		}
		value := words[i+1]
		switch words[i] {
		case "ack":
			var a int
			s.scan(value, "%d", &a)
			seg.Ack = s.iss.Add(seq.Len(a))
		case "win":
			s.scan(value, "%d", &seg.Window)
		case "ts":
			seg.HasTS = true
			s.scan(value, "%d/%d", &seg.TSVal, &seg.TSEcr)
		case "sack":
			for j, blk := range strings.Split(value, ",") {
				var l, r int
				s.scan(blk, "%d-%d", &l, &r)
				seg.SACK[j] = wire.SACKBlock{Left: s.iss.Add(seq.Len(l)), Right: s.iss.Add(seq.Len(r))}
				seg.NSACK++
			}
		default:
			s.Fatalf("segment %q: what is %q?", text, words[i])
		}
		i++
	}
	return seg, to - from
}

func (s *script) scan(text, format string, into ...any) {
	s.Helper()
	if _, err := fmt.Sscanf(text, format, into...); err != nil {
		s.Fatalf("%q is not %q: %v", text, format, err)
	}
}

// is demands a phase.
func (s *script) is(p Phase) {
	s.Helper()
	if s.c.Phase() != p {
		s.Fatalf("state is %v, want %v", s.c.Phase(), p)
	}
}

// ended demands that the connection has ended with err.
func (s *script) ended(err error) {
	s.Helper()
	if done, got := s.c.Done(); !done || got != err {
		s.Fatalf("done %v with %v, want %v", done, got, err)
	}
}

// deadline demands that the next deadline is at d.
func (s *script) deadline(d time.Duration) {
	s.Helper()
	if got := s.c.Deadline(); got != scriptStart.Add(d) {
		s.Fatalf("deadline at %v, want %v", got.Sub(scriptStart), d)
	}
}

func itoa(n int) string { return fmt.Sprint(n) }

func seqOf(n int) seq.Num { return seq.Num(uint32(n)) }
