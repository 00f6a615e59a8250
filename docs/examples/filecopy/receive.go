package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"os"

	"github.com/stag-rdma/stag/rdma"
)

// receiver is the end that gets the file.
type receiver struct {
	ep       *rdma.Endpoint // the connection and its region; the region has the chunks, and after them a place for each message
	file     *os.File
	sum      hash.Hash // hash of the octets in the file
	buffer   []byte    // memory for a chunk; the sender cannot access this memory
	received int       // number of chunks received
	heard    int       // number of messages received
}

// receive waits for one sender at address. It calls ready with the address at which it
// listens. The file gets its name when it is complete and its checksum is right.
func receive(ctx context.Context, adapter *rdma.Adapter, address, name string, ready func(at string)) error {
	file, err := os.Create(name + ".part")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	defer file.Close()
	ep, err := adapter.CreateEndpoint(rdma.EndpointConfig{
		Size:   chunks*chunkLen + (chunks+1)*endMsg,
		Access: rdma.LocalWrite | rdma.RemoteWrite,
	})
	if err != nil {
		return err
	}
	defer ep.Close()
	r := &receiver{ep: ep, file: file, sum: sha256.New()}
	for i := range chunks + 1 { // the sender sends one message for each outstanding chunk, and one at the end
		if err := r.listen(i); err != nil {
			return err
		}
	}
	if err := r.accept(ctx, adapter, address, ready); err != nil {
		return err
	}
	for done := false; !done; {
		if done, err = r.message(ctx); err != nil {
			return err
		}
	}
	if err := finish(file, name); err != nil {
		return err
	}
	if err := r.say(ctx, make([]byte, doneMsg)); err != nil {
		return err
	}
	return ep.QP.Disconnect(ctx)
}

// finish gives a complete file its name. If closing the file fails, the file may be
// incomplete, and finish returns the error instead.
func finish(file *os.File, name string) error {
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), name)
}

// accept waits for the sender, and sends it the address and the key of the memory.
func (r *receiver) accept(ctx context.Context, adapter *rdma.Adapter, address string, ready func(at string)) error {
	l, err := adapter.Listen(ctx, address, rdma.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	ready(l.Addr().String())
	request, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	offer := binary.BigEndian.AppendUint32(nil, uint32(r.ep.MR.RKey()))
	offer = binary.BigEndian.AppendUint64(offer, r.ep.MR.Addr())
	return r.ep.Accept(ctx, request, rdma.ConnParams{PrivateData: offer})
}

// listen posts a receive for a message, at place i.
func (r *receiver) listen(i int) error {
	_, err := r.ep.QP.PostRecv(rdma.RecvWR{SGL: []rdma.SGE{r.ep.MR.SGE(chunks*chunkLen+i*endMsg, endMsg)}})
	return err
}

// message waits for the next message and handles it. done reports that it was the last one.
func (r *receiver) message(ctx context.Context) (done bool, err error) {
	c, err := r.ep.Received(ctx)
	if err != nil {
		return false, fmt.Errorf("the sender has left before the end: %w", err)
	}
	place := r.heard % (chunks + 1)
	r.heard++
	text := r.ep.MR.Bytes()[chunks*chunkLen+place*endMsg:][:c.Length]
	switch c.Length {
	case endMsg:
		if !bytes.Equal(text, r.sum.Sum(nil)) {
			return false, errors.New("the file's checksum is wrong")
		}
		return true, nil
	case chunkMsg:
		if err := r.chunk(binary.BigEndian.Uint32(text)); err != nil {
			return false, err
		}
		if err := r.listen(place); err != nil { // post the receive before the sender may send again
			return false, err
		}
		return false, r.say(ctx, nil)
	}
	return false, fmt.Errorf("a message of %d octets: the sender is no filecopy", c.Length)
}

// chunk writes the oldest chunk in memory to the file. A faulty sender can write to that
// memory at any time. Therefore chunk reads the memory only once, so that the checksum and
// the file have the same octets.
func (r *receiver) chunk(n uint32) error {
	if n > chunkLen {
		return fmt.Errorf("a chunk of %d octets: the sender is no filecopy", n)
	}
	r.buffer = append(r.buffer[:0], r.ep.MR.Bytes()[r.received%chunks*chunkLen:][:n]...)
	r.received++
	r.sum.Write(r.buffer)
	_, err := r.file.Write(r.buffer)
	return err
}

// say sends a message, and waits until the Send has completed.
func (r *receiver) say(ctx context.Context, message []byte) error {
	if _, err := r.ep.QP.PostSend(rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled, Inline: message}); err != nil {
		return err
	}
	_, err := r.ep.Sent(ctx)
	return err
}
