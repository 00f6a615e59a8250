package iscsi_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
)

// stalled sends a WRITE of a block, and half of the data that the target asks for. It returns
// the other half.
func (b *bare) stalled(lba uint64) []byte {
	b.t.Helper()
	const block = 512
	cdb := scsi.Write(lba, 1, 0)
	var h pdu.Header
	h.Reset(pdu.OpCommand)
	h.SetFlags(pdu.Final | pdu.Write)
	h.SetLUN(1 << 48)
	h.SetInitiatorTaskTag(9)
	h.SetEDTL(block)
	h.SetCDB(cdb[:10])
	h.SetCmdSN(b.params.CmdSN)
	b.params.CmdSN++
	b.write(h[:])
	r2t, _ := b.read()
	if r2t.Opcode() != pdu.OpR2T {
		b.t.Fatalf("%v", r2t.Opcode())
	}
	var d pdu.Header
	d.Reset(pdu.OpDataOut)
	d.SetFlags(pdu.Final)
	d.SetLUN(1 << 48)
	d.SetInitiatorTaskTag(9)
	d.SetTargetTransferTag(r2t.TargetTransferTag())
	d.SetDataLength(block)
	data := bytes.Repeat([]byte{0xbd}, block)
	b.write(append(d[:], data[:block/2]...))
	return data[block/2:]
}

// resetUnit sends LOGICAL UNIT RESET.
func (b *bare) resetUnit() {
	b.t.Helper()
	var h pdu.Header
	h.Reset(pdu.OpTask)
	h.SetFlags(pdu.Final)
	h.SetImmediate(true)
	h.SetLUN(1 << 48)
	h.SetInitiatorTaskTag(10)
	h.SetFunction(pdu.LogicalUnitReset)
	h.SetCmdSN(b.params.CmdSN)
	b.write(h[:])
}

// reserve sends PERSISTENT RESERVE OUT with two keys.
func (b *bare) reserve(action uint8, own, other uint64) {
	b.t.Helper()
	const length = 24
	var h pdu.Header
	h.Reset(pdu.OpCommand)
	h.SetFlags(pdu.Final | pdu.Write)
	h.SetLUN(1 << 48)
	h.SetInitiatorTaskTag(11)
	h.SetEDTL(length)
	h.SetCDB([]byte{0x5f, action, 1, 0, 0, 0, 0, 0, length, 0})
	h.SetDataLength(length)
	h.SetCmdSN(b.params.CmdSN)
	b.params.CmdSN++
	var keys [length]byte
	binary.BigEndian.PutUint64(keys[:], own)
	binary.BigEndian.PutUint64(keys[8:], other)
	b.write(append(h[:], keys[:]...))
}

// register registers a key for persistent reservations.
func (b *bare) register(key uint64) {
	b.t.Helper()
	b.reserve(0, 0, key)
	if h, data := b.read(); h.Opcode() != pdu.OpResponse || h.Status() != 0 {
		b.t.Fatalf("%x: % x", h, data)
	}
}

// TestServeResetWaits: a reset of a unit, and PREEMPT AND ABORT, have no answer while data of
// another session arrives in the unit's memory. If that data does not come at all, that
// session ends first. Behind the answer nothing changes the disk.
func TestServeResetWaits(t *testing.T) {
	for name, c := range map[string]struct {
		ask   func(*bare)
		comes bool
	}{
		"reset, the data comes":           {(*bare).resetUnit, true},
		"reset, the data does not come":   {(*bare).resetUnit, false},
		"preempt, the data comes":         {func(b *bare) { b.reserve(5, 2, 1) }, true},
		"preempt, the data does not come": {func(b *bare) { b.reserve(5, 2, 1) }, false},
	} {
		comes := c.comes
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serveOn(t, ram(t, 1<<20), nil)
			a, b := logIn(t, s, pdu.ISID{0x80, 1}), logIn(t, s, pdu.ISID{0x80, 2})
			a.register(1)
			b.register(2)
			left := a.stalled(8)
			time.Sleep(50 * time.Millisecond) // the first half is placed
			c.ask(b)
			answered := make(chan pdu.Header, 1)
			go func() {
				h, _ := b.read()
				answered <- h
			}()
			if comes {
				select {
				case h := <-answered:
					t.Errorf("%v while data of another session arrives", h.Opcode())
				case <-time.After(100 * time.Millisecond):
				}
				a.write(left)
			}
			if h := <-answered; h.Opcode() != pdu.OpTaskResponse && h.Opcode() != pdu.OpResponse || h.Response() != 0 || h.Status() != 0 {
				t.Fatalf("%x", h)
			}
			if !comes {
				a.closed()
			}
		})
	}
}
