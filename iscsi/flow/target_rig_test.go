package flow

import (
	"bytes"
	"io"
	"slices"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/seq"
	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/stream"
)

// disk is a medium with a guard on both sides.
type disk struct {
	guarded
	lends bool
	syncs int
}

func newDisk(n int, lends bool) *disk {
	d := &disk{guarded: guardedBuf(n), lends: lends}
	clear(d.buf)
	return d
}

func (d *disk) Size() int64 { return int64(len(d.buf)) }
func (d *disk) Sync() error { d.syncs++; return nil }
func (d *disk) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || int(off)+len(p) > len(d.buf) {
		return 0, io.EOF
	}
	return copy(p, d.buf[off:]), nil
}
func (d *disk) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || int(off)+len(p) > len(d.buf) {
		return 0, io.EOF
	}
	return copy(d.buf[off:], p), nil
}
func (d *disk) Lend(off, n int64, _ bool) []byte {
	if !d.lends {
		return nil
	}
	return d.buf[off : off+n : off+n]
}

// server is a Target between a disk and an initiator that the test plays.
type server struct {
	t      tester
	tgt    *Target
	ulp    stream.ULP // of tgt
	w      *wire
	p      login.Params
	disk   *disk
	unit   *unit.Unit
	pool   *Pool
	heard  *catcher
	cmdSN  seq.Num // of the next command
	lazy   bool    // work is done only by the test
	resets int
	ended  int
	in     [1][]byte // for feed
}

const (
	serverBlocks = 2048
	serverWindow = 8
)

// usualTarget are the parameters of most tests of a target.
func usualTarget() login.Params {
	p := usual()
	p.MaxSendLength, p.MaxRecvLength = 1<<18, 1<<18
	p.FirstBurstLength, p.MaxBurstLength = 4096, 8192
	p.CmdSN, p.MaxCmdSN = 0xfffffffe, serverWindow-3
	p.Digests = none
	return p
}

