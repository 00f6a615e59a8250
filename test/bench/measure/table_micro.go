package measure

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/tpt"
)

// microName is the name of the table that needs no root.
const microName = "micro"

// These are the figures of stages.
const (
	PerPacketNs Figure = "ns_per_packet"
	PerOctetNs  Figure = "ns_per_octet" // nanoseconds per octet of payload
)

// NeedsRoot reports whether a selected table makes namespaces.
func (o Options) NeedsRoot() bool {
	return !slices.Equal(o.Tables, []string{microName})
}

// These are the names of the rows that run all stages in turn: with checksums, and with
// those stages that leave the checksum to the driver or the kernel.
const (
	everything     = "all of these"
	everythingLeft = "all, checksums left"
)

func microTable(o Options) *Table {
	t := &Table{
		Name:  microName,
		Title: "Stages: what a full segment of a Write costs in our code, from memory that is warm",
		About: `Receiving, then sending; the ratio is to all of them in turn, where one overlaps with
the next, so that shares come to a little more than 1. Not here: the TCP machine, QPs
and completions, which need a connection (go test -bench . ./offload/tcp
./offload/rdmap), rings, which need root (go test -bench . ./afxdp), and the kernel.`,
		Columns: []Column{{PerPacketNs, "ns", 1, true}, {PerOctetNs, "ns/octet", 4, false}},
		Base:    everything,
	}
	for _, mtu := range o.MTUs {
		for _, name := range append(stageNames(), everything, everythingLeft) {
			t.Rows = append(t.Rows, &Row{
				Case: Case{Name: name, MTU: mtu},
				run:  func(ctx context.Context) (Values, error) { return runStage(ctx, name, mtu, o.Time/10) },
			})
		}
	}
	return t
}

// stages are the steps of processing a packet, in order. left is the step without a
// checksum, or nil if the step computes none.
var stages = []struct {
	name string
	do   func(*bench) error
	left func(*bench) error
}{
	{"headers in, checksum", (*bench).headersIn, (*bench).headersInLeft},
	{"FPDU in, CRC", (*bench).fpduIn, nil},
	{"tagged header in", (*bench).taggedIn, nil},
	{"table entry checked", (*bench).check, nil},
	{"payload placed", (*bench).place, nil},
	{"payload gathered", (*bench).gather, nil},
	{"FPDU out, CRC", (*bench).fpduOut, nil},
	{"headers out, checksum", (*bench).headersOut, (*bench).headersOutLeft},
}

func stageNames() (names []string) {
	for _, s := range stages {
		names = append(names, s.name)
	}
	return names
}

// runStage repeats a stage, or all of them, for d.
func runStage(ctx context.Context, name string, mtu int, d time.Duration) (Values, error) {
	b, err := newBench(mtu)
	if err != nil {
		return nil, err
	}
	ns, err := b.time(ctx, name, d)
	return Values{PerPacketNs: ns, PerOctetNs: ns / float64(len(b.memory))}, err
}

// bench holds one received packet and one packet to send. It also implements the stream
// of the received segment.
type bench struct {
	stream.Stream // nil: supplies the methods that the stages do not call

	frame    []byte // the received frame: headers and an FPDU
	unsummed []byte // the same frame with a partial checksum
	packet   wire.Packet
	deframer *mpa.Deframer
	table    *tpt.Table
	access   tpt.Access
	memory   []byte // the user's memory
	placed   []byte // the part of memory that Check returned
	ulpdu    []byte // the ULPDU within frame

	chunk    []byte // the chunk of the frame to send
	template wire.HeaderTemplate
	fields   wire.TCPFields
	framer   *mpa.Framer
	payload  []byte // payload of the FPDU within chunk: tagged header and data
}

// newBench makes the packet to send, and uses a copy of it as the received packet.
func newBench(mtu int) (*bench, error) {
	b := &bench{
		deframer: mpa.NewDeframer(true, false), framer: mpa.NewFramer(true, false),
		chunk: make([]byte, port.Headroom+mtu), fields: wire.TCPFields{Flags: wire.ACK, HasTS: true},
	}
	var err error
	b.template, err = wire.NewHeaderTemplate(wire.HeaderFields{
		Src: netip.MustParseAddrPort("192.0.2.1:1"), Dst: netip.MustParseAddrPort("192.0.2.2:2"), TTL: 64,
	})
	if err != nil {
		return nil, err
	}
	headers := b.template.Len(&b.fields)
	segment := (mtu + wire.EthernetLen - headers) &^ 3 // the length of an FPDU is a multiple of 4
	b.chunk = b.chunk[:port.Headroom+segment]
	b.memory = make([]byte, b.framer.MaxULPDU(segment)-wire.TaggedLen)
	b.payload = b.chunk[port.Headroom+wire.FPDUHeadLen:][:wire.TaggedLen+len(b.memory)]
	if err := b.register(); err != nil {
		return nil, err
	}
	if err := errors.Join(b.gather(), b.fpduOut(), b.headersOut()); err != nil {
		return nil, err
	}
	b.template.WritePartial(b.chunk, port.Headroom, &b.fields)
	b.unsummed = slices.Clone(b.chunk[port.Headroom-headers:])
	if err := b.headersOut(); err != nil {
		return nil, err
	}
	b.frame = slices.Clone(b.chunk[port.Headroom-headers:])
	if err := errors.Join(b.headersIn(), b.fpduIn(), b.taggedIn(), b.check(), b.place()); err != nil {
		return nil, err
	}
	return b, nil
}

