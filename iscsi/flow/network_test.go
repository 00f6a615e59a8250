package flow

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/test/scenario"
	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

var seed = flag.Uint64("seed", 0, "the only simulated network to play; 0: as many as STAG_SCENARIOS says, or a few")

// fewNetworks is how many simulated networks a test plays by default.
func fewNetworks() int {
	if testing.Short() {
		return 25
	}
	return 200
}

// ramDisk is a target with a disk in memory, as plain as a test can have it. It implements
// stream.ULP.
type ramDisk struct {
	e      *end // its tables of PDUs and its numbers
	disk   []byte
	r      receiver
	x      sender
	jobs   map[pdu.Tag]*ramJob
	out    []ramPDU
	imm    []byte
	broken bool
	luck   *rand.Rand
}

type ramJob struct {
	at, length, have, asked int
	r2tSN                   uint32
}

type ramPDU struct {
	h    pdu.Header
	data []byte
}

// place512 returns the octets of a command's blocks.
func (d *ramDisk) place512(h *pdu.Header) int { return int(binary.BigEndian.Uint32(h.CDB()[2:])) * 512 }

func (d *ramDisk) arrived(h *pdu.Header, _ []byte) (Reason, bool) {
	switch h.Opcode() {
	case pdu.OpCommand:
		d.imm = make([]byte, h.DataLength())
		d.r.collect(d.imm)
	case pdu.OpDataOut:
		j := d.jobs[h.InitiatorTaskTag()]
		if j == nil || int(h.BufferOffset()) != j.have || j.have+h.DataLength() > j.length {
			return BadOpcode, false
		}
		d.imm = d.disk[j.at+j.have:][:h.DataLength()]
		d.r.collect(d.imm)
	}
	return OK, false
}

func (d *ramDisk) complete(h *pdu.Header, why Reason) (Reason, bool) {
	if why != OK { // level 0 of this target: a wrong digest ends the connection
		return ControlDigest, false
	}
	tag := h.InitiatorTaskTag()
	switch h.Opcode() {
	case pdu.OpCommand:
		if h.EDTL() == 0 {
			d.send(pdu.OpResponse, tag, nil, nil)
			return OK, false
		}
		j := &ramJob{at: d.place512(h), length: int(h.EDTL())}
		if h.Has(pdu.Read) {
			d.read(tag, j)
			return OK, false
		}
		d.jobs[tag] = j
		j.have = copy(d.disk[j.at:][:j.length], d.imm)
		if j.asked = j.have; h.Final() {
			d.next(tag, j)
		} else {
			j.asked = min(j.length, int(d.e.p.FirstBurstLength))
		}
	case pdu.OpDataOut:
		j := d.jobs[tag]
		if j.have += h.DataLength(); j.have == j.asked {
			d.next(tag, j)
		}
	}
	return OK, false
}

// next asks for more data of a write, or answers it.
func (d *ramDisk) next(tag pdu.Tag, j *ramJob) {
	if j.have == j.length {
		delete(d.jobs, tag)
		d.send(pdu.OpResponse, tag, nil, nil)
		return
	}
	n := min(j.length-j.have, 1+d.luck.IntN(int(d.e.p.MaxBurstLength)))
	j.asked = j.have + n
	d.send(pdu.OpR2T, tag, func(h *pdu.Header) {
		h.SetTargetTransferTag(pdu.Tag(j.r2tSN))
		h.SetDataSN(j.r2tSN)
		h.SetBufferOffset(uint32(j.have))
		h.SetDesiredLength(uint32(n))
	}, nil)
	j.r2tSN++
}

// read answers a read, in Data-In of any lengths.
func (d *ramDisk) read(tag pdu.Tag, j *ramJob) {
	for off, sn := 0, uint32(0); ; sn++ {
		n := min(j.length-off, 1+d.luck.IntN(3000))
		last := off+n == j.length
		at := off
		d.send(pdu.OpDataIn, tag, func(h *pdu.Header) {
			h.SetFlags(0)
			if last {
				h.SetFlags(pdu.Final | pdu.StatusPresent)
			}
			h.SetDataSN(sn)
			h.SetBufferOffset(uint32(at))
		}, bytes.Clone(d.disk[j.at+off:][:n]))
		if off += n; last {
			return
		}
	}
}

