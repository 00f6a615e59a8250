package flow

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/tpt"
)

// courier carries the messages of a server, and plays the initiator's RNIC.
type courier struct {
	*server
	m      *Messages
	memory map[tpt.STag][]byte // of the initiator
	reads  bool                // Reads are possible
	slow   bool                // the test ends the transfers
	moving []*Job
	writes int // RDMA Writes
}

// message is a PDU that the Target has sent.
type message struct {
	caught
	invalidate tpt.STag
}

// carry makes a server whose datamover are messages.
func carry(t tester, lends bool) *courier {
	p := usualTarget()
	p.RDMA, p.ImmediateData, p.InitialR2T = true, false, true
	s := serve(t, p, lends)
	s.tgt.cfg.Tags = nil
	return &courier{server: s, m: s.tgt.Messages(), memory: map[tpt.STag][]byte{}, reads: true}
}

// sends gives the Target a message, and returns those that it sends.
func (c *courier) sends(f pdu.ISERFields, octets []byte) []message {
	c.t.Helper()
	c.put(f, octets)
	return c.run(1)
}

// put gives the Target a message.
func (c *courier) put(f pdu.ISERFields, octets []byte) {
	c.t.Helper()
	p, _, ok := pdu.Parse(none, octets)
	i, _, _ := pdu.ParseISER(f.Append(nil))
	if !ok {
		c.t.Fatalf("no PDU: %x", octets)
	}
	c.m.Receive(1, i, p.Header(), p.AHS(), p.Data())
}

// run lets the Target move what it wants to.
func (c *courier) run(now clock.Instant) (got []message) {
	var x Transfer
	for {
		c.m.Due(now)
		for c.m.Next(&x, c.reads) {
			if x.Read {
				copy(x.Data, c.memory[x.STag][x.TO:])
			} else if len(x.Data) != 0 {
				c.writes++
				copy(c.memory[x.STag][x.TO:], x.Data)
			}
			if x.PDU {
				b := make([]byte, c.m.Length())
				if !c.m.Fill(b) {
					c.t.Fatalf("Fill fails")
				}
				got = append(got, message{caught{h: *c.m.Header(), data: b}, x.Invalidate})
			}
			if x.Job != nil {
				c.moving = append(c.moving, x.Job)
			}
			if !c.slow {
				c.moved()
			}
		}
		if c.lazy || !c.work() {
			return got
		}
	}
}

// moved ends all transfers.
func (c *courier) moved() {
	for _, j := range c.moving {
		c.m.Moved(j)
	}
	c.moving = nil
}

// reader advertises n octets for a read.
func (c *courier) reader(stag tpt.STag, n int) pdu.ISERFields {
	c.memory[stag] = make([]byte, n)
	return pdu.ISERFields{HasRead: true, ReadSTag: stag}
}

// writer advertises octets for a write.
func (c *courier) writer(stag tpt.STag, octets []byte) pdu.ISERFields {
	c.memory[stag] = octets
	return pdu.ISERFields{HasWrite: true, WriteSTag: stag}
}

// the is the only message, a response with a status.
func (c *courier) the(got []message, status unit.Status, invalidate tpt.STag) *message {
	c.t.Helper()
	if len(got) != 1 || got[0].h.Opcode() != pdu.OpResponse || got[0].h.Status() != uint8(status) || got[0].invalidate != invalidate {
		c.t.Fatalf("sent %v (the connection: %v), want one SCSI Response with status %#x that invalidates %#x", got, c.m.broken, status, invalidate)
	}
	return &got[0]
}

// ready clears the unit attention condition.
func (c *courier) ready() {
	c.sends(pdu.ISERFields{}, c.command(99, make([]byte, 6), pdu.Final, 0, nil))
}

func onBothMedia(t *testing.T, f func(t *testing.T, c *courier)) {
	for _, lends := range []bool{false, true} {
		t.Run(fmt.Sprintf("lends %v", lends), func(t *testing.T) {
			c := carry(t, lends)
			c.ready()
			f(t, c)
			c.idle()
		})
	}
}

// A read is Writes of at most 256 KiB and one Response, which invalidates the STag.
func TestMessagesRead(t *testing.T) {
	onBothMedia(t, func(t *testing.T, c *courier) {
		copy(c.disk.buf, pattern(600<<10, 1))
		for i, blocks := range []int{1, 9, 512, 513, 1024} {
			c.writes = 0
			n := blocks * 512
			stag := tpt.STag(0x100 + i)
			f := c.reader(stag, n)
			p := c.the(c.sends(f, c.command(pdu.Tag(i), cdb10(0x28, 3, blocks), pdu.Final|pdu.Read, n, nil)), unit.Good, stag)
			if !bytes.Equal(c.memory[stag], c.blocks(3, blocks)) || p.h.InitiatorTaskTag() != pdu.Tag(i) || c.writes != (n+largestDataIn-1)/largestDataIn {
				t.Errorf("%d blocks: wrong octets, or %d Writes", blocks, c.writes)
			}
		}
	})
}

