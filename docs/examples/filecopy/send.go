package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/stag-rdma/stag/rdma"
)

// sender is the end that has the file.
type sender struct {
	ep   *rdma.Endpoint // the connection and its region; the region has the outstanding chunks, and an octet for messages
	rkey rdma.STag      // key of the receiver's memory
	addr uint64         // address of the first octet of that memory
	sum  hash.Hash      // hash of the octets that have been sent
	sent int            // number of chunks that have been sent
}

// send copies the file to the receiver at address.
func send(ctx context.Context, adapter *rdma.Adapter, address, name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	ep, err := adapter.CreateEndpoint(rdma.EndpointConfig{Size: chunks*chunkLen + doneMsg})
	if err != nil {
		return err
	}
	defer ep.Close()
	s := &sender{ep: ep, sum: sha256.New()}
	for range chunks + 1 { // the receiver sends one message for each outstanding chunk, and one at the end
		if err := s.listen(); err != nil {
			return err
		}
	}
	if err := ep.Dial(ctx, address, rdma.ConnParams{}); err != nil {
		return err
	}
	offer := ep.QP.Conn().PrivateData // these octets come from the receiver: check them before use
	if len(offer) != 12 {
		return fmt.Errorf("%s is no receiver of filecopy", address)
	}
	s.rkey, s.addr = rdma.STag(binary.BigEndian.Uint32(offer)), binary.BigEndian.Uint64(offer[4:])
	if err := s.copy(ctx, file); err != nil {
		return err
	}
	if err := s.end(ctx); err != nil {
		return err
	}
	return ep.QP.Disconnect(ctx)
}

// listen posts a receive for one message.
func (s *sender) listen() error {
	_, err := s.ep.QP.PostRecv(rdma.RecvWR{SGL: []rdma.SGE{s.ep.MR.SGE(chunks*chunkLen, doneMsg)}})
	return err
}

// copy sends the octets of the file.
func (s *sender) copy(ctx context.Context, file io.Reader) error {
	for {
		if s.sent >= chunks {
			if err := s.free(ctx); err != nil {
				return err
			}
		}
		at := s.sent % chunks * chunkLen
		n, err := io.ReadFull(file, s.ep.MR.Bytes()[at:][:chunkLen])
		if n > 0 {
			s.sum.Write(s.ep.MR.Bytes()[at:][:n])
			if err := s.chunk(at, n); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// chunk writes n octets to the receiver's memory, and then sends a message. The message
// arrives after the octets have been placed.
func (s *sender) chunk(at, n int) error {
	s.sent++
	_, err := s.ep.QP.PostSend(
		rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{s.ep.MR.SGE(at, n)}, RKey: s.rkey, RemoteAddr: s.addr + uint64(at)},
		rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled, Inline: binary.BigEndian.AppendUint32(nil, uint32(n))},
	)
	return err
}

// free waits until the oldest outstanding chunk has been sent and the receiver has sent
// freeMsg. Then both ends can use the memory of the chunk again.
func (s *sender) free(ctx context.Context) error {
	if _, err := s.ep.Sent(ctx); err != nil {
		return err
	}
	if length, err := s.hear(ctx); err != nil || length == freeMsg {
		return err
	}
	return errors.New("the receiver is done too early")
}

// hear waits for the next message, and returns its length.
func (s *sender) hear(ctx context.Context) (length uint32, err error) {
	c, err := s.ep.Received(ctx)
	if err != nil {
		return 0, fmt.Errorf("the receiver has left: %w", err)
	}
	return c.Length, s.listen()
}

// end sends the checksum, and waits until the receiver has compared it.
func (s *sender) end(ctx context.Context) error {
	_, err := s.ep.QP.PostSend(rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled, Inline: s.sum.Sum(nil)})
	for err == nil {
		var length uint32
		if length, err = s.hear(ctx); err == nil && length == doneMsg {
			return nil
		}
	}
	return err
}
