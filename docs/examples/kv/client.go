package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// client is a connection to the server. One goroutine at a time uses it.
type client struct {
	ep   *rdma.Endpoint
	rkey rdma.STag // key of the server's table
	addr uint64    // address of the first octet of the table
	torn int       // number of Reads that had to be repeated
}

// These are the offsets of the parts of a client's region: a slot that was read, and
// the server's answer.
const (
	readAt    = 0
	answerAt  = slotLen
	regionLen = slotLen + 8
)

func dial(ctx context.Context, adapter *rdma.Adapter, address string) (*client, error) {
	ep, err := adapter.CreateEndpoint(rdma.EndpointConfig{Size: regionLen})
	if err != nil {
		return nil, err
	}
	if err := ep.Dial(ctx, address, rdma.ConnParams{}); err != nil {
		return nil, errors.Join(err, ep.Close())
	}
	offer := ep.QP.Conn().PrivateData // these octets come from the server: check them before use
	if len(offer) != 12 {
		return nil, errors.Join(fmt.Errorf("%s is no server of kv", address), ep.Close())
	}
	return &client{ep: ep, rkey: rdma.STag(binary.BigEndian.Uint32(offer)), addr: binary.BigEndian.Uint64(offer[4:])}, nil
}

// close ends the connection: normally, if the server answers within a second.
func (c *client) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.ep.QP.Disconnect(ctx)
	c.ep.Close()
}

// put asks the server to store a value. It returns the version of the slot.
func (c *client) put(ctx context.Context, key, value string) (version uint64, err error) {
	if err := check(key, value); err != nil {
		return 0, err
	}
	if _, err := c.ep.QP.PostRecv(rdma.RecvWR{SGL: []rdma.SGE{c.ep.MR.SGE(answerAt, 8)}}); err != nil {
		return 0, err
	}
	message := append([]byte{byte(len(key))}, key+value...)
	copy(c.ep.MR.Bytes()[readAt:], message)
	_, err = c.ep.QP.PostSend(rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled, SGL: []rdma.SGE{c.ep.MR.SGE(readAt, len(message))}})
	if err != nil {
		return 0, err
	}
	if _, err := c.ep.Sent(ctx); err != nil {
		return 0, err
	}
	answer, err := c.ep.Received(ctx)
	switch {
	case err != nil:
		return 0, fmt.Errorf("the server does not answer: %w", err)
	case answer.Length != 8:
		return 0, fmt.Errorf("an answer of %d octets", answer.Length)
	}
	if version = binary.BigEndian.Uint64(c.ep.MR.Bytes()[answerAt:]); version == 0 {
		return 0, fmt.Errorf("%q: the slots for it are full", key)
	}
	return version, nil
}

// get reads the slots where the key may be.
func (c *client) get(ctx context.Context, key string) (slot, error) {
	for tried := range probes {
		s, err := c.read(ctx, place(key, tried))
		switch {
		case err != nil:
			return s, err
		case s.key == key:
			return s, nil
		case s.version == 0:
			return s, fmt.Errorf("%q: no such key", key)
		}
	}
	return slot{}, fmt.Errorf("%q: no such key", key)
}

// read reads slot i by an RDMA Read. It repeats the Read until the octets are of one
// version.
func (c *client) read(ctx context.Context, i int) (slot, error) {
	for {
		_, err := c.ep.QP.PostSend(rdma.SendWR{
			Op: rdma.WRRead, Flags: rdma.Signaled, SGL: []rdma.SGE{c.ep.MR.SGE(readAt, slotLen)},
			RKey: c.rkey, RemoteAddr: c.addr + uint64(i)*slotLen,
		})
		if err != nil {
			return slot{}, err
		}
		if _, err := c.ep.Sent(ctx); err != nil {
			return slot{}, err
		}
		s, err := decode(c.ep.MR.Bytes()[readAt:][:slotLen])
		if err != errTorn {
			return s, err
		}
		c.torn++
	}
}