// serve makes a server. lends says whether the disk lends its memory.
func serve(t tester, p login.Params, lends bool) *server {
	t.Helper()
	s := &server{t: t, p: p, w: newWire(), disk: newDisk(serverBlocks*512, lends), heard: newCatcher(p.Digests), cmdSN: p.CmdSN}
	u, err := unit.New(unit.Config{Backend: s.disk, Serial: "1", MaxTransfer: 512 << 10})
	if err != nil {
		t.Fatal(err)
	}
	absent, err := unit.New(unit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.unit, s.pool = u, NewPool(make([]byte, 4<<20))
	table := newTable(t)
	pd, err := table.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	slots := serverWindow + 4
	if p.ErrorRecoveryLevel != 0 {
		slots = 4 * serverWindow // jobs stay until their status is acknowledged
	}
	tags, err := table.ReserveTags(pd, slots)
	if err != nil {
		t.Fatal(err)
	}
	luns := func() []uint64 { return []uint64{1 << 48} }
	s.tgt = NewTarget(TargetConfig{
		Params: p, Tags: tags, Window: serverWindow, Board: new(signal.Board), Pool: s.pool,
		LUNs:   map[uint64]*LUN{1 << 48: {Nexus: u.Attach("iqn.a", luns)}},
		Absent: &LUN{Nexus: absent.Attach("iqn.a", luns)},
	})
	s.ulp = s.tgt.Stream()
	s.tgt.Work.Fire = func() {}
	s.tgt.Ended.Fire = func() { s.ended++ }
	return s
}

// work does the jobs that may block, and reports whether there were any.
func (s *server) work() bool {
	list := s.tgt.TakeWork()
	any := list != nil
	for j := list; j != nil; {
		next := j.NextWork()
		switch u := j.Task.Nexus; j.Op {
		case JobBegin:
			j.Let = u.Unit().Begin(&j.Task)
			if j.Let && j.Task.Dir != unit.DataOut && j.Allot() {
				u.Unit().Run(&j.Task)
			}
		case JobRun:
			u.Unit().Run(&j.Task)
		case JobText:
			j.Refused = bytes.HasPrefix(j.Text, []byte("No"))
			j.Text, j.MaxSend = []byte("X-test="+string(j.Text)), 1000
		case JobReset:
			s.resets++
			s.unit.Reset()
			j.Response = pdu.FunctionComplete
		}
		s.tgt.Done(j)
		j = next
	}
	return any
}

// hears gives the Target octets, and returns the PDUs that it sends.
func (s *server) hears(octets ...[]byte) []caught {
	s.t.Helper()
	if all := slices.Concat(octets...); len(all) != 0 {
		s.w.in = append(s.w.in, all)
		s.ulp.Receive(1, s.w)
	}
	for {
		s.ulp.Transmit(1, s.w)
		if s.lazy || !s.work() {
			break
		}
	}
	return s.heard.hear(s.t, s.w)
}

// pdu returns a PDU of the initiator with the present numbers.
func (s *server) pdu(op pdu.Opcode, tag pdu.Tag, set func(h *pdu.Header), data []byte) []byte {
	var h pdu.Header
	h.Reset(op)
	h.SetFlags(pdu.Final)
	h.SetInitiatorTaskTag(tag)
	h.SetLUN(1 << 48)
	h.SetExpStatSN(s.p.StatSN)
	if pdu.InfoOf(op).CmdSN {
		h.SetCmdSN(s.cmdSN)
	}
	if set != nil {
		set(&h)
	}
	if h.AdvancesCmdSN() {
		s.cmdSN++
	}
	return encode(s.p.Digests, h, nil, data)
}

// command returns a SCSI Command with immediate data.
func (s *server) command(tag pdu.Tag, cdb []byte, flags pdu.Flags, edtl int, data []byte) []byte {
	return s.pdu(pdu.OpCommand, tag, func(h *pdu.Header) {
		h.SetFlags(flags)
		h.SetEDTL(uint32(edtl))
		h.SetCDB(cdb)
	}, data)
}

// write returns a WRITE(10) of n blocks.
func (s *server) write(tag pdu.Tag, lba, n int, data []byte) []byte {
	return s.command(tag, cdb10(0x2a, lba, n), pdu.Final|pdu.Write, n*512, data)
}

// dataOut returns the Data-Out that answers an R2T.
func (s *server) dataOut(r2t *pdu.Header, sn uint32, off int, final bool, data []byte) []byte {
	return s.pdu(pdu.OpDataOut, r2t.InitiatorTaskTag(), func(h *pdu.Header) {
		h.SetFlags(0)
		if final {
			h.SetFlags(pdu.Final)
		}
		h.SetTargetTransferTag(r2t.TargetTransferTag())
		h.SetDataSN(sn)
		h.SetBufferOffset(uint32(off))
	}, data)
}

// one is the only PDU of a list.
func (s *server) one(got []caught, op pdu.Opcode) *caught {
	s.t.Helper()
	if len(got) != 1 || got[0].h.Opcode() != op {
		s.t.Fatalf("sent %v, want one %v (the connection: %v)", opcodes(got), op, s.tgt.broken)
	}
	return &got[0]
}

func opcodes(got []caught) (names []string) {
	for _, p := range got {
		names = append(names, p.h.Opcode().String())
	}
	return names
}

// status is the only PDU of a list, a SCSI Response with a status.
func (s *server) status(got []caught, want unit.Status, code scsi.Code) {
	s.t.Helper()
	p := s.one(got, pdu.OpResponse)
	if p.h.Status() != uint8(want) {
		s.t.Fatalf("status %#x, sense % x, want %v", p.h.Status(), p.data, want)
	}
	if want == unit.CheckCondition && (len(p.data) != 2+unit.SenseLength || scsi.Code(p.data[14])<<8|scsi.Code(p.data[15]) != code) {
		s.t.Fatalf("sense % x, want code %04x", p.data, code)
	}
}

// idle fails unless the Target has nothing left of any job.
func (s *server) idle() {
	s.t.Helper()
	if got := len(s.tgt.free); got != len(s.tgt.jobs) || s.tgt.windows != 0 || s.pool.Free() != s.pool.Size() {
		s.t.Fatalf("%d of %d slots are free, %d commands in the window, %d octets of memory are taken", got, len(s.tgt.jobs), s.tgt.windows, s.pool.Size()-s.pool.Free())
	}
	if !s.disk.whole() {
		s.t.Fatal("octets beside the disk were touched")
	}
}

// cdb10 is a CDB of 10 octets.
func cdb10(op byte, lba, n int) []byte {
	return []byte{op, 0, byte(lba >> 24), byte(lba >> 16), byte(lba >> 8), byte(lba), 0, byte(n >> 8), byte(n), 0}
}

// blocks returns the octets of n blocks of the disk.
func (s *server) blocks(lba, n int) []byte { return bytes.Clone(s.disk.buf[lba*512 : (lba+n)*512]) }
