package engine

import (
	"context"

	"github.com/stag-rdma/stag/offload/tcp"
	"github.com/stag-rdma/stag/offload/wire"
)

// Drop is the reason why the engine itself did not deliver a packet. wire.Reason is the
// reason of the parser, and tcp.Drop that of the connection.
type Drop uint8

const (
	_            Drop = iota
	DropNoFlow        // no flow has this tuple
	DropParkFull      // too many segments are parked already
	DropPassFull      // the ring to the owner's engine is full
	DropNoOwner       // the owner's queue has no engine
	numDrops
)

var dropNames = [numDrops]string{
	DropNoFlow:   "no_flow",
	DropParkFull: "park_full",
	DropPassFull: "pass_full",
	DropNoOwner:  "no_owner",
}

func (d Drop) String() string { return dropNames[d] }

// Counters counts packets, octets and events since the engine was made.
type Counters struct {
	Steps               uint64 // steps that did some work
	RxPackets, RxOctets uint64 // packets and octets that arrived at the port, with Ethernet headers
	TxPackets, TxOctets uint64 // packets and octets queued for transmission, with Ethernet headers
	Parked              uint64 // segments held for a take-over
	PassedOut, PassedIn uint64 // segments passed to other engines, and received from other engines
	ForeignRx           uint64 // segments of the engine's connections that arrived at another port of the adapter
	ForeignCopied       uint64 // those of them whose data was copied out of the other port's frame; the others were used in place
	PartialSums         uint64 // TCP checksum fields that held only the sum of the pseudo-header
	StaleRecords        uint64 // steering records that did not match their packet
	Unrecorded          uint64 // packets whose flow was found by the tuple, without a steering record
	Tagged              uint64 // segments that begin with a tagged FPDU, according to their steering record
	TxCopies            uint64 // payloads copied because the kernel still read the frame
	TxSumsLeft          uint64 // segments whose TCP checksum was left to the driver or the kernel
	TxRingFull          uint64 // times that a segment had to wait for the transmit ring
	NoTxFrame           uint64 // times that a segment had to wait for a transmit frame
	FlushErrors         uint64 // times that the link accepted no frame

	drops [numDrops]uint64
	parse [wire.NumReasons]uint64
	tcp   [tcp.NumDrops]uint64
}

// Drops calls fn for every reason for which packets were dropped or ignored.
func (c *Counters) Drops(fn func(layer, reason string, n uint64)) {
	c.Each(func(layer, reason string, n uint64) {
		if n != 0 {
			fn(layer, reason, n)
		}
	})
}

// Each calls fn for every reason for which packets can be dropped or ignored, always in
// the same order. n may be 0.
func (c *Counters) Each(fn func(layer, reason string, n uint64)) {
	for i, n := range c.drops {
		if i != 0 {
			fn("engine", Drop(i).String(), n)
		}
	}
	for i, n := range c.parse {
		if wire.Reason(i) != wire.OK {
			fn("wire", wire.Reason(i).String(), n)
		}
	}
	for i, n := range c.tcp {
		if tcp.Drop(i) != tcp.DropNone { // DropNone stands for used segments
			fn("tcp", tcp.Drop(i).String(), n)
		}
	}
}

// Counters reads the engine's counters between two steps, also those of an engine that has
// stopped.
func (e *Engine) Counters(ctx context.Context) (Counters, error) {
	var c Counters
	if err := e.between(ctx, func() { c = e.count }); err != nil {
		return Counters{}, err // c is not valid: fn may still write to it
	}
	return c, nil
}

// Add adds the counters of another engine.
func (c *Counters) Add(o *Counters) {
	for _, f := range []struct {
		sum *uint64
		n   uint64
	}{
		{&c.Steps, o.Steps},
		{&c.RxPackets, o.RxPackets}, {&c.RxOctets, o.RxOctets},
		{&c.TxPackets, o.TxPackets}, {&c.TxOctets, o.TxOctets},
		{&c.Parked, o.Parked}, {&c.PassedOut, o.PassedOut}, {&c.PassedIn, o.PassedIn},
		{&c.ForeignRx, o.ForeignRx}, {&c.ForeignCopied, o.ForeignCopied},
		{&c.PartialSums, o.PartialSums}, {&c.StaleRecords, o.StaleRecords}, {&c.Unrecorded, o.Unrecorded},
		{&c.Tagged, o.Tagged},
		{&c.TxCopies, o.TxCopies}, {&c.TxSumsLeft, o.TxSumsLeft}, {&c.TxRingFull, o.TxRingFull}, {&c.NoTxFrame, o.NoTxFrame},
		{&c.FlushErrors, o.FlushErrors},
	} {
		*f.sum += f.n
	}
	add(c.drops[:], o.drops[:])
	add(c.parse[:], o.parse[:])
	add(c.tcp[:], o.tcp[:])
}

func add(sum, n []uint64) {
	for i := range sum {
		sum[i] += n[i]
	}
}