// A write is Reads of at most MaxBurstLength, one after the other, from the base that the
// initiator names.
func TestMessagesWrite(t *testing.T) {
	onBothMedia(t, func(t *testing.T, c *courier) {
		for i, blocks := range []int{1, 15, 16, 17, 200} {
			data := pattern(blocks*512, byte(i))
			f := c.writer(7, append(make([]byte, 5), data...))
			f.WriteBase = 5
			c.the(c.sends(f, c.write(1, 8, blocks, nil)), unit.Good, 7)
			if !bytes.Equal(c.blocks(8, blocks), data) {
				t.Errorf("%d blocks: wrong octets", blocks)
			}
		}
	})
}

// Without a Read to spare, commands that need none go on.
func TestMessagesReadDepth(t *testing.T) {
	onBothMedia(t, func(t *testing.T, c *courier) {
		c.reads = false
		if got := c.sends(c.writer(7, pattern(512, 1)), c.write(1, 8, 1, nil)); len(got) != 0 {
			t.Fatalf("sent %v", got)
		}
		c.the(c.sends(c.reader(8, 512), c.command(2, cdb10(0x28, 0, 1), pdu.Final|pdu.Read, 512, nil)), unit.Good, 8)
		c.reads = true
		c.the(c.run(1), unit.Good, 7)
	})
}

// A command without memory for its data fails, and so does one with a data segment.
func TestMessagesWithoutMemory(t *testing.T) {
	onBothMedia(t, func(t *testing.T, c *courier) {
		p := c.the(c.sends(pdu.ISERFields{}, c.command(1, cdb10(0x28, 0, 1), pdu.Final|pdu.Read, 512, nil)), unit.CheckCondition, 0)
		if len(p.data) != 2+unit.SenseLength || p.data[4] != byte(unit.IllegalRequest) {
			t.Errorf("sense % x", p.data)
		}
		c.the(c.sends(c.reader(4, 512), c.write(2, 0, 1, nil)), unit.CheckCondition, 4)
		c.the(c.sends(c.writer(5, make([]byte, 512)), c.write(2, 0, 1, make([]byte, 512))), unit.CheckCondition, 5)
	})
}

// Data-Out has no place in iSER without unsolicited data. Wrong PDUs end the connection.
func TestMessagesRefuse(t *testing.T) {
	onBothMedia(t, func(t *testing.T, c *courier) {
		for _, tag := range []pdu.Tag{pdu.NoTag, 0x17} {
			var r2t pdu.Header
			r2t.SetTargetTransferTag(tag)
			got := c.sends(pdu.ISERFields{}, c.dataOut(&r2t, 0, 0, true, make([]byte, 512)))
			if len(got) != 1 || got[0].h.Opcode() != pdu.OpReject || got[0].invalidate != 0 {
				t.Errorf("sent %v", got)
			}
		}
	})
	for want, octets := range map[Reason]func(c *courier) []byte{
		DataTooLong: func(c *courier) []byte { return c.write(1, 0, 1, make([]byte, 1<<18+1)) },
		BadOpcode:   func(c *courier) []byte { return c.pdu(pdu.OpResponse, 1, nil, nil) },
		CmdSNGap:    func(c *courier) []byte { c.cmdSN += 2; return c.write(1, 0, 1, nil) },
	} {
		c := carry(t, true)
		c.put(pdu.ISERFields{}, octets(c))
		if got := c.m.Due(1); got != want || len(c.run(1)) != 0 {
			t.Errorf("the connection: %v, want %v", got, want)
		}
	}
}

// The command window is open again when the Response leaves, although the transfer that
// carries it has not ended.
func TestMessagesWindow(t *testing.T) {
	onBothMedia(t, func(t *testing.T, c *courier) {
		c.slow = true
		var last pdu.Header
		for i := range 3 {
			got := c.sends(c.reader(tpt.STag(i+1), 512), c.command(pdu.Tag(i), cdb10(0x28, i, 1), pdu.Final|pdu.Read, 512, nil))
			last = got[0].h
		}
		if open := last.MaxCmdSN() - last.ExpCmdSN() + 1; open != serverWindow || len(c.moving) != 3 || len(c.tgt.free) != serverWindow+4-3 {
			t.Errorf("the window is %d with %d transfers, %d slots are free", open, len(c.moving), len(c.tgt.free))
		}
		c.moved()
	})
}

