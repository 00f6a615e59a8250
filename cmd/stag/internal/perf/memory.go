package perf

import "fmt"

// cached is the size of a QP's message memory. As in perftest, messages use this memory in turn, and the memory fits
// into a cache. With Verify each outstanding message has memory of its own instead.
const cached = 256 << 10 // in octets

// maxMemory is the most memory that a run may use, in octets.
const maxMemory = 2 << 30

// slots returns the number of messages of a size for which a QP has memory.
func (o Options) slots(size int) int {
	switch {
	case o.Test.Latency():
		return 1
	case o.Verify:
		return o.TxDepth
	}
	return min(max(cached/size, 1), o.TxDepth)
}

// receives returns how many receives a QP posts for messages and for notes.
func (o Options) receives() int {
	if o.Test.op() != rdmaSend {
		return notesAtOnce
	}
	return o.rxDepth() + notesAtOnce
}

func (o Options) rxDepth() int {
	if o.Test.Latency() {
		return 1
	}
	return o.RxDepth
}

// txDepth returns how many messages may be outstanding.
func (o Options) txDepth() int {
	if o.Test.Latency() {
		return 1
	}
	return o.TxDepth
}

// receiveSlots returns how many receives have memory of their own.
func (o Options) receiveSlots() int {
	if o.Verify {
		return o.receives()
	}
	return min(max(cached/o.largest(), 1), o.receives())
}

// outgoing and incoming return the size of a QP's memory for each direction, in octets.
func (o Options) outgoing() (most int) {
	for _, size := range o.sizes() {
		most = max(most, size*o.slots(size))
	}
	return most
}

func (o Options) incoming() int {
	if o.Test.op() == rdmaSend {
		return o.largest() * o.receiveSlots()
	}
	return o.outgoing()
}

// heap returns enough memory for the regions of all QPs. Each QP's part begins on a page boundary.
func (o Options) heap() uint64 {
	const slack = 1 << 20
	if o.Perftest {
		return uint64(o.QPs)*uint64(2*o.area(mostPage)+creditLen) + slack
	}
	return uint64(o.QPs)*uint64(o.outgoing()+o.incoming()+slack) + slack
}

// checkMemory returns an error if the options need more than maxMemory.
func (o Options) checkMemory() error {
	if need := o.heap(); need > maxMemory {
		return fmt.Errorf("%d MiB of memory would be needed, and %d is the limit: choose a smaller -s, -q, -t or -r", need>>20, maxMemory>>20)
	}
	return nil
}
