package tcp

import (
	"bytes"
	"testing"

	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/seq"
)

// poor is a Memory that only counts receive frames.
type poor struct {
	Memory
	held map[uint64]bool
}

func (p *poor) Release(f port.Frame) {
	if !p.held[f.Addr] {
		panic("a frame was released that was not held")
	}
	delete(p.held, f.Addr)
}

func (p *poor) Share() int { return 8 }
func (p *poor) Spare() int { return 0 }

// poorInbox returns an inbox over a poor memory, and its rings.
func poorInbox() (*inbox, *poor, *Rings) {
	p, r := &poor{held: map[uint64]bool{}}, NewRings()
	b := newInbox(p, 64, &r.runs)
	return &b, p, r
}

// put appends octets in a frame of their own, and returns how many were accepted.
func (p *poor) put(b *inbox, at uint64, s seq.Num, d []byte) int {
	n, kept := b.put(s, append(make([]byte, 0, 2048), d...), port.Frame{Addr: at})
	if kept {
		p.held[at] = true
	}
	return n
}

// content returns all in-order octets.
func content(b *inbox) (all []byte) {
	for i := range b.count {
		all = append(all, b.at(i).data...)
	}
	return all
}

func fill(n int, c byte) []byte { return bytes.Repeat([]byte{c}, n) }

func TestUnburdenFreesFrames(t *testing.T) {
	b, p, r := poorInbox()
	b.push(held{seq: 90, data: []byte("0123456789")[:10:10], heap: true}) // State.Unread
	p.put(b, 1, 100, fill(1400, 'a'))
	p.put(b, 2, 1500, fill(1400, 'b'))
	want := content(b)
	b.unburden(r)
	if len(p.held) != 0 || b.frames != 0 || !bytes.Equal(content(b), want) {
		t.Fatalf("%d frames are held, %d counted, %d octets are there of %d", len(p.held), b.frames, len(content(b)), len(want))
	}

	// After them, only what fits is accepted.
	if n := p.put(b, 3, 2900, fill(1400, 'c')); n != spillLens[0]-2800 {
		t.Errorf("%d octets taken, want the %d that fit", n, spillLens[0]-2800)
	}
	if n := p.put(b, 4, 2900+seq.Num(spillLens[0]-2800), fill(1, 'd')); n != 0 || len(p.held) != 0 {
		t.Errorf("%d octets taken without a share, %d frames held", n, len(p.held))
	}

	// The buffer is returned with the last of its octets, and frames are kept again.
	want = content(b)
	b.consume(20)
	b.unburden(r)
	if got := content(b); !bytes.Equal(got, want[20:]) {
		t.Errorf("%d octets are left, want %d", len(got), len(want)-20)
	}
	b.consume(len(want) - 20)
	if len(r.spills[0]) != 1 || b.spill != nil || b.unread != 0 {
		t.Errorf("%d buffers have come back, %d octets are unread", len(r.spills[0]), b.unread)
	}
	if n := p.put(b, 5, 9000, fill(1400, 'e')); n != 1400 || len(p.held) != 1 {
		t.Errorf("%d octets taken after all have been consumed", n)
	}
}

// Octets that arrive while others are still in the buffer are added to it.
func TestUnburdenAgain(t *testing.T) {
	b, p, r := poorInbox()
	p.put(b, 1, 100, fill(1000, 'a'))
	b.unburden(r)
	b.consume(500)
	// Such as pull appends.
	p.held[2] = true
	b.push(held{seq: 1100, data: fill(1000, 'b'), frame: port.Frame{Addr: 2}})
	want := content(b)
	b.unburden(r)
	if len(p.held) != 0 || b.frames != 0 || !bytes.Equal(content(b), want) || b.at(0).seq != 600 {
		t.Fatalf("%d frames are held, %d of %d octets are there, from %d on", len(p.held), len(content(b)), len(want), b.at(0).seq)
	}
	b.drain()
	if len(r.spills[0]) != 1 {
		t.Errorf("%d buffers have come back, want 1", len(r.spills[0]))
	}
}

// Octets that no longer fit move into a larger buffer.
func TestUnburdenLarger(t *testing.T) {
	b, p, r := poorInbox()
	p.put(b, 1, 0, fill(1400, 'a'))
	b.unburden(r)
	for i := range uint64(4) { // such as pull appends
		p.held[2+i] = true
		b.push(held{seq: seq.Num(1400 * (i + 1)), data: fill(1400, byte('b'+i)), frame: port.Frame{Addr: 2 + i}})
	}
	want := content(b)
	b.unburden(r)
	if len(p.held) != 0 || !bytes.Equal(content(b), want) || len(b.spill) != spillLens[1] || len(r.spills[0]) != 1 {
		t.Fatalf("%d frames are held, %d of %d octets are there, in %d; %d small buffers have come back",
			len(p.held), len(content(b)), len(want), len(b.spill), len(r.spills[0]))
	}
	b.consume(len(want))
	if len(r.spills[1]) != 1 || b.spill != nil {
		t.Errorf("%d large buffers have come back, want 1", len(r.spills[1]))
	}
}

// Octets that do not fit stay in their frames, and no more are accepted.
func TestUnburdenTooMuch(t *testing.T) {
	b, p, r := poorInbox()
	for i := range 4 { // of 20,000 octets each, more than any real frame
		p.held[uint64(i)] = true
		b.push(held{seq: seq.Num(20000 * i), data: fill(20000, byte('a'+i)), frame: port.Frame{Addr: uint64(i)}})
	}
	before, want := len(p.held), content(b)
	b.unburden(r)
	n := p.put(b, 9, 80000, fill(2000, 'z'))
	want = append(want, fill(n, 'z')...)
	if len(p.held) > before || b.spill != nil || !bytes.Equal(content(b), want) {
		t.Fatalf("%d frames are held, want at most the %d from before; %d octets of %d", len(p.held), before, len(content(b)), len(want))
	}
	b.consume(1)
	if b.share() == 0 {
		t.Error("no share after octets have been consumed")
	}
}
