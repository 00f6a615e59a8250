package iscsi_test

import (
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/iser"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// raw is an initiator of iSER that the test plays.
type raw struct {
	rig.Stage
	*iser.Channel
	s      *iscsi.Server
	mr     *rdma.MR // 1 MiB that the target may read from and write to
	params login.Params
	cmdSN  seq.Num
}

// connectRaw connects to the portal, without a login.
func connectRaw(s rig.Stage, server *iscsi.Server) *raw {
	s.Helper()
	a, err := rdma.Open(rdma.Config{KernelPort: true, NoControl: true, RegionHeap: 8 << 20})
	s.Must(err)
	s.Cleanup(func() { s.Check(a.Close()) })
	r := &raw{Stage: s, s: server}
	r.Channel, err = iser.New(iser.Config{Adapter: a, Receives: 300, Sends: 4, Work: 300})
	s.Must(err)
	s.Cleanup(func() { s.Check(r.Close()) })
	r.mr, err = r.PD().AllocMR(1<<20, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	s.Must(err)
	s.Cleanup(func() { s.Check(r.mr.Close()) })
	// As libiscsi, so that the region outlives a command: no Send with Invalidate.
	s.Must(r.QP().Dial(s.Ctx(), server.Addr().String(), rdma.ConnParams{
		PrivateData: []byte{pdu.ISERNoZeroBasedVA | pdu.ISERNoSendInvalidate, 0, 0, 0}, ORD: rdma.NoReads, NoPeerToPeer: true,
	}))
	return r
}

// rawISER connects and logs in.
func rawISER(s rig.Stage, server *iscsi.Server, isid byte) *raw {
	s.Helper()
	r := connectRaw(s, server)
	m := r.machine(isid, nil)
	s.Must(r.Converse(s.Ctx(), m.Start(nil), m, nil))
	r.params = m.Params()
	r.cmdSN = r.params.CmdSN
	s.Must(r.Start(r.params.MaxRecvLength, r.params.MaxSendLength))
	r.command(1, make([]byte, 6), 0, 0) // the first command hears of the power on
	r.response(1)
	return r
}

func (r *raw) machine(isid byte, chap *login.Credentials) *login.Initiator {
	r.Helper()
	m, err := login.NewInitiator(login.InitiatorConfig{
		Name: "iqn.2026-01.test.stag:raw", Target: ownTarget, ISID: pdu.ISID{0x80, isid}, Tag: 1, CmdSN: 1, CHAP: chap,
		Wishes: login.Wishes{RDMA: true, InitiatorRecvLength: 4096, TargetRecvLength: 8192},
	})
	r.Must(err)
	return m
}

// put sends a PDU.
func (r *raw) put(f pdu.ISERFields, op pdu.Opcode, tag pdu.Tag, data []byte, set func(h *pdu.Header)) {
	r.Helper()
	var h pdu.Header
	h.Reset(op)
	h.SetFlags(pdu.Final)
	h.SetLUN(1 << 48)
	h.SetInitiatorTaskTag(tag)
	if pdu.InfoOf(op).CmdSN {
		h.SetCmdSN(r.cmdSN)
	}
	if set != nil {
		set(&h)
	}
	if h.AdvancesCmdSN() {
		r.cmdSN++
	}
	r.Must(r.Send(&f, &h, nil, len(data), func(b []byte) bool { copy(b, data); return true }, 0))
}

// command sends a command whose buffer is the whole region.
func (r *raw) command(tag pdu.Tag, cdb []byte, flags pdu.Flags, edtl int) {
	r.Helper()
	r.lie(pdu.ISERFields{HasRead: flags&pdu.Read != 0, ReadSTag: r.mr.RKey(), HasWrite: flags&pdu.Write != 0, WriteSTag: r.mr.RKey()}, tag, cdb, flags, edtl)
}

// lie sends a command with the fields f.
func (r *raw) lie(f pdu.ISERFields, tag pdu.Tag, cdb []byte, flags pdu.Flags, edtl int) {
	r.Helper()
	r.put(f, pdu.OpCommand, tag, nil, func(h *pdu.Header) {
		h.SetFlags(pdu.Final | flags)
		h.SetEDTL(uint32(edtl))
		h.SetCDB(cdb)
	})
}

// read and write send READ(10) and WRITE(10) of n blocks.
func (r *raw) read(tag pdu.Tag, lba, n int) {
	r.Helper()
	r.command(tag, cdb10(0x28, lba, n), pdu.Read, n*512)
}
func (r *raw) write(tag pdu.Tag, lba, n int) {
	r.Helper()
	r.command(tag, cdb10(0x2a, lba, n), pdu.Write, n*512)
}

func cdb10(op byte, lba, n int) []byte {
	return []byte{op, 0, byte(lba >> 24), byte(lba >> 16), byte(lba >> 8), byte(lba), 0, byte(n >> 8), byte(n), 0}
}

// hear returns the header of the next PDU.
func (r *raw) hear(op pdu.Opcode, tag pdu.Tag) *pdu.Header {
	r.Helper()
	m, err := r.Next(r.Ctx())
	r.Must(err)
	h := *m.PDU
	r.Must(r.Release(&m))
	if h.Opcode() != op || h.InitiatorTaskTag() != tag {
		r.Fatalf("the target sends %v with tag %v, want %v with %v", h.Opcode(), h.InitiatorTaskTag(), op, tag)
	}
	return &h
}

// response returns the status of a command.
func (r *raw) response(tag pdu.Tag) byte {
	r.Helper()
	return r.hear(pdu.OpResponse, tag).Status()
}

// good fails unless the command succeeds.
func (r *raw) good(tag pdu.Tag) {
	r.Helper()
	if status := r.response(tag); status != 0 {
		r.Errorf("command %v has status %#x", tag, status)
	}
}

// manage sends an immediate task management request.
func (r *raw) manage(tag pdu.Tag, f pdu.Function, ref pdu.Tag) {
	r.Helper()
	r.put(pdu.ISERFields{}, pdu.OpTask, tag, nil, func(h *pdu.Header) {
		h.SetImmediate(true)
		h.SetFunction(f)
		h.SetReferencedTaskTag(ref)
	})
}

// ended fails unless the target ends the connection, and has nothing left of the session.
func (r *raw) ended() {
	r.Helper()
	select {
	case <-r.Done():
	case <-r.Ctx().Done():
		r.Fatalf("the target does not end the connection")
	}
	r.quiet(0)
}

// quiet waits until the server has so many sessions. Without one, all memory is back.
func (r *raw) quiet(sessions int) {
	r.Helper()
	for r.s.Sessions() != sessions {
		if r.Ctx().Err() != nil {
			r.Fatalf("the target has %d sessions, want %d", r.s.Sessions(), sessions)
		}
		time.Sleep(time.Millisecond)
	}
	if n := r.s.MemoryTaken(); sessions == 0 && n != 0 {
		r.Errorf("%d octets of memory are taken without a session", n)
	}
}
