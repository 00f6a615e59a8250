package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/stag-rdma/stag/rdma"
)

// server has the table. The memory of the table is registered only for remote Reads, so no
// client can write to it.
type server struct {
	adapter *rdma.Adapter
	pd      *rdma.PD // protection domain of the table and of all connections
	table   *rdma.MR

	mu sync.Mutex // a goroutine holds mu while it changes the table
}

// serve serves clients until ctx ends. It calls ready with the address at which it listens.
func serve(ctx context.Context, adapter *rdma.Adapter, address string, ready func(at string)) error {
	s := &server{adapter: adapter}
	var err error
	if s.pd, err = adapter.AllocPD(); err != nil {
		return err
	}
	if s.table, err = s.pd.AllocMR(slots*slotLen, rdma.RemoteRead); err != nil {
		return err
	}
	for i := range slots {
		slot{}.encode(s.memory(i))
	}
	l, err := adapter.Listen(ctx, address, rdma.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	ready(l.Addr().String())
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		request, err := l.Accept(ctx)
		if err != nil && ctx.Err() != nil {
			return nil // Ctrl-C has ended ctx, which also ends every call of client
		}
		if err != nil {
			return err
		}
		clients.Go(func() {
			if err := s.client(ctx, request); err != nil && ctx.Err() == nil {
				fmt.Fprintf(os.Stderr, "kv: client %v: %v\n", request.Peer().Remote, err)
			}
		})
	}
}

// memory returns the octets of slot i.
func (s *server) memory(i int) []byte { return s.table.Bytes()[i*slotLen:][:slotLen] }

// client serves the puts of one client. The gets of a client do not involve the server.
func (s *server) client(ctx context.Context, request *rdma.ConnRequest) error {
	defer request.Close() // has no effect if the request has been answered
	ep, err := s.adapter.CreateEndpoint(rdma.EndpointConfig{PD: s.pd, Size: slotLen})
	if err != nil {
		return err
	}
	defer ep.Close()
	receive := rdma.RecvWR{SGL: []rdma.SGE{ep.MR.SGE(0, slotLen)}}
	if _, err := ep.QP.PostRecv(receive); err != nil { // post the receive before the client can send
		return err
	}
	// The offer is the key and the address of the table.
	offer := binary.BigEndian.AppendUint32(nil, uint32(s.table.RKey()))
	offer = binary.BigEndian.AppendUint64(offer, s.table.Addr())
	if err := ep.Accept(ctx, request, rdma.ConnParams{PrivateData: offer}); err != nil {
		return err
	}
	for {
		message, err := ep.Received(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		version, err := s.put(ep.MR.Bytes()[:message.Length])
		if err != nil {
			return err
		}
		if _, err := ep.QP.PostRecv(receive); err != nil { // post the receive before the answer, because the next put may follow the answer at once
			return err
		}
		answer := binary.BigEndian.AppendUint64(nil, version)
		if _, err := ep.QP.PostSend(rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled, Inline: answer}); err != nil {
			return err
		}
		if _, err := ep.Sent(ctx); err != nil {
			return err
		}
	}
}

// put stores the key and the value of a client's message. The message has the length of
// the key in one octet, the key and the value. put returns the new version of the slot, or
// 0 if there is no room.
func (s *server) put(message []byte) (version uint64, err error) {
	if len(message) == 0 || 1+int(message[0]) > len(message) {
		return 0, fmt.Errorf("a malformed put of %d octets", len(message))
	}
	n := int(message[0])
	key, value := string(message[1:1+n]), string(message[1+n:])
	if err := check(key, value); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for tried := range probes {
		mem := s.memory(place(key, tried))
		old, err := decode(mem)
		if err != nil {
			return 0, err
		}
		if old.version == 0 || old.key == key {
			version = old.version + 1
			slot{version, key, value}.encode(mem)
			return version, nil
		}
	}
	return 0, nil
}
