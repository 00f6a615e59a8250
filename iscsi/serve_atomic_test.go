package iscsi_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/test/rig"
)

// pdu sends a PDU with the next CmdSN.
func (b *bare) pdu(op pdu.Opcode, set func(h *pdu.Header), data []byte) {
	b.t.Helper()
	var h pdu.Header
	h.Reset(op)
	h.SetFlags(pdu.Final)
	h.SetLUN(1 << 48)
	set(&h)
	h.SetDataLength(len(data))
	if pdu.InfoOf(op).CmdSN {
		h.SetCmdSN(b.params.CmdSN)
		if !h.Immediate() {
			b.params.CmdSN++
		}
	}
	b.write(append(h[:], data...))
}

// TestServeCompareAndWriteBesideWrite: a COMPARE AND WRITE that comes while the data of a
// write to the same blocks is on its way sees the blocks as the write leaves them, though
// the data lands in the memory of the backend without a lock.
func TestServeCompareAndWriteBesideWrite(t *testing.T) {
	medium := ram(t, 1<<20)
	s := serveOn(t, medium, nil)
	b := logIn(t, s, pdu.ISID{0x80, 1})
	first, second := random(4096, 1), random(4096, 2)
	b.pdu(pdu.OpCommand, func(h *pdu.Header) {
		h.SetFlags(pdu.Final | pdu.Write)
		h.SetInitiatorTaskTag(1)
		h.SetEDTL(4096)
		copy(h[32:], []byte{0x2a, 0, 0, 0, 0, 8, 0, 0, 8})
	}, nil)
	r2t, _ := b.read()
	if r2t.Opcode() != pdu.OpR2T {
		t.Fatalf("%v", r2t.Opcode())
	}
	dataOut := func(sn uint32, flags pdu.Flags) {
		b.pdu(pdu.OpDataOut, func(h *pdu.Header) {
			h.SetFlags(flags)
			h.SetInitiatorTaskTag(1)
			h.SetTargetTransferTag(r2t.TargetTransferTag())
			h.SetDataSN(sn)
			h.SetBufferOffset(sn * 2048)
		}, first[sn*2048:][:2048])
	}
	dataOut(0, 0)
	landed := make([]byte, 2048)
	rig.Eventually(t, "the first half lands", func() bool {
		_, err := medium.ReadAt(landed, 4096)
		return err == nil && bytes.Equal(landed, first[:2048])
	})
	b.pdu(pdu.OpCommand, func(h *pdu.Header) {
		h.SetFlags(pdu.Final | pdu.Write)
		h.SetInitiatorTaskTag(2)
		h.SetEDTL(8192)
		copy(h[32:], []byte{0x89, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8})
	}, append(bytes.Clone(first), second...))
	b.pdu(pdu.OpNOPOut, func(h *pdu.Header) {
		h.SetImmediate(true)
		h.SetInitiatorTaskTag(3)
		h.SetTargetTransferTag(pdu.NoTag)
	}, nil)
	if h, data := b.read(); h.Opcode() != pdu.OpNOPIn {
		t.Fatalf("%v with status %#x, % x, before the write has its data", h.Opcode(), h.Status(), data)
	}
	dataOut(1, pdu.Final)
	for range 2 {
		if h, data := b.read(); h.Opcode() != pdu.OpResponse || h.Status() != 0 {
			t.Errorf("command %d: %v with status %#x, % x", h.InitiatorTaskTag(), h.Opcode(), h.Status(), data)
		}
	}
	got := make([]byte, 4096)
	if _, err := medium.ReadAt(got, 4096); err != nil || !bytes.Equal(got, second) {
		t.Errorf("the medium has other octets, %v", err)
	}
}

// slow is a medium whose writes wait for the test.
type slow struct {
	unit.Backend
	gate chan struct{}
}

func (s slow) WriteAt(p []byte, off int64) (int, error) {
	<-s.gate
	return s.Backend.WriteAt(p, off)
}

// sense returns the sense of an error.
func sense(err error) (s scsi.Sense) {
	var status *iscsi.StatusError
	if errors.As(err, &status) {
		s, _ = scsi.ParseSense(status.Sense)
	}
	return s
}

// TestServeSanitize: a sanitize operation takes no worker, though its medium does nothing.
// Others hear that it goes on. A command that waits for the end of the operation can be
// canceled, and the operation goes on without it.
func TestServeSanitize(t *testing.T) {
	medium := slow{ram(t, 1<<20), make(chan struct{})}
	s := serveOn(t, medium, func(c *iscsi.ServerConfig) { c.Workers = 1 })
	var sessions [2]*iscsi.Session
	for i := range sessions {
		d, err := iscsi.Dial(context.Background(), url(s, "", ""), iscsi.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { rig.Check(t, d.Close()) }()
		sessions[i] = d.Session()
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		_, err := sessions[0].Do(ctx, iscsi.Command{LUN: 1, CDB: []byte{0x48, 0x02, 0, 0, 0, 0, 0, 0, 0, 0}})
		ended <- err
	}()
	medium.gate <- struct{}{}
	do := func(cdb []byte) error {
		_, err := sessions[1].Do(context.Background(), iscsi.Command{LUN: 1, CDB: cdb, In: make([]byte, 255)})
		return err
	}
	if x := sense(do(make([]byte, 6))); x.Key != scsi.NotReady || x.Code != scsi.SanitizeInProgress || !x.HasProgress {
		t.Errorf("TEST UNIT READY: %v", x)
	}
	rig.Check(t, do([]byte{0x12, 0, 0, 0, 255, 0}))
	rig.Check(t, do([]byte{0x03, 0, 0, 0, 255, 0}))
	cancel()
	if err := rig.Wait(t, ended, "the canceled command"); !errors.Is(err, context.Canceled) {
		t.Errorf("the canceled command: %v", err)
	}
	close(medium.gate)
	rig.Eventually(t, "the unit is ready", func() bool { return do(make([]byte, 6)) == nil })
	if err := do([]byte{0x48, 0x82, 0, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Errorf("with IMMED: %v", err)
	}
	rig.Eventually(t, "the unit is ready", func() bool { return do(make([]byte, 6)) == nil })
}

// TestServeClosesDuringSanitize: Close waits neither for the operation nor for its command.
func TestServeClosesDuringSanitize(t *testing.T) {
	medium := slow{ram(t, 64<<20), make(chan struct{})}
	s := serveOn(t, medium, nil)
	b := logIn(t, s, pdu.ISID{0x80, 1})
	b.pdu(pdu.OpCommand, func(h *pdu.Header) {
		h.SetInitiatorTaskTag(1)
		copy(h[32:], []byte{0x48, 0x02})
	}, nil)
	medium.gate <- struct{}{}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	close(medium.gate)
	rig.Check(t, rig.Wait(t, closed, "Close"))
}
