package tcp

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/wire"
)

// sink accepts segments until room is used up, and fails for segments that must never be sent.
type sink struct {
	t    *testing.T
	c    *Conn
	room int
}

func (k *sink) Send(h *wire.TCPFields, f port.Frame, off, n int) bool {
	if n > 0 && off+n > int(f.Len) {
		k.t.Fatalf("sends %d octets of frame %+v from offset %d", n, f, off)
	}
	return k.SendCopy(h, make([]byte, n))
}

func (k *sink) SendCopy(h *wire.TCPFields, payload []byte) bool {
	n := len(payload)
	if k.room == 0 {
		return false
	}
	k.room--
	end := h.Seq.Add(seq.Len(n))
	if n > 0 && (end.After(k.c.dataEnd) || uint32(n) > max(k.c.path.emss(), k.c.path.emssOf(max(k.c.path.trial, k.c.path.mtu)))) {
		k.t.Fatalf("sends %d octets at %d, data ends at %d", n, h.Seq, k.c.dataEnd)
	}
	for i, b := range h.SACK[:h.NSACK] {
		if !b.Left.Before(b.Right) || (i > 0 && b.Left.Before(h.Ack)) {
			k.t.Fatalf("SACK block %d is %d-%d with ACK %d", i, b.Left, b.Right, h.Ack)
		}
	}
	return true
}

// tape returns the fuzzer's octets, and zeros when they are used up.
type tape []byte

func (p *tape) u8() byte {
	if len(*p) == 0 {
		return 0
	}
	b := (*p)[0]
	*p = (*p)[1:]
	return b
}

func (p *tape) u16() uint16 { return binary.BigEndian.Uint16([]byte{p.u8(), p.u8()}) }

// near returns a number around a: mostly close, sometimes anywhere.
func (p *tape) near(a seq.Num) seq.Num {
	switch d := p.u8(); d & 3 {
	case 0:
		return a
	case 1:
		return a + seq.Num(int32(int8(d)))
	case 2:
		return a + seq.Num(int32(int16(p.u16())))
	default:
		return a + seq.Num(uint32(p.u16())<<16|uint32(p.u16()))
	}
}

func (p *tape) segment(c *Conn) (s Segment, n int) {
	s.Flags = wire.ACK
	if f := p.u8(); f >= 0xf8 {
		s.Flags = wire.TCPFlags(p.u8())
	} else if f >= 0xf6 {
		s.Flags |= wire.FIN
	} else if f >= 0xe0 {
		s.Flags |= wire.ECE | wire.CWR&wire.TCPFlags(f<<7)
	}
	s.Seq, s.Ack = p.near(c.rcvNxt), p.near(c.sndUna)
	if p.u8()&1 == 0 {
		s.Ack = c.sndNxt
	}
	s.Window = p.u16()
	opt := p.u8()
	s.HasTS = opt&1 == 0
	s.TSVal, s.TSEcr = c.stamp.recent+uint32(int8(p.u8())), c.loss.undo.stamp+uint32(int8(p.u8()))
	s.NSACK = opt >> 1 % (wire.MaxSACK + 1)
	for i := range s.NSACK {
		s.SACK[i].Left = p.near(c.sndUna)
		s.SACK[i].Right = p.near(s.SACK[i].Left)
	}
	s.CE = opt&0x80 != 0
	return s, int(p.u16()) % 1400
}

// FuzzConn feeds an established connection arbitrary segments between arbitrary calls of all its methods: it must not
// panic, lose a frame or return one twice, and every invariant must hold after every call.
func FuzzConn(f *testing.F) {
	for _, seed := range []string{
		"", "\x00\x01\x00\x00\x00\x00\xff\xff\x00\x00\x00\x05\x78",
		"\x01\x00\x01\x05\x03\x01\x00\x01\x7f\x03\x02\x10\x03\x04\x00\x06\x00\x07\x00\x05",
		"\x02\x03\x80\x04\x03\x10\x02\xff\x03\xff\x04\x04\x04\x03\xff\x04\x03\xff",
	} {
		f.Add(uint32(0xffffff00), uint8(0), []byte(seed))
		f.Add(uint32(1000), uint8(0xff), []byte(seed))
	}
	f.Fuzz(play)
}

// TestRandomTapes plays longer tapes than a fuzzer finds in minutes.
func TestRandomTapes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	data := make([]byte, 3000)
	for range 1500 {
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		play(t, rng.Uint32(), uint8(rng.Uint32()), data)
	}
}

func play(t *testing.T, isn uint32, opts uint8, data []byte) {
	m := newMemory(t, 64, 64, 2048, 8)
	st := State{
		At: scriptStart, SndUna: seq.Num(isn), SndNxt: seq.Num(isn) + 700, SndWnd: 20000, MaxWnd: 20000,
		RcvNxt: seq.Num(isn * 3), RcvWup: seq.Num(isn*3) - 10, RcvWnd: 8010, MSS: 1460, MTU: 1500,
		SACK: opts&1 != 0, Timestamps: opts&2 != 0, NoDelay: opts&4 != 0, ECN: true,
		RcvScale: opts >> 4 % 15, SndScale: opts >> 3 & 1, Queue: make([]byte, 3000), Unread: make([]byte, 5),
		Keepalive: Keepalive{Idle: time.Minute}, Congestion: [...]string{"reno", "cubic"}[isn%2],
	}
	if opts&8 != 0 {
		st.UserTimeout = 30 * time.Second
	}
	c, err := New(scriptStart, st, Config{RcvBuf: 9000, SndBuf: 9000, SndSegs: 8, RcvSegs: 16, Seed: uint64(opts)}, m)
	if err != nil {
		t.Fatal(err)
	}
	w, out, now, p := newWatch(t, c, m), &sink{t: t, c: c}, scriptStart, tape(data)
	for range 400 {
		if len(p) == 0 {
			break
		}
		now = fuzzStep(t, c, m, out, now, &p)
		w.check()
		out.room = int(p.u8())
		c.Transmit(now, out)
		w.afterTransmit()
		c.Done()
	}
	c.Close()
	m.empty(t)
}

func fuzzStep(t *testing.T, c *Conn, m *memory, out *sink, now clock.Instant, p *tape) clock.Instant {
	switch p.u8() % 12 {
	case 0, 1, 2, 3:
		s, n := p.segment(c)
		f, b, ok := m.arrive(make([]byte, n))
		if !ok {
			t.Fatal("connection holds more than its share")
		}
		s.Payload, s.Frame = b, f
		if kept, _ := c.Receive(now, &s); !kept {
			m.Release(f)
		}
	case 4, 5:
		c.Emit(int(p.u16()) % (c.MaxEmit() + 1))
	case 6:
		c.Consume(int(p.u16()) % int(c.in.unread+1))
	case 7:
		now = now.Add(time.Duration(p.u16()) * time.Millisecond)
	case 8:
		if d := c.Deadline(); d != clock.Never {
			now = max(now, d)
		}
	case 9:
		c.TooBig(now, p.near(c.sndUna), p.u16())
	case 10:
		switch p.u8() {
		case 0:
			c.CloseWrite()
		case 2:
			c.Abort()
		case 3:
			c.Limit(now, p.u16())
		}
	case 11:
		m.share = 1 + int(p.u8())%16
	}
	return now
}
