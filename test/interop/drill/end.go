package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/stag-rdma/stag/rdma"
)

const (
	sendLen  = 3000 // octets of the Send with Invalidate
	mostSize = 1 << 20
	keyLen   = sha256.Size + 4
	messages = 4 // that each end receives in a round
	offerLen = 20
)

// end is one end of a connection with its memory.
type end struct {
	ctx  context.Context
	name string // seed of the octets
	ep   *rdma.Endpoint
	qp   *rdma.QP // of ep
	own  []io.Closer

	src  *rdma.MR // what this end writes and sends, and the other end reads
	dst  *rdma.MR // the other end writes to it
	sink *rdma.MR // results of Reads and atomic operations
	recv *rdma.MR // receives
	word *rdma.MR // two words for the other end's atomic operations

	theirs struct{ src, dst, word rdma.STag } // keys of the other end
}

func newEnd(ctx context.Context, a *rdma.Adapter, size int, name string) (e *end, err error) {
	e = &end{ctx: ctx, name: name}
	if e.ep, err = a.CreateEndpoint(rdma.EndpointConfig{Size: size, Access: rdma.RemoteRead, QP: rdma.QPConfig{SendDepth: 64, RecvDepth: 2 * messages}}); err != nil {
		return nil, err
	}
	e.qp, e.src = e.ep.QP, e.ep.MR
	for _, m := range []struct {
		mr     **rdma.MR
		size   int
		access rdma.Access
	}{
		{&e.dst, size, rdma.LocalWrite | rdma.RemoteWrite}, {&e.sink, at(size) + 16, rdma.LocalWrite},
		{&e.recv, messages * sendLen, rdma.LocalWrite}, {&e.word, 16, rdma.LocalWrite | rdma.RemoteAtomic},
	} {
		if *m.mr, err = e.ep.PD.AllocMR(m.size, m.access); err != nil {
			return nil, errors.Join(err, e.close())
		}
		e.own = append(e.own, *m.mr)
	}
	if err := e.listen(); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *end) close() (err error) {
	err = e.qp.Close()
	for _, c := range e.own {
		err = errors.Join(err, c.Close())
	}
	return errors.Join(err, e.ep.Close())
}

// plan is what the dialling end decides.
type plan struct {
	rounds int
	size   int // octets that each end writes and reads in a round
}

// offer is the private data for the other end: the plan, and the keys.
func (e *end) offer(p plan) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(p.rounds))
	b = binary.BigEndian.AppendUint32(b, uint32(p.size))
	for _, mr := range []*rdma.MR{e.src, e.dst, e.word} {
		b = binary.BigEndian.AppendUint32(b, uint32(mr.RKey()))
	}
	return b
}

// planOf returns the plan of an offer.
func planOf(offer []byte) (plan, error) {
	if len(offer) != offerLen {
		return plan{}, fmt.Errorf("private data of %d octets", len(offer))
	}
	p := plan{int(binary.BigEndian.Uint32(offer)), int(binary.BigEndian.Uint32(offer[4:]))}
	if p.size < sendLen || p.size > mostSize {
		return plan{}, fmt.Errorf("a size of %d octets", p.size)
	}
	return p, nil
}

// accept takes the keys of an offer.
func (e *end) accept(offer []byte) error {
	_, err := planOf(offer)
	if err != nil {
		return err
	}
	key := func(i int) rdma.STag { return rdma.STag(binary.BigEndian.Uint32(offer[4*i:])) }
	e.theirs.src, e.theirs.dst, e.theirs.word = key(2), key(3), key(4)
	return nil
}

// listen posts the receives of a round.
func (e *end) listen() error {
	for i := range messages {
		if _, err := e.qp.PostRecv(rdma.RecvWR{SGL: []rdma.SGE{e.recv.SGE(i*sendLen, sendLen)}}); err != nil {
			return err
		}
	}
	return nil
}

// received waits for the next message.
func (e *end) received() (rdma.Completion, error) {
	c, err := e.ep.RecvCQ.Next(e.ctx)
	return c, e.bad(c, err)
}

func (e *end) bad(c rdma.Completion, err error) error {
	if err != nil || c.Status == rdma.Success {
		return err
	}
	return fmt.Errorf("%+v: %w", c, e.qp.Err())
}

// do posts requests and waits until all of them have completed.
func (e *end) do(list ...rdma.SendWR) error {
	for i := range list {
		list[i].Flags |= rdma.Signaled
	}
	if _, err := e.qp.PostSend(list...); err != nil {
		return err
	}
	for range list {
		c, err := e.ep.SendCQ.Next(e.ctx)
		if err := e.bad(c, err); err != nil {
			return err
		}
	}
	return nil
}

func (e *end) rounds(n int) error {
	for i := range n {
		if err := e.round(i); err != nil {
			return fmt.Errorf("%s, round %d: %w", e.name, i, err)
		}
	}
	return nil
}

