//go:build interop

package interop

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
)

// end is the local end of rping's exchange, as a program with the verbs. It is for rows
// with connections that the stag command does not make. Package ping of the command
// describes the exchange.
type end struct {
	*rig
	ctx        context.Context
	a          *rdma.Adapter
	pd         *rdma.PD
	qp         *rdma.QP
	send, recv *rdma.CQ
	hears      *rdma.MR // receives the peer's next message
	data, back *rdma.MR
}

// infoLen is the length of rping's only message: address, key, length.
const infoLen = 16

// adapter opens the local interface for a row.
func (r *rig) adapter() (a *rdma.Adapter) {
	r.Helper()
	r.Must(r.pair.Do(pair.A, func() (err error) {
		a, err = rdma.Open(rdma.Config{Ports: []string{r.port()}})
		return err
	}))
	r.Cleanup(func() {
		if err := a.Close(); err != nil {
			r.Errorf("close the adapter: %v", err)
		}
	})
	return a
}

// context returns a context that limits the row's waits.
func (r *rig) context() context.Context {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, fmt.Errorf("nothing happens for %v", patience))
	r.Cleanup(cancel)
	return ctx
}

// newEnd makes a QP and the memory for an exchange of size octets.
func (r *rig) newEnd(a *rdma.Adapter, size int) *end {
	r.Helper()
	e := &end{rig: r, ctx: r.context(), a: a}
	var err error
	e.pd, err = a.AllocPD()
	r.Must(err)
	e.send, err = a.CreateCQ(16)
	r.Must(err)
	e.recv, err = a.CreateCQ(16)
	r.Must(err)
	e.qp, err = e.pd.CreateQP(rdma.QPConfig{SendCQ: e.send, RecvCQ: e.recv})
	r.Must(err)
	r.Cleanup(func() { e.qp.Close() })
	e.hears = e.memory(infoLen, rdma.LocalWrite)
	e.data = e.memory(size, rdma.LocalWrite|rdma.RemoteRead)
	e.back = e.memory(size, rdma.LocalWrite|rdma.RemoteWrite)
	e.listen()
	return e
}

func (e *end) memory(size int, access rdma.Access) *rdma.MR {
	e.Helper()
	mr, err := e.pd.RegMR(make([]byte, size), access)
	e.Must(err)
	return mr
}

// listen posts the receive for the next message.
func (e *end) listen() {
	e.Helper()
	_, err := e.qp.PostRecv(rdma.RecvWR{SGL: []rdma.SGE{e.hears.SGE(0, infoLen)}})
	e.Must(err)
}

// do posts a work request and waits for its completion.
func (e *end) do(wr rdma.SendWR) {
	e.Helper()
	wr.Flags |= rdma.Signaled
	_, err := e.qp.PostSend(wr)
	e.Must(err)
	e.completed(e.send)
}

// completed waits for a completion, which must be successful.
func (e *end) completed(cq *rdma.CQ) rdma.Completion {
	e.Helper()
	c, err := cq.Next(e.ctx)
	if err != nil || c.Status != rdma.Success {
		e.Fatalf("%+v, %v (%v)", c, err, e.qp.Err())
	}
	return c
}

// tell sends the address of a region. The server's go-ahead has the same form.
func (e *end) tell(mr *rdma.MR) {
	e.Helper()
	b := binary.BigEndian.AppendUint64(nil, mr.Addr())
	b = binary.BigEndian.AppendUint32(b, uint32(mr.RKey()))
	e.do(rdma.SendWR{Op: rdma.WRSend, Inline: binary.BigEndian.AppendUint32(b, uint32(mr.Len()))})
}

// hear waits for the peer's message and returns its contents.
func (e *end) hear() (addr uint64, key rdma.STag, size int) {
	e.Helper()
	if c := e.completed(e.recv); c.Length != infoLen {
		e.Fatalf("a message of %d octets, want %d", c.Length, infoLen)
	}
	b := bytes.Clone(e.hears.Bytes())
	e.listen()
	return binary.BigEndian.Uint64(b), rdma.STag(binary.BigEndian.Uint32(b[8:])), int(binary.BigEndian.Uint32(b[12:]))
}

// asks runs rounds as the client, and disconnects.
func (e *end) asks(rounds int) {
	e.Helper()
	for n := range rounds {
		e.askOnce(n)
	}
	if err := e.qp.Disconnect(e.ctx); err != nil {
		e.Errorf("disconnect: %v", err)
	}
}

// askOnce runs one round as the client. The server must write back the octets that it has
// read. They are text that ends with a zero, because rping uses the zero to find the
// length.
func (e *end) askOnce(n int) {
	e.Helper()
	text := e.data.Bytes()[:e.data.Len()-1]
	for i := range text {
		text[i] = 'A' + byte((i*7+n*31+i>>8)%58)
	}
	for _, mr := range []*rdma.MR{e.data, e.back} {
		e.tell(mr)
		e.hear()
	}
	if !bytes.Equal(e.back.Bytes(), e.data.Bytes()) {
		e.Fatalf("round %d: what came back is not what was read", n)
	}
}

// serves runs rounds as the server of a client that compares the octets and then
// disconnects.
func (e *end) serves(rounds int) {
	e.Helper()
	for range rounds {
		e.serveOnce()
	}
	e.deserted()
}

// serveOnce runs one round as the server.
func (e *end) serveOnce() {
	e.Helper()
	addr, key, n := e.hear()
	e.do(rdma.SendWR{Op: rdma.WRRead, SGL: []rdma.SGE{e.data.SGE(0, n)}, RKey: key, RemoteAddr: addr})
	e.tell(e.back)
	addr, key, _ = e.hear()
	e.do(rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{e.data.SGE(0, n)}, RKey: key, RemoteAddr: addr})
	e.tell(e.back)
}

// deserted waits until the client has disconnected.
func (e *end) deserted() {
	e.Helper()
	select {
	case <-e.qp.Done():
	case <-e.ctx.Done():
		e.Fatal("the client does not leave")
	}
	if err := e.qp.Err(); err != nil {
		e.Errorf("the client has left by %v", err)
	}
}

// agreed checks the revision and the use of the CRC that both ends have agreed on.
func (e *end) agreed(revision int, crc bool) {
	e.Helper()
	c := e.qp.Conn()
	if c.Revision != revision || c.CRC != crc || !strings.Contains(c.Path, "native") {
		e.Errorf("agreed on %+v, want revision %d, CRC %v, native mode", c, revision, crc)
	}
}
