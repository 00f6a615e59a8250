package iscsi_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/iscsi/iser"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// peer is a target of iSER that a test scripts: one disk in RAM, on the verbs and without
// the target of package iscsi.
type peer struct {
	t    testing.TB
	a    *rdma.Adapter
	l    *rdma.Listener
	disk []byte

	plain     bool // answers are Sends without Invalidate
	immediate bool // the target takes immediate data
	// script, if set, may answer a command in another way. It returns true if it has.
	script func(c *peerConn, m *iser.Message) bool
	// idle, if set, runs before a connection waits.
	idle func()

	ctx     context.Context
	running sync.WaitGroup
	mu      sync.Mutex
	conns   []*peerConn
}

// peerConn is a connection of a peer.
type peerConn struct {
	*peer
	*iser.Channel
	disk   *rdma.MR
	wake   chan struct{}
	statSN seq.Num
	expCmd seq.Num
	writes map[uint64]pdu.Header // commands whose data is being read
	next   uint64
}

const peerBlock = 512

func newPeer(t testing.TB, a *rdma.Adapter, address string) *peer {
	t.Helper()
	p := &peer{t: t, a: a, disk: make([]byte, 4<<20)}
	ctx, cancel := context.WithCancel(context.Background())
	p.ctx = ctx
	var err error
	if p.l, err = a.Listen(ctx, net.JoinHostPort(address, "0"), rdma.ListenConfig{}); err != nil {
		t.Fatal(err)
	}
	p.running.Go(func() {
		for r, err := p.l.Accept(ctx); err == nil; r, err = p.l.Accept(ctx) {
			p.running.Go(func() { p.serve(r) })
		}
	})
	t.Cleanup(func() {
		p.l.Close()
		cancel()
		p.running.Wait()
	})
	return p
}

// url returns the URL of the disk.
func (p *peer) url(arguments string) string {
	return "iser://" + p.l.Addr().String() + "/iqn.2026-01.test:t/0" + arguments
}

// kill resets the present connections.
func (p *peer) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.QP().Abort()
	}
	p.conns = nil
}

// poke makes the present connections run idle.
func (p *peer) poke() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.stir()
	}
}

// stir makes the loop look.
func (c *peerConn) stir() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// serve serves a connection to its end.
func (p *peer) serve(r *rdma.ConnRequest) {
	c := &peerConn{peer: p, wake: make(chan struct{}, 1), writes: map[uint64]pdu.Header{}}
	var err error
	if c.Channel, err = iser.New(iser.Config{Adapter: p.a, Receives: 300, Sends: 16, Work: 600}); err != nil {
		p.t.Error(err)
		return
	}
	defer c.Close()
	if c.Accept(p.ctx, r, rdma.ConnParams{}) != nil {
		return // the initiator has gone
	}
	if c.disk, err = c.PD().RegMR(p.disk, rdma.LocalWrite); err != nil {
		p.t.Error(err)
		return
	}
	defer c.disk.Close()
	p.mu.Lock()
	p.conns = append(p.conns, c)
	p.mu.Unlock()
	if c.logIn() == nil {
		c.loop()
	}
}

func (c *peerConn) logIn() error {
	t, err := login.NewTarget(login.TargetConfig{
		Registry: anyone{}, StatSN: 3, Window: 128,
		Wishes: login.Wishes{RDMA: true, NoImmediateData: !c.immediate, RequireR2T: true, TargetRecvLength: 8192, InitiatorRecvLength: 8192},
	})
	if err != nil {
		return err
	}
	err = c.Converse(c.ctx, nil, t, func() error {
		p := t.Params()
		return c.Start(p.MaxRecvLength, p.MaxSendLength)
	})
	c.statSN, c.expCmd = t.Params().StatSN, t.Params().CmdSN
	c.News(c.stir)
	return err
}

type anyone struct{}

func (anyone) Policy(*login.Request) login.Policy     { return login.Policy{PortalGroupTag: 1} }
func (anyone) Existing(*login.Request) login.Existing { return login.Existing{} }
func (anyone) Enter(*login.Request, login.Action, *login.Params) (uint16, pdu.LoginStatus) {
	return 1, pdu.LoginSuccess
}