// round does every operation once. Both ends do it at the same time. No end changes its memory
// before the other end has said that it is done.
func (e *end) round(n int) error {
	seed := sha256.Sum256(fmt.Appendf(nil, "%s %d", e.name, n))
	rand.NewChaCha8(seed).Read(e.src.Bytes())
	once, err := e.ep.PD.AllocMR(8, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteInvalidate)
	if err != nil {
		return err
	}
	defer once.Close()
	sum := sha256.Sum256(e.src.Bytes())
	if err := e.do(rdma.SendWR{Op: rdma.WRSend, Inline: binary.BigEndian.AppendUint32(sum[:], uint32(once.RKey()))}); err != nil {
		return err
	}
	c, err := e.received()
	if err != nil || c.Length != keyLen {
		return fmt.Errorf("key: %+v: %v", c, err)
	}
	theirs := bytes.Clone(e.recv.Bytes()[:keyLen])
	if err := e.move(n, rdma.STag(binary.BigEndian.Uint32(theirs[sha256.Size:]))); err != nil {
		return err
	}
	if err := e.compare(n, theirs[:sha256.Size], once.RKey()); err != nil {
		return err
	}
	if err := e.invalidate(); err != nil {
		return err
	}
	if err := e.listen(); err != nil { // for the next round, before the other end begins it
		return err
	}
	if err := e.do(rdma.SendWR{Op: rdma.WRSendImm, Imm: uint64(n)}); err != nil {
		return err
	}
	if c, err = e.received(); err != nil || !c.WithImm || c.Imm != uint64(n) {
		return fmt.Errorf("the other end is not done: %+v: %v", c, err)
	}
	return nil
}

// move writes, reads, adds and sends. All requests are under way together.
func (e *end) move(n int, once rdma.STag) error {
	var list []rdma.SendWR
	size := e.src.Len()
	for from, piece := 0, 1; from < size; piece = 3*piece + 1 { // 1, 4, 13, … octets: pieces of a segment and of many
		piece = min(piece, size-from)
		wr := rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{e.src.SGE(from, piece)}, RKey: e.theirs.dst, RemoteAddr: uint64(from)}
		if from += piece; from == size {
			wr.Op, wr.Imm = rdma.WRWriteImm, uint64(n)
		}
		list = append(list, wr)
	}
	half := size/2 + 1
	list = append(list,
		rdma.SendWR{Op: rdma.WRRead, SGL: []rdma.SGE{e.sink.SGE(0, half)}, RKey: e.theirs.src},
		rdma.SendWR{Op: rdma.WRRead, SGL: []rdma.SGE{e.sink.SGE(half, size-half)}, RKey: e.theirs.src, RemoteAddr: uint64(half)},
		rdma.SendWR{Op: rdma.WRFetchAdd, CompareAdd: uint64(n) + 1, SGL: []rdma.SGE{e.sink.SGE(at(size), 8)}, RKey: e.theirs.word},
		rdma.SendWR{Op: rdma.WRCompareSwap, CompareAdd: uint64(n), Swap: uint64(n) + 1, SGL: []rdma.SGE{e.sink.SGE(at(size)+8, 8)}, RKey: e.theirs.word, RemoteAddr: 8},
		rdma.SendWR{Op: rdma.WRSendInvalidate, Invalidate: once, SGL: []rdma.SGE{e.src.SGE(0, 1000), e.src.SGE(1000, sendLen-1000)}},
	)
	return e.do(list...)
}

// compare checks the results of both ends' requests. sum is the hash of the other end's octets.
func (e *end) compare(n int, sum []byte, once rdma.STag) error {
	c, err := e.received()
	if err != nil || !c.WithImm || c.Imm != uint64(n) {
		return fmt.Errorf("the other end's Write with Immediate: %+v: %v", c, err)
	}
	if got := sha256.Sum256(e.dst.Bytes()); !bytes.Equal(got[:], sum) {
		return errors.New("the octets that the other end wrote have another hash")
	}
	size := e.src.Len()
	if got := sha256.Sum256(e.sink.Bytes()[:size]); !bytes.Equal(got[:], sum) {
		return errors.New("the octets that were read have another hash")
	}
	if c, err = e.received(); err != nil || c.Invalidated != once || c.Length != sendLen {
		return fmt.Errorf("the other end's Send with Invalidate of %#x: %+v: %v", once, c, err)
	}
	if !bytes.Equal(e.recv.Bytes()[2*sendLen:][:sendLen], e.dst.Bytes()[:sendLen]) {
		return errors.New("the octets of the Send are wrong")
	}
	added, swapped := e.sink.Uint64(at(size)).Load(), e.sink.Uint64(at(size)+8).Load()
	if want := uint64(n) * (uint64(n) + 1) / 2; added != want || swapped != uint64(n) {
		return fmt.Errorf("the atomic operations returned %d and %d, want %d and %d", added, swapped, want, n)
	}
	return nil
}

// at rounds up to a word.
func at(n int) int { return (n + 7) &^ 7 }

// invalidate invalidates a region of this end.
func (e *end) invalidate() error {
	mr, err := e.ep.PD.AllocMR(8, rdma.LocalWrite|rdma.RemoteWrite)
	if err != nil {
		return err
	}
	err = e.do(rdma.SendWR{Op: rdma.WRLocalInvalidate, Invalidate: mr.RKey()})
	return errors.Join(err, mr.Close())
}
