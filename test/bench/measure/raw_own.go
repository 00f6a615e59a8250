package measure

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/port"
	"github.com/stag-rdma/stag/offload/wire"
)

// ownEnd is a raw end over stag's rings.
type ownEnd struct {
	q      *afxdp.Queue
	arena  *afxdp.Arena
	frames [rawBatch]port.Frame
	head   [ethLen]byte
	length uint32 // octets of a frame
	copies bool
	memory []byte // nil unless the end copies payload
	at     int    // offset in memory of the next chunk
	number uint64 // number of the next frame
	steps  uint64
}

// openOwn opens side's end. The caller's thread must be in side's namespace.
func openOwn(s *stage, side pair.Side) (rawEnd, error) {
	txFrames := uint32(0) // 0 means the default
	if side == from {
		txFrames = rawWindow
	}
	e, err := openQueue(s, side, txFrames)
	if err != nil {
		return nil, err
	}
	if s.raw == rawCopied {
		e.copies, e.memory = true, make([]byte, rawPayload)
	}
	if side == from {
		return &ownSender{ownEnd: e}, nil
	}
	if err := s.redirect.to(side, e.q.FD()); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return &ownReceiver{ownEnd: e}, nil
}

// openQueue opens a queue of stag on side's end.
func openQueue(s *stage, side pair.Side, txFrames uint32) (*ownEnd, error) {
	c := afxdp.Config{Ifindex: s.pair.Ends[side].Index, IfName: s.pair.Ends[side].Name, TxFrames: txFrames}
	size, err := c.RegionSize()
	if err != nil {
		return nil, err
	}
	e := &ownEnd{head: s.rawHead(side), length: uint32(s.rawMTU() + ethLen)}
	if e.arena, err = afxdp.NewArena(size); err != nil {
		return nil, err
	}
	r, err := e.arena.Cut(size)
	if err != nil {
		return nil, errors.Join(err, e.arena.Close())
	}
	if e.q, err = afxdp.Open(c, r); err != nil {
		return nil, errors.Join(err, e.arena.Close())
	}
	return e, nil
}

// shape writes the header into a frame from Take and returns the frame's octets. The
// payload begins where the payload of a segment would begin.
func (e *ownEnd) shape(f *port.Frame) []byte {
	f.Addr -= rawHeader
	f.Len = e.length
	b := e.q.Bytes(*f)
	copy(b, e.head[:])
	return b
}

func (e *ownEnd) counts() (work, error) {
	s, err := e.q.Stats()
	return work{
		Steps: e.steps, RxPackets: s.Rx, TxPackets: s.Tx, Kicks: s.Kicks,
		Lost: dropped(s),
	}, err
}

// dropped returns how many frames were lost by the driver or dropped by the receiving
// socket.
func dropped(s afxdp.Stats) uint64 { return s.Lost + s.Kernel.RxDropped + s.Kernel.RxRingFull }

func (e *ownEnd) close() error { return errors.Join(e.q.Close(), e.arena.Close()) }

// chunk returns the next n octets of the memory. At the end of the memory it starts
// again at the beginning.
func (e *ownEnd) chunk(n int) []byte {
	if len(e.memory)-e.at < n {
		e.at = 0
	}
	e.at += n
	return e.memory[e.at-n : e.at]
}

type ownSender struct{ *ownEnd }

func (e *ownSender) step(most int) (int, error) {
	n := e.q.Take(e.frames[:most])
	lent := e.frames[:n]
	for i := range lent {
		e.fill(&lent[i])
	}
	if sent := e.q.Send(lent); sent != n {
		return 0, fmt.Errorf("raw sender: the ring took %d of %d frames", sent, n)
	}
	e.q.Free(lent)
	if n != 0 {
		e.steps++
	}
	return n, e.q.Flush()
}

// fill writes header and payload into a frame from Take.
func (e *ownSender) fill(f *port.Frame) {
	b := e.shape(f)
	if !e.copies {
		return
	}
	payload := b[rawHeader:]
	copy(payload, e.chunk(len(payload)))
	binary.BigEndian.PutUint64(b[rawNumber:], e.number)
	binary.BigEndian.PutUint32(b[rawCRC:], wire.CRC32C(payload))
	e.number++
}

type ownReceiver struct{ *ownEnd }

func (e *ownReceiver) step(most int) (int, error) {
	n := e.q.Receive(e.frames[:most])
	if n == 0 {
		return 0, nil
	}
	e.steps++
	got := e.frames[:n]
	for _, f := range got {
		if f.Len != e.length {
			return 0, fmt.Errorf("raw receiver: a frame of %d octets, not %d", f.Len, e.length)
		}
		if e.copies {
			if err := e.take(e.q.Bytes(f)); err != nil {
				return 0, err
			}
		}
	}
	e.q.Recycle(got)
	return n, nil
}

// take checks and copies the payload of a frame.
func (e *ownReceiver) take(b []byte) error {
	payload := b[rawHeader:]
	if got, want := wire.CRC32C(payload), binary.BigEndian.Uint32(b[rawCRC:]); got != want {
		return fmt.Errorf("raw receiver: frame %d has CRC %#x, its payload %#x", binary.BigEndian.Uint64(b[rawNumber:]), want, got)
	}
	copy(e.chunk(len(payload)), payload)
	return nil
}