// loop handles PDUs until the connection ends.
func (c *peerConn) loop() {
	for {
		var e iser.Event
		ok, err := c.Poll(&e)
		switch {
		case err != nil:
			return
		case ok && e.Message.PDU != nil:
			c.request(&e.Message)
			if c.Release(&e.Message) != nil {
				return
			}
			continue
		case ok:
			if h, is := c.writes[e.Done.ID]; is && e.Done.Status == rdma.Success {
				delete(c.writes, e.Done.ID)
				if h.Opcode() == pdu.OpTask {
					c.answer(pdu.OpTaskResponse, &h)
				} else {
					c.respond(&h, 0, 0, 0)
				}
			}
			continue
		}
		if c.idle != nil {
			c.idle()
		}
		select {
		case <-c.wake:
		case <-c.Channel.Done():
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// request answers a request.
func (c *peerConn) request(m *iser.Message) {
	h := m.PDU
	if !h.Immediate() {
		c.expCmd = h.CmdSN() + 1
	}
	if c.script != nil && c.script(c, m) {
		return
	}
	switch h.Opcode() {
	case pdu.OpCommand:
		c.command(m)
	case pdu.OpNOPOut:
		if h.InitiatorTaskTag() != pdu.NoTag {
			c.answer(pdu.OpNOPIn, h)
		}
	case pdu.OpTask:
		for id, of := range c.writes {
			if of.InitiatorTaskTag() == h.ReferencedTaskTag() {
				c.writes[id] = *h // the answer waits for the Read, and the command gets none
				return
			}
		}
		c.answer(pdu.OpTaskResponse, h)
	case pdu.OpLogout:
		c.answer(pdu.OpLogoutResponse, h)
	}
}

// command executes a command.
func (c *peerConn) command(m *iser.Message) {
	h := m.PDU
	cdb := h.CDB()
	be := binary.BigEndian
	switch cdb[0] {
	case 0x00, 0x35: // TEST UNIT READY, SYNCHRONIZE CACHE
		c.respond(h, 0, 0, 0)
	case 0x12: // INQUIRY
		if cdb[1] != 0 {
			c.respond(h, 2, 0, 0)
			return
		}
		b := make([]byte, 36)
		b[2], b[3], b[4] = 6, 2, 31
		copy(b[8:], "TEST    SCRIPTED        1   ")
		c.give(m, b)
	case 0x9e: // READ CAPACITY(16)
		b := make([]byte, 32)
		be.PutUint64(b, uint64(len(c.peer.disk)/peerBlock-1))
		be.PutUint32(b[8:], peerBlock)
		c.give(m, b)
	case 0x28, 0x88: // READ
		stag, base, _ := m.ISER.Read()
		c.write(rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{c.disk.SGE(offsetOf(cdb), int(h.EDTL()))}, RemoteAddr: base, RKey: stag})
		c.respond(h, 0, 0, stag)
	case 0x2a, 0x8a: // WRITE
		if len(m.Data) != 0 {
			copy(c.peer.disk[offsetOf(cdb):], m.Data)
			c.respond(h, 0, 0, 0)
			return
		}
		stag, base, _ := m.ISER.Write()
		c.next++
		c.writes[c.next] = *h
		c.write(rdma.SendWR{ID: c.next, Op: rdma.WRRead, Flags: rdma.Signaled, SGL: []rdma.SGE{c.disk.SGE(offsetOf(cdb), int(h.EDTL()))}, RemoteAddr: base, RKey: stag})
	default:
		c.respond(h, 2, 0, 0)
	}
}

// offsetOf returns the first octet that a READ or WRITE names.
func offsetOf(cdb []byte) int {
	if cdb[0] >= 0x80 {
		return int(binary.BigEndian.Uint64(cdb[2:])) * peerBlock
	}
	return int(binary.BigEndian.Uint32(cdb[2:])) * peerBlock
}

// give sends data that is not the disk's.
func (c *peerConn) give(m *iser.Message, b []byte) {
	n := min(len(b), int(m.PDU.EDTL()))
	stag, base, _ := m.ISER.Read()
	for at := 0; at < n; at += 128 {
		c.write(rdma.SendWR{Op: rdma.WRWrite, Inline: b[at:min(n, at+128)], RemoteAddr: base + uint64(at), RKey: stag})
	}
	c.respond(m.PDU, 0, m.PDU.EDTL()-uint32(n), stag)
}

// write posts work requests.
func (c *peerConn) write(wr ...rdma.SendWR) {
	if _, err := c.QP().PostSend(wr...); err != nil {
		c.t.Error(err)
	}
}

// respond sends a SCSI Response. residual octets of the data are missing.
func (c *peerConn) respond(of *pdu.Header, status uint8, residual uint32, invalidate rdma.STag) {
	var h pdu.Header
	h.Reset(pdu.OpResponse)
	h.SetFlags(pdu.Final)
	h.SetStatus(status)
	if residual != 0 {
		h.SetFlags(pdu.Final | pdu.Underflow)
		h.SetResidual(residual)
	}
	var sense []byte
	if status == uint8(scsi.CheckCondition) { // ILLEGAL REQUEST, invalid command operation code
		sense = []byte{0, 18, 0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0}
	}
	c.send(&h, of, sense, invalidate)
}

// answer sends the answer to a request that is no command.
func (c *peerConn) answer(op pdu.Opcode, of *pdu.Header) {
	var h pdu.Header
	h.Reset(op)
	h.SetFlags(pdu.Final)
	if op == pdu.OpNOPIn {
		h.SetTargetTransferTag(pdu.NoTag)
	}
	c.send(&h, of, nil, 0)
}

func (c *peerConn) send(h, of *pdu.Header, data []byte, invalidate rdma.STag) {
	h.SetInitiatorTaskTag(of.InitiatorTaskTag())
	c.emit(h, data, invalidate)
}

// emit sends a PDU with the next numbers.
func (c *peerConn) emit(h *pdu.Header, data []byte, invalidate rdma.STag) {
	h.SetStatSN(c.statSN)
	if h.AdvancesStatSN() {
		c.statSN++
	}
	h.SetExpCmdSN(c.expCmd)
	h.SetMaxCmdSN(c.expCmd + 127)
	if c.plain {
		invalidate = 0
	}
	err := c.Send(&pdu.ISERFields{}, h, nil, len(data), func(b []byte) bool { copy(b, data); return true }, invalidate)
	if err != nil {
		c.t.Error(err)
	}
}

// scripted makes a peer over the kernel's TCP, and an initiator's disk on it.
func scripted(t *testing.T, change func(*peer)) (*rig.Stage, *peer) {
	t.Helper()
	s := rig.On(t)
	rig.NoLeaks(s)
	a, err := rdma.Open(rdma.Config{KernelPort: true, NoControl: true})
	s.Must(err)
	s.Cleanup(func() { s.Check(a.Close()) })
	p := newPeer(t, a, "127.0.0.1")
	if change != nil {
		change(p)
	}
	return &s, p
}