// send queues a PDU. Its numbers are those of the moment.
func (d *ramDisk) send(op pdu.Opcode, tag pdu.Tag, set func(h *pdu.Header), data []byte) {
	octets := d.e.pdu(op, tag, set, data)
	d.out = append(d.out, ramPDU{pdu.Header(octets[:48]), data})
}

func (d *ramDisk) Receive(_ clock.Instant, s stream.Stream) {
	if !d.broken && d.r.run(s) != OK {
		d.broken = true
		s.Abort()
	}
	if s.EOF() {
		s.CloseWrite()
	}
}

func (d *ramDisk) Transmit(_ clock.Instant, s stream.Stream) {
	for !d.broken && (d.x.open || len(d.out) != 0) {
		if !d.x.open {
			*d.x.header(0) = d.out[0].h
			d.x.begin([][]byte{d.out[0].data}, 0, len(d.out[0].data))
			d.out = d.out[1:]
		}
		if left, _ := d.x.emit(s); !left {
			return
		}
	}
}

func (d *ramDisk) Fault(clock.Instant, error) { d.broken = true }
func (d *ramDisk) Deadline() clock.Instant    { return clock.Never }

// weather returns a network of a seed. forges says that it changes octets unnoticed by TCP.
func weather(seed uint64) (link simnic.Config, forges bool) {
	link = simnic.Config{Seed: seed, Latency: 50 * time.Microsecond, Rate: 1e9}
	switch seed % 5 {
	case 1:
		link.Loss, link.Duplicate, link.Reorder = 0.03, 0.02, 0.1
	case 2:
		link.Corrupt, link.Split, link.Merge = 0.03, 0.1, 0.1
	case 3:
		link.Forge = 0.02
	case 4:
		link.Loss, link.Corrupt, link.Forge = 0.01, 0.01, 0.01
	}
	return link, link.Forge != 0
}

// TestNetworks runs a session through simulated networks with loss, duplicates, reordering
// and corruption, with both digests. Every command completes once. No command that
// succeeds has a wrong octet. Without corruption that TCP cannot see, all succeed.
func TestNetworks(t *testing.T) {
	scenario.Play(t, *seed, fewNetworks(), func(seed uint64) error { return network(t, seed, plainTarget) })
}

// TestBothEnds is TestNetworks with a Target and a disk at the other end.
func TestBothEnds(t *testing.T) {
	scenario.Play(t, *seed, fewNetworks(), func(seed uint64) error { return network(t, seed, wholeTarget) })
}

// peer is the target at the other end of a network.
type peer struct {
	ulp    stream.ULP
	broken func() bool // it has ended the connection
	work   func() bool // it does the work that may block, and says whether there was any
	rx     *receiver
}

// plainTarget is a peer that is as plain as possible.
func plainTarget(t *testing.T, e *end, luck *rand.Rand) peer {
	d := &ramDisk{e: e, disk: make([]byte, 1<<20), jobs: map[pdu.Tag]*ramJob{}, luck: luck}
	d.r = receiver{role: d, digests: e.p.Digests, limit: e.p.MaxSendLength}
	d.x.digests = e.p.Digests
	e.p.MaxCmdSN = e.p.CmdSN + 1000 // its PDUs open the window
	return peer{d, func() bool { return d.broken }, func() bool { return false }, &d.r}
}

// wholeTarget is a Target with a disk.
func wholeTarget(t *testing.T, e *end, luck *rand.Rand) peer {
	p := e.p
	p.MaxSendLength, p.MaxRecvLength = e.p.MaxRecvLength, e.p.MaxSendLength
	s := serve(t, p, luck.IntN(2) == 0)
	return peer{s.ulp, func() bool { return s.tgt.broken != OK }, s.work, &s.tgt.rx}
}