// An aborted command keeps its memory until its transfer has ended, and the answer to the
// abort comes behind it.
func TestMessagesAbort(t *testing.T) {
	onBothMedia(t, func(t *testing.T, c *courier) {
		c.slow = true
		c.sends(c.writer(7, pattern(512, 1)), c.write(1, 8, 1, nil))
		c.sends(c.reader(8, 600<<10), c.command(2, cdb10(0x28, 0, 1200), pdu.Final|pdu.Read, 600<<10, nil))
		taken := c.pool.Size() - c.pool.Free()
		abort := c.pdu(pdu.OpTask, 3, func(h *pdu.Header) {
			h.SetImmediate(true)
			h.SetFunction(pdu.AbortTaskSet)
		}, nil)
		if got := c.sends(pdu.ISERFields{}, abort); len(got) != 0 || c.pool.Size()-c.pool.Free() != taken {
			t.Fatalf("sent %v while transfers go on", got)
		}
		c.slow = false
		c.moved()
		got := c.run(1)
		if len(got) != 1 || got[0].h.Opcode() != pdu.OpTaskResponse || got[0].h.Response() != pdu.FunctionComplete {
			t.Fatalf("sent %v", got)
		}
	})
}

// Pings, text, and the logout are messages too.
func TestMessagesControl(t *testing.T) {
	onBothMedia(t, func(t *testing.T, c *courier) {
		for op, request := range map[pdu.Opcode][]byte{
			pdu.OpNOPIn:        c.pdu(pdu.OpNOPOut, 5, func(h *pdu.Header) { h.SetImmediate(true) }, []byte("ping")),
			pdu.OpTextResponse: c.pdu(pdu.OpText, 6, func(h *pdu.Header) { h.SetImmediate(true); h.SetTargetTransferTag(pdu.NoTag) }, []byte("a=b\x00")),
		} {
			if got := c.sends(pdu.ISERFields{}, request); len(got) != 1 || got[0].h.Opcode() != op || len(got[0].data) < 4 {
				t.Errorf("sent %v", got)
			}
		}
		c.m.alive.init(10)
		c.m.alive.hear(1)
		if got := c.run(20); len(got) != 1 || got[0].h.Opcode() != pdu.OpNOPIn || got[0].h.InitiatorTaskTag() != pdu.NoTag {
			t.Errorf("sent %v to a silent initiator", got)
		}
		if c.m.Deadline() != 30 || c.m.Farewell() {
			t.Errorf("deadline %v, farewell %v", c.m.Deadline(), c.m.Farewell())
		}
		got := c.sends(pdu.ISERFields{}, c.pdu(pdu.OpLogout, 8, func(h *pdu.Header) { h.SetLogoutReason(pdu.CloseSession) }, nil))
		if len(got) != 1 || got[0].h.Opcode() != pdu.OpLogoutResponse || !c.m.Farewell() {
			t.Errorf("sent %v, farewell %v", got, c.m.Farewell())
		}
	})
}

// At the end of the connection the memory of all transfers comes back.
func TestMessagesEnd(t *testing.T) {
	c := carry(t, false)
	c.ready()
	c.slow = true
	c.sends(c.writer(7, pattern(512, 1)), c.write(1, 8, 1, nil))
	c.m.Fault(nil)
	c.tgt.cfg.Board.Deliver()
	c.tgt.Release()
	if c.ended != 1 || c.pool.Free() != c.pool.Size() {
		t.Errorf("ended %d times, %d octets are taken", c.ended, c.pool.Size()-c.pool.Free())
	}
}

// TestMessagesAllocateNothing for reads and writes of a disk that lends its memory.
func TestMessagesAllocateNothing(t *testing.T) {
	c := carry(t, true)
	c.ready()
	ir, _, _ := pdu.ParseISER(c.reader(1, 4096).Append(nil))
	iw, _, _ := pdu.ParseISER(c.writer(2, make([]byte, 4096)).Append(nil))
	read := (*pdu.Header)(c.command(1, cdb10(0x28, 0, 8), pdu.Final|pdu.Read, 4096, nil))
	write := (*pdu.Header)(c.write(2, 0, 8, nil))
	step := func(i pdu.ISER, h *pdu.Header) {
		var x Transfer
		h.SetCmdSN(c.tgt.sn.expCmdSN)
		c.m.Receive(1, i, h, nil, nil)
		for c.m.Due(1) == OK && c.m.Next(&x, true) {
			c.m.Moved(x.Job)
		}
	}
	step(ir, read)
	step(iw, write)
	if n := testing.AllocsPerRun(100, func() { step(ir, read); step(iw, write) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	c.idle()
}