// register makes the table and registers the memory.
func (b *bench) register() (err error) {
	if b.table, err = tpt.New(tpt.Config{Entries: 64}); err != nil {
		return err
	}
	pd, err := b.table.NewPD()
	if err != nil {
		return err
	}
	stag, err := b.table.Register(tpt.Region{PD: pd, Memory: b.memory, Rights: tpt.LocalWrite | tpt.RemoteWrite})
	if err != nil {
		return err
	}
	b.access = tpt.Access{STag: stag, PD: pd, QP: 1, Right: tpt.RemoteWrite, Len: uint32(len(b.memory))}
	return nil
}

// time repeats a stage for d and returns the mean time of one run, in nanoseconds.
func (b *bench) time(ctx context.Context, name string, d time.Duration) (ns float64, err error) {
	var todo []func(*bench) error
	for _, s := range stages {
		switch {
		case name == everythingLeft && s.left != nil:
			todo = append(todo, s.left)
		case name == s.name || name == everything || name == everythingLeft:
			todo = append(todo, s.do)
		}
	}
	for begin, n := time.Now(), 0; ; {
		for range 256 {
			for _, do := range todo {
				if err := do(b); err != nil {
					return 0, err
				}
			}
		}
		n += 256
		if took := time.Since(begin); took >= d || ctx.Err() != nil {
			return float64(took) / float64(n), ctx.Err()
		}
	}
}

func (b *bench) headersIn() error {
	if why := wire.ParsePacket(b.frame, &b.packet); why != wire.OK {
		return errors.New("headers: " + why.String())
	}
	if why := b.packet.VerifyChecksum(b.frame, false); why != wire.OK {
		return errors.New("checksum: " + why.String())
	}
	return nil
}

// headersInLeft parses a segment whose checksum nobody has computed.
func (b *bench) headersInLeft() error {
	if why := wire.ParsePacket(b.unsummed, &b.packet); why != wire.OK {
		return errors.New("headers: " + why.String())
	}
	if why := b.packet.VerifyChecksum(b.unsummed, true); why != wire.OK || !b.packet.Partial {
		return errors.New("the checksum is not partial: " + why.String())
	}
	return nil
}

func (b *bench) fpduIn() error {
	ulpdu, fault := b.deframer.Next(b)
	if fault != mpa.OK || ulpdu == nil {
		return errors.New("the FPDU was refused")
	}
	b.ulpdu = ulpdu
	b.deframer.Done(b)
	return nil
}

func (b *bench) taggedIn() error {
	h, payload, ok := wire.ParseTagged(b.ulpdu)
	if !ok || h.STag() != b.access.STag || h.TO() != b.access.TO || len(payload) != len(b.memory) {
		return errors.New("the tagged header was refused")
	}
	return nil
}

func (b *bench) check() error {
	mem, fault := b.table.Check(b.access)
	if fault != tpt.OK {
		return errors.New("the access was refused")
	}
	b.placed = mem
	return nil
}

func (b *bench) place() error {
	copy(b.placed, b.ulpdu[wire.TaggedLen:])
	return nil
}

// gather fills in the ULPDU of the FPDU that fpduOut makes.
func (b *bench) gather() error {
	h := wire.TaggedFields{Last: true, Opcode: wire.OpWrite, STag: b.access.STag}.Append(b.payload[:0])
	copy(b.payload[len(h):], b.memory)
	return nil
}

func (b *bench) fpduOut() error {
	if b.framer.Begin(b, len(b.payload)) == nil {
		return errors.New("no room for the FPDU")
	}
	b.framer.End()
	return nil
}

func (b *bench) headersOut() error {
	b.template.Write(b.chunk, port.Headroom, &b.fields)
	return nil
}

func (b *bench) headersOutLeft() error {
	b.template.WritePartial(b.chunk, port.Headroom, &b.fields)
	return nil
}

// Views returns the received segment. Consume does not remove it.
func (b *bench) Views(dst [][]byte) int {
	dst[0] = b.packet.Data(b.frame)
	return 1
}

func (b *bench) Consume(int) {}

// Emit returns the payload memory of the segment to send.
func (b *bench) Emit(n int) []byte { return b.chunk[port.Headroom : port.Headroom+n : port.Headroom+n] }
