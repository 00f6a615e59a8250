package flow

import (
	"fmt"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// BenchmarkTarget serves commands of a disk that lends its memory. The stream takes and
// gives everything at once, so the time is the machine's and that of the copies.
func BenchmarkTarget(b *testing.B) {
	for _, size := range []int{4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("read/%d", size), func(b *testing.B) {
			s := benched(b)
			octets := s.command(1, cdb10(0x28, 0, size/512), pdu.Final|pdu.Read, size, nil)
			h := (*pdu.Header)(octets)
			b.SetBytes(int64(size))
			for b.Loop() {
				s.step(h, octets)
			}
			s.idle()
		})
		b.Run(fmt.Sprintf("write/%d", size), func(b *testing.B) {
			s := benched(b)
			command := s.command(1, cdb10(0x2a, 0, size/512), pdu.Final|pdu.Write, size, nil)
			h := (*pdu.Header)(command)
			data := encode(none, pdu.Header{byte(pdu.OpDataOut)}, nil, make([]byte, size))
			out := (*pdu.Header)(data)
			out.SetFlags(pdu.Final)
			out.SetInitiatorTaskTag(1)
			b.SetBytes(int64(size))
			for b.Loop() {
				r2t := s.step(h, command)
				out.SetTargetTransferTag(r2t.TargetTransferTag())
				s.feed(data)
			}
			s.idle()
		})
	}
}

func benched(b *testing.B) *server {
	p := usualTarget()
	p.MaxBurstLength = 1 << 20
	s := serve(b, p, true)
	s.w.max = 64 << 10
	s.one(s.hears(s.command(9, make([]byte, 6), pdu.Final, 0, nil)), pdu.OpResponse) // power on
	return s
}

// step gives the Target a command and returns the header of its answer.
func (s *server) step(h *pdu.Header, octets []byte) *pdu.Header {
	h.SetCmdSN(s.tgt.sn.expCmdSN)
	s.feed(octets)
	return (*pdu.Header)(s.w.out)
}

// feed gives the Target octets, and lets it send.
func (s *server) feed(octets []byte) {
	s.w.in, s.w.out = append(s.in[:0], octets), s.w.out[:0]
	s.ulp.Receive(1, s.w)
	s.ulp.Transmit(1, s.w)
}
