package afxdp

import "math"

// brim is how many packets we leave with the device at a time in copy mode. The
// kernel hands each to the driver at once, and a driver whose queue is full drops
// it: it says so (EBUSY), but nobody says beforehand how long that queue is. On a veth
// it is a ring of 256 places, some of which are given back in bunches, late. So the
// first packet lost teaches it; from then on fewer are sent, and none is lost.
//
// The zero value knows of no limit.
type brim struct {
	most  int  // packets with the device; 0: not known
	full  bool // it was reached, and too few have left since
	since int  // packets completed since most was last set
}

const (
	// leastBrim is how few packets with the device say nothing about its queue:
	// what is lost then is lost for another reason.
	leastBrim = 64

	// brimAfter is how many packets go without a loss until one more is tried: the
	// queue may have been full of what others sent.
	brimAfter = 1 << 16
)

// overflown learns that a packet was lost while so many were with the device,
// or some fewer: those whose completion was not seen yet count.
func (b *brim) overflown(with int) {
	if with >= leastBrim {
		b.most, b.since = max(with-with/8, leastBrim), 0
	}
}

// completed counts packets that have left the device without a loss.
func (b *brim) completed(n int) {
	if b.since += n; b.since >= brimAfter {
		b.since = 0
		if b.most != 0 {
			b.most++
		}
	}
}

// reached reports whether the device has as many as it takes.
func (b *brim) reached(with int) bool { return b.most != 0 && with >= b.most }

// room is how many packets more the device takes. Once it has none, an eighth
// must have left: packets in bunches are cheaper for everybody.
func (b *brim) room(with int) int {
	if b.most == 0 {
		return math.MaxInt
	}
	n := max(0, b.most-with)
	b.full = n < b.most/8 && (b.full || n == 0)
	if b.full {
		return 0
	}
	return n
}
