package flow

import (
	"bytes"

	"pgregory.net/rapid"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// course plays an initiator that sends random reads and writes. Commands in progress have
// blocks of their own.
type course struct {
	*server
	model []byte
	open  map[pdu.Tag]*courseTask
	next  pdu.Tag
}

// courseTask is a command in progress.
type courseTask struct {
	lba  int
	data []byte // of a write, or what a read must bring
	got  []byte // of a read
	r2ts []pdu.Header
	read bool
}

const courseBlocks = 64 // of a command

func (c *course) step(rt *rapid.T) {
	switch rapid.IntRange(0, 3).Draw(rt, "kind") {
	case 0, 1:
		c.begin(rt)
	case 2:
		c.finish()
	case 3:
		c.work()
	}
	c.take(c.hears())
}

// begin sends a command for blocks that no other command has.
func (c *course) begin(rt *rapid.T) {
	tag := c.next % (serverBlocks / courseBlocks)
	if len(c.open) == serverWindow || c.open[tag] != nil {
		return
	}
	c.next++
	n := rapid.IntRange(1, courseBlocks).Draw(rt, "blocks")
	k := &courseTask{lba: int(tag) * courseBlocks, read: rapid.Bool().Draw(rt, "read")}
	c.open[tag] = k
	at := c.model[k.lba*512:][:n*512]
	var b []byte
	if k.read {
		k.data = bytes.Clone(at)
		b = c.command(tag, cdb10(0x28, k.lba, n), pdu.Final|pdu.Read, n*512, nil)
	} else {
		k.data = pattern(n*512, byte(c.next))
		copy(at, k.data)
		b = c.writeOf(rt, tag, k, n)
	}
	cut := rapid.IntRange(0, len(b)).Draw(rt, "cut")
	c.take(c.hears(b[:cut]))
	c.take(c.hears(b[cut:]))
}

// writeOf returns a write with as much unsolicited data as the parameters allow, or less.
func (c *course) writeOf(rt *rapid.T, tag pdu.Tag, k *courseTask, n int) []byte {
	first := min(len(k.data), int(c.p.FirstBurstLength))
	immediate := 0
	if c.p.ImmediateData {
		immediate = rapid.IntRange(0, first).Draw(rt, "immediate")
	}
	if c.p.InitialR2T || immediate == first || !rapid.Bool().Draw(rt, "unsolicited") {
		return c.write(tag, k.lba, n, k.data[:immediate])
	}
	b := c.command(tag, cdb10(0x2a, k.lba, n), pdu.Write, n*512, k.data[:immediate])
	var h pdu.Header
	h.SetInitiatorTaskTag(tag)
	h.SetTargetTransferTag(pdu.NoTag)
	return append(b, c.dataOut(&h, 0, immediate, true, k.data[immediate:first])...)
}

// take looks at what the Target has sent.
func (c *course) take(got []caught) {
	for _, p := range got {
		k := c.open[p.h.InitiatorTaskTag()]
		if k == nil {
			c.t.Fatalf("%v for a command that is not there", p.h.Opcode())
		}
		switch p.h.Opcode() {
		case pdu.OpR2T:
			k.r2ts = append(k.r2ts, p.h)
			continue
		case pdu.OpDataIn:
			if k.got = append(k.got, p.data...); !p.h.Has(pdu.StatusPresent) {
				continue
			}
		}
		if p.h.Status() != 0 || k.read && !bytes.Equal(k.got, k.data) {
			c.t.Fatalf("%v, status %#x, %d octets", p.h.Opcode(), p.h.Status(), len(k.got))
		}
		delete(c.open, p.h.InitiatorTaskTag())
	}
}

// finish lets the Target go on: work is done, and R2Ts are answered.
func (c *course) finish() {
	c.work()
	c.take(c.hears())
	for _, k := range c.open {
		for _, h := range k.r2ts {
			off, n := int(h.BufferOffset()), int(h.DesiredLength())
			half := n / 2
			k.r2ts = k.r2ts[1:]
			c.take(c.hears(c.dataOut(&h, 0, off, false, k.data[off:off+half])))
			c.take(c.hears(c.dataOut(&h, 1, off+half, true, k.data[off+half:off+n])))
		}
	}
}