// network plays one network. A failure of begin and serve, which need no network, ends the
// test by t.
func network(t *testing.T, seed uint64, target func(*testing.T, *end, *rand.Rand) peer) error {
	luck := rand.New(rand.NewPCG(seed, 9))
	link, forges := weather(seed)
	p := usual()
	p.MaxSendLength = 512 + luck.IntN(8192)
	p.InitialR2T, p.ImmediateData = luck.IntN(2) == 0, luck.IntN(2) == 0
	p.MaxCmdSN = p.CmdSN + serverWindow - 1
	p.FirstBurstLength, p.MaxBurstLength = uint32(512+luck.IntN(16384)), uint32(16896+luck.IntN(16384))
	e := begin(t, p, 4)
	d := target(t, e, luck)
	w, err := world.New(world.Config{Link: link, Edit: func(side int, c *engine.Config) {
		if side == 0 {
			c.Table = e.table
		}
	}})
	if err != nil {
		return err
	}
	c, err := w.Connect(world.Flow{}, e.f, d.ulp)
	if err != nil {
		return err
	}
	const commands = 24
	var want [4][]byte // what the quarters of the disk must have
	bufs := map[uint64]guarded{}
	busy := map[int]bool{}
	posted, done := 0, 0
	var got [4]Completion
	for done < commands {
		for posted < commands && e.q.Room() > 0 && !busy[posted%4] {
			q := posted % 4
			id := uint64(posted)
			command := Command{ID: id, LUN: 1 << 48, CDB: bytes.Clone(read10)}
			binary.BigEndian.PutUint32(command.CDB[2:], uint32(q)*512)
			if want[q] == nil || luck.IntN(2) == 0 {
				want[q] = pattern(512*(1+luck.IntN(78)), byte(posted))
				command.CDB[0] = write10[0]
				command.Out = [][]byte{want[q][:len(want[q])/3], want[q][len(want[q])/3:]}
			} else {
				g := guardedBuf(len(want[q]))
				bufs[id] = g
				command.In = [][]byte{g.buf[:len(g.buf)/2], g.buf[len(g.buf)/2:]}
			}
			binary.BigEndian.PutUint16(command.CDB[7:], uint16(len(want[q])/512))
			if posted == 0 { // the unit tells of its power-on
				command = Command{LUN: 1 << 48, CDB: make([]byte, 6)}
				want[q] = nil
			}
			if n, err := e.q.Post(command); n != 1 {
				if err == ErrEnded {
					posted, done = posted+1, done+1 // nothing will come
					continue
				}
				return fmt.Errorf("posted %d: %w", n, err)
			}
			busy[q] = true
			posted++
		}
		if done == commands {
			break
		}
		w.Engines[0].Ring(c.ID[0])
		k := 0
		if err := w.Run(time.Minute, func() bool {
			if d.work() {
				w.Engines[1].Ring(c.ID[1])
			}
			k = e.q.Poll(got[:])
			return k != 0 || e.f.over.Load()
		}); err != nil {
			// A session finds by a ping that the target's reset was lost, or that an end waits for the
			// rest of a header whose length (of the AHS) was forged, and which no digest has checked.
			lost := d.broken() || forges && (e.f.rx.stage == inRest || d.rx.stage == inRest)
			if !lost || e.f.wantAbort.Load() {
				return fmt.Errorf("%v after %d of %d", err, done, commands)
			}
			e.f.Abort()
		}
		if k == 0 {
			k = e.q.Poll(got[:])
		}
		for _, x := range got[:k] {
			q := int(x.ID) % 4
			if !busy[q] {
				return fmt.Errorf("command %d completes twice", x.ID)
			}
			busy[q], done = false, done+1
			g, read := bufs[x.ID]
			switch {
			case x.ID == 0:
			case (x.Why != OK || x.Status() != 0) && !forges:
				return fmt.Errorf("command %d: %v (connection: %v)", x.ID, x.Why, e.f.broken)
			case read && !g.whole():
				return fmt.Errorf("command %d touches what is outside of its buffer", x.ID)
			case x.Why == OK && x.Status() == 0 && read && !bytes.Equal(g.buf, want[q]):
				return fmt.Errorf("command %d has wrong octets", x.ID)
			case (x.Why != OK || x.Status() != 0) && !read:
				want[q] = nil // the disk may have any part of the write
			}
		}
	}
	return nil
}
