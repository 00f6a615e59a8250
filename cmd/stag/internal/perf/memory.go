package perf

import "fmt"

// Memory that a QP's messages come from and go to. As in perftest it is used
// again and again, and is small enough for a cache; unless octets are compared,
// when each message that can be under way has its own.
const cached = 256 << 10 // octets

// maxMemory is how much a run asks for at most, octets.
const maxMemory = 2 << 30

// slots is how many messages of a size there is memory for.
func (o Options) slots(size int) int {
	switch {
	case o.Test.Latency():
		return 1
	case o.Verify:
		return o.TxDepth
	}
	return min(max(cached/size, 1), o.TxDepth)
}

// receives is how many receives a QP posts: for the messages, and for notes.
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

// txDepth is how many messages are under way.
func (o Options) txDepth() int {
	if o.Test.Latency() {
		return 1
	}
	return o.TxDepth
}

// receiveSlots is how many receives have memory of their own.
func (o Options) receiveSlots() int {
	if o.Verify {
		return o.receives()
	}
	return min(max(cached/o.largest(), 1), o.receives())
}

// outgoing and incoming are octets of a QP's memory.
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

// heap is enough for the regions of all QPs: each of their parts begins a page.
func (o Options) heap() uint64 {
	const slack = 1 << 20
	if o.Perftest {
		return uint64(o.QPs)*uint64(2*o.area(mostPage)+creditLen) + slack
	}
	return uint64(o.QPs)*uint64(o.outgoing()+o.incoming()+slack) + slack
}

// checkMemory refuses what no machine should be asked for.
func (o Options) checkMemory() error {
	if need := o.heap(); need > maxMemory {
		return fmt.Errorf("%d MiB of memory would be needed, and %d is the limit: choose a smaller -s, -q, -t or -r", need>>20, maxMemory>>20)
	}
	return nil
}
