package afxdp

import "math"

// brim limits how many packets the device has at a time in copy mode. The kernel
// hands each packet to the driver at once. A driver whose queue is full drops the
// packet and returns EBUSY; the kernel does not report the length of that queue
// beforehand. On a veth the queue is a ring of 256 places, some of which come back
// late and in batches. brim learns the limit from the first lost packet; from then on
// the queue sends fewer at a time, and none is lost.
//
// The zero value has no limit.
type brim struct {
	most  int  // packets with the device; 0: not known
	full  bool // most was reached, and too few packets have left the device since
	since int  // packets completed since most was last set
}

const (
	// leastBrim is the lowest limit. A packet that is lost while the device has fewer
	// packets than this is lost for a reason other than a full queue.
	leastBrim = 64

	// brimAfter is how many packets must complete without a loss before the limit
	// rises by one: the queue may have been full of packets of other senders.
	brimAfter = 1 << 16
)

// overflown lowers the limit after a packet was lost. with is how many packets
// the device had, including those whose completion was not reaped yet.
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

// reached reports whether a device with so many packets is at the limit.
func (b *brim) reached(with int) bool { return b.most != 0 && with >= b.most }

// room returns how many more packets the device takes. After room was 0, it
// stays 0 until an eighth of the limit has left: sending in batches is cheaper.
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
