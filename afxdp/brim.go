package afxdp

import "math"

// brim limits how many packets the device holds at a time in copy mode. The kernel
// passes each packet to the driver at once. A driver whose transmit queue is full drops
// the packet and returns EBUSY. The kernel does not report the length of that queue in
// advance. On a veth the queue is a ring of 256 slots. Some of these slots become free
// late and in batches. brim learns the limit from the first lost packet. From then on
// the queue sends fewer packets at a time, and none is lost.
//
// The zero value has no limit.
type brim struct {
	most  int  // limit of packets that the device holds; 0 means not known
	full  bool // the limit was reached, and few packets have completed since
	since int  // number of packets completed since most last changed
}

const (
	// leastBrim is the lowest limit. If a packet is lost while the device holds fewer
	// packets, the reason is not a full queue.
	leastBrim = 64

	// brimAfter is how many packets must complete without a loss before the limit rises
	// by one. The limit must be able to rise: it is too low if packets of other senders
	// were in the device's queue when brim learned it.
	brimAfter = 1 << 16
)

// overflown lowers the limit after a lost packet. with is the number of packets that
// the device held, including packets whose completion was not reaped yet.
func (b *brim) overflown(with int) {
	if with >= leastBrim {
		b.most, b.since = max(with-with/8, leastBrim), 0
	}
}

// completed counts n packets that the device has completed without a loss.
func (b *brim) completed(n int) {
	if b.since += n; b.since >= brimAfter {
		b.since = 0
		if b.most != 0 {
			b.most++
		}
	}
}

// reached reports whether a device that holds this many packets is at the limit.
func (b *brim) reached(with int) bool { return b.most != 0 && with >= b.most }

// room returns how many more packets the device takes. After room was 0, it stays 0
// until an eighth of the limit has completed, because sending in batches is cheaper.
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
