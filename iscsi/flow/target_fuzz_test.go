package flow

import (
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// FuzzTarget plays any initiator. The input is cut into PDUs: flags, opcode, tag, lengths
// and data of each come from it, and so does what workers do in between. The Target
// touches no octet beside its disk, and gives all memory back when the connection ends.
func FuzzTarget(f *testing.F) {
	for op := range 8 {
		f.Add([]byte{byte(op), 0x80, 1, 0, 0, 8, 0, 0, 4, 0x2a, 1, 1, byte(op), 0xa0, 1, 0, 2, 0, 0, 0, 0, 0x28, 3, 2}, byte(op))
	}
	f.Fuzz(func(t *testing.T, in []byte, mode byte) {
		p := usualTarget()
		p.InitialR2T = mode&1 != 0
		p.Digests = pdu.Digests{Data: mode&2 != 0}
		s := serve(t, p, mode&4 != 0)
		s.lazy = mode&8 != 0
		var scarce []byte
		if mode&16 != 0 {
			scarce = s.pool.Take(s.pool.Size()) // until the middle
		}
		half := len(in) / 2
		var r2t pdu.Tag
		for ; len(in) >= 12 && s.tgt.broken == OK; in = in[12:] {
			for _, q := range s.hears(s.fuzzed(in[:12], r2t)) {
				if q.h.Opcode() == pdu.OpR2T {
					r2t = q.h.TargetTransferTag()
				}
			}
			if in[0]&0x40 != 0 {
				s.work()
			}
			if scarce != nil && len(in) < half {
				s.pool.Give(scarce)
				scarce = nil
			}
		}
		s.ulp.Fault(1, nil)
		s.work()
		s.tgt.cfg.Board.Deliver()
		if s.ended != 1 {
			t.Fatalf("ended %d times", s.ended)
		}
		s.tgt.Release()
		if scarce != nil {
			s.pool.Give(scarce)
		}
		if s.pool.Free() != s.pool.Size() || !s.disk.whole() {
			t.Fatalf("%d octets of memory are lost, or octets beside the disk were touched", s.pool.Size()-s.pool.Free())
		}
	})
}

// fuzzed makes a PDU of 12 octets. r2t is the tag of the last R2T.
func (s *server) fuzzed(in []byte, r2t pdu.Tag) []byte {
	ops := []pdu.Opcode{pdu.OpCommand, pdu.OpDataOut, pdu.OpNOPOut, pdu.OpTask, pdu.OpText, pdu.OpCommand, pdu.OpSNACK, pdu.OpDataOut}
	if in[0] == 0xff {
		ops[7] = pdu.OpLogout
	}
	op := ops[in[0]&7]
	b := s.pdu(op, pdu.Tag(in[2]&7), func(h *pdu.Header) {
		h.SetFlags(pdu.Flags(in[1]))
		h.SetImmediate(in[0]&0x20 != 0 && op != pdu.OpDataOut)
		h.SetTargetTransferTag(r2t ^ pdu.Tag(in[3]&1))
		if in[3]&2 != 0 {
			h.SetTargetTransferTag(pdu.NoTag)
		}
		switch op {
		case pdu.OpCommand:
			h.SetEDTL(uint32(in[4]) << (in[5] & 15))
			h.SetCDB(cdb10(in[9], int(in[10])<<3, int(in[11])))
		case pdu.OpDataOut:
			h.SetDataSN(uint32(in[4] & 3))
			h.SetBufferOffset(uint32(in[5]) << (in[6] & 31))
		case pdu.OpTask:
			h.SetReferencedTaskTag(pdu.Tag(in[4] & 7))
		}
	}, make([]byte, int(in[7])<<(in[8]&7)))
	return b
}
