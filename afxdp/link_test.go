package afxdp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/test/rig"
)

// steering is a program on one end that redirects all packets to sockets.
type steering struct {
	socks *ebpf.Map
}

// steer loads the program and attaches it to one side. With record, the program writes
// a record in front of every packet.
func steer(t testing.TB, p *pair.Pair, side pair.Side, record bool) steering {
	t.Helper()
	socks, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 8})
	rig.Must(t, err)
	t.Cleanup(func() { socks.Close() })
	code := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	if record {
		code = append(code, writeRecord()...)
	}
	code = append(code,
		asm.LoadMem(asm.R2, asm.R6, 16, asm.Word), // rx_queue_index
		asm.LoadMapPtr(asm.R1, socks.FD()),
		asm.Mov.Imm(asm.R3, 2), // verdict if there is no socket: XDP_PASS
		asm.FnRedirectMap.Call(),
		asm.Return(),
	)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "Dual BSD/GPL", Instructions: code})
	rig.Must(t, err)
	t.Cleanup(func() { prog.Close() })
	rig.Must(t, p.Do(side, func() error {
		l, err := link.AttachXDP(link.XDPOptions{
			Program: prog, Interface: p.Ends[side].Index, Flags: link.XDPDriverMode,
		})
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}))
	return steering{socks}
}

// mark is the first and the last word of a record.
const mark = 0x7374616720746167

// writeRecord makes room for a record and writes mark to both of its ends.
func writeRecord() asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Imm(asm.R2, -port.RecordLen),
		asm.FnXdpAdjustMeta.Call(),
		asm.LoadMem(asm.R2, asm.R6, 8, asm.Word), // data_meta
		asm.LoadMem(asm.R3, asm.R6, 0, asm.Word), // data
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, port.RecordLen),
		asm.JGT.Reg(asm.R4, asm.R3, "steer"),
		asm.LoadImm(asm.R5, mark, asm.DWord),
		asm.StoreMem(asm.R2, 0, asm.R5, asm.DWord),
		asm.StoreMem(asm.R2, port.RecordLen-8, asm.R5, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("steer"),
	}
}

func (s steering) to(t testing.TB, queue uint32, fd int) {
	t.Helper()
	rig.Must(t, s.socks.Put(queue, uint32(fd)))
}

// openIn opens a queue on one side over a region of a new arena.
func openIn(t testing.TB, p *pair.Pair, side pair.Side, c afxdp.Config) *afxdp.Queue {
	t.Helper()
	a, r := newRegion(t, c)
	q, err := tryOpen(p, side, c, r)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, q.Close()) })
	rig.Must(t, a.Close()) // the queue keeps the arena
	return q
}

func newRegion(t testing.TB, c afxdp.Config) (*afxdp.Arena, *afxdp.Region) {
	t.Helper()
	size, err := c.RegionSize()
	rig.Must(t, err)
	a, err := afxdp.NewArena(size)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, a.Close()) })
	r, err := a.Cut(size)
	rig.Must(t, err)
	return a, r
}

func tryOpen(p *pair.Pair, side pair.Side, c afxdp.Config, r *afxdp.Region) (q *afxdp.Queue, err error) {
	c.Check = true
	c.IfName, c.Ifindex = p.Ends[side].Name, 0
	err = p.Do(side, func() error {
		q, err = afxdp.Open(c, r)
		return err
	})
	return q, err
}

// The frames of these tests have an EtherType for local experiments, a number, and a
// pattern that depends on the number. No other traffic has this EtherType.
const (
	etherType = 0x88b5 // IEEE 802: local experimental
	numberAt  = 14
	bodyAt    = 22
	leastLen  = bodyAt
)

// pattern is long enough for every body at every offset.
var pattern = func() []byte {
	b := make([]byte, 256+8192)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}()

func body(number uint64, n int) []byte {
	at := int(number*31) & 255
	return pattern[at : at+n]
}

// write fills b with the frame of that number.
func write(b []byte, number uint64) {
	copy(b, "\xff\xff\xff\xff\xff\xff\x02stag!")
	binary.BigEndian.PutUint16(b[12:], etherType)
	binary.BigEndian.PutUint64(b[numberAt:], number)
	copy(b[bodyAt:], body(number, len(b)-bodyAt))
}

var errContent = errors.New("a frame's octets are not those that were sent")

// read returns the number of a frame of these tests. ours is false for other traffic.
func read(b []byte) (number uint64, ours bool, err error) {
	if len(b) < leastLen || binary.BigEndian.Uint16(b[12:]) != etherType {
		return 0, false, nil
	}
	number = binary.BigEndian.Uint64(b[numberAt:])
	if !bytes.Equal(b[bodyAt:], body(number, len(b)-bodyAt)) {
		return number, true, errContent
	}
	return number, true, nil
}

// sizeOf returns the length of the frame of that number. Successive numbers have every
// size up to limit.
func sizeOf(number uint64, limit int) int {
	return leastLen + int(number*2654435761>>3)%(limit-leastLen+1)
}

// transmit sends at most n frames, from number from on, as far as frames and ring
// allow. It returns how many it sent.
func transmit(q *afxdp.Queue, from uint64, n int, size func(uint64) int) (int, error) {
	var lent [64]port.Frame
	got := q.Take(lent[:min(n, len(lent))])
	for i := range got {
		f := &lent[i]
		length := size(from + uint64(i))
		// An engine also writes partly in front of Addr.
		f.Addr -= min(port.Headroom, uint64(length/2))
		f.Len = uint32(length)
		write(q.Bytes(*f), from+uint64(i))
	}
	sent := q.Send(lent[:got])
	q.Free(lent[:got])
	return sent, q.Flush()
}

// receive takes the arrived frames and calls seen with the numbers of these tests'
// frames.
func receive(q *afxdp.Queue, seen func(uint64) error) (int, error) {
	var got [64]port.Frame
	n := q.Receive(got[:])
	var errs []error
	for _, f := range got[:n] {
		number, ours, err := read(q.Bytes(f))
		if ours && err == nil {
			err = seen(number)
		}
		errs = append(errs, err)
	}
	q.Recycle(got[:n])
	return n, errors.Join(errs...)
}

// rising checks that the numbers only go up, and counts them. A veth pair may lose
// frames, but must not double or reorder them.
type rising struct {
	next  uint64
	count int
}

func (r *rising) see(number uint64) error {
	if number < r.next {
		return errors.New("a frame came twice or out of order")
	}
	r.next = number + 1
	r.count++
	return nil
}
