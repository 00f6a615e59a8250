package rdmap

import (
	"bytes"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
)

// The golden vectors of FPDUs that tshark has decoded with a good CRC.
const (
	vecRTR      = "000e c140 00000001 0000000000000000 ebd34c5f"
	vecWrite    = "0013 c140 12345678 0000000000001000 68656c6c6f 000000 4bf8eb4a"
	vecSend     = "0016 4143 00000000 00000000 00000001 00000000 70696e67 a5487fa7"
	vecInv      = "0012 4144 abcdef01 00000000 00000002 00000000 265e4e23"
	vecReadReq  = "002e 4141 00000000 00000001 00000001 00000000 00000100 0000000000002000 00001000 00000200 0000000000003000 011b9979"
	vecResponse = "0012 c142 00000100 0000000000002000 deadbeef 7ee25166"
	vecBounds   = "0026 4147 00000000 00000002 00000001 00000000 1101c000 0013 c140 12345678 0000000000001000 43c9f29e"
	vecFetchAdd = "0046 414a 00000000 00000001 00000002 00000000 00000000 00000001 00000300 0000000000004000 0000000000000005 0000000000000000 0000000000000000 ffffffffffffffff 0950fd6d"
	vecAnswer   = "001e 414b 00000000 00000003 00000001 00000000 00000001 0000000000000010 9661a093"
	vecImm      = "001a 4148 00000000 00000000 00000003 00000000 0011223344556677 66fa69c8"
	vecCRC      = "0016 4147 00000000 00000002 00000001 00000000 20020000 7fe42585"
)

// The FPDUs that the tests make by hand are right.
func TestFPDUsByHand(t *testing.T) {
	for _, v := range []struct {
		name, want string
		got        []byte
	}{
		{"RTR", vecRTR, write(1, 0, nil)},
		{"Write", vecWrite, write(0x12345678, 0x1000, []byte("hello"))},
		{"Send", vecSend, send(1, []byte("ping"))},
		{"Send with Invalidate", vecInv, untagged(wire.OpSendInvalidate, true, 0xabcdef01, 0, 2, 0, nil)},
		{"Read Request", vecReadReq, readRequest(1, 0x100, 0x2000, 4096, 0x200, 0x3000)},
		{"Read Response", vecResponse, response(0x100, 0x2000, []byte{0xde, 0xad, 0xbe, 0xef})},
		{"FetchAdd", vecFetchAdd, atomicRequest(2, 0, 1, 0x300, 0x4000, 5, 0, 0, 1<<64-1)},
		{"Atomic Response", vecAnswer, atomicResponse(1, 1, 0x10)},
		{"Immediate Data", vecImm, immediate(3, false, 0x0011223344556677)},
		{"Terminate 1/1/01", vecBounds, terminateFPDU(Code{1, 1, 1}, unhex(t, vecWrite))},
		{"Terminate 2/0/02", vecCRC, terminateFPDU(Code{2, 0, 2})},
	} {
		if !bytes.Equal(v.got, unhex(t, v.want)) {
			t.Errorf("%s: %x, want %s", v.name, v.got, v.want)
		}
	}
}

// The machine sends the FPDUs of the golden vectors.
func TestGoldenOut(t *testing.T) {
	t.Run("Write", func(t *testing.T) {
		s := open(t)
		s.posts(work.SendWR{Op: work.WRWrite, Inline: []byte("hello"), RKey: 0x12345678, RemoteAddr: 0x1000})
		s.sends(unhex(t, vecWrite))
	})
	t.Run("Sends", func(t *testing.T) {
		s := open(t)
		s.posts(work.SendWR{Op: work.WRSend, Inline: []byte("ping")}, work.SendWR{Op: work.WRSendInvalidate, Invalidate: 0xabcdef01})
		s.sends(unhex(t, vecSend), unhex(t, vecInv))
	})
	t.Run("CRC error", func(t *testing.T) {
		s := open(t)
		bad := send(1, []byte("ping"))
		bad[20] ^= 1
		s.gets(bad)
		s.sends(unhex(t, vecCRC))
	})
}

// The machine receives the FPDUs of the golden vectors.
func TestGoldenIn(t *testing.T) {
	s := open(t, asResponder, withRTR(mpa.RTRWrite))
	s.receives(work.RecvWR{ID: 1, SGL: []work.SGE{s.at(0, 16)}})
	s.gets(unhex(t, vecRTR), unhex(t, vecSend))
	s.completes(received(1, 4))
	s.untouched(s.mem, 0, []byte("ping"))
	w := unhex(t, vecWrite)
	s.gets(w)
	s.hasTerminated(Code{1, 1, 0}, w) // no region has that STag
}

// A Read with the numbers of the vectors.
func TestGoldenRead(t *testing.T) {
	s := open(t)
	sink, mem := uint32(s.all), s.mem
	s.posts(work.SendWR{ID: 1, Op: work.WRRead, Flags: work.Signaled, SGL: []work.SGE{s.at(0x1000, 4)}, RKey: 0x200, RemoteAddr: 0x3000})
	s.sends(readRequest(1, sink, 0x2000, 4, 0x200, 0x3000))
	s.gets(response(sink, 0x2000, []byte{0xde, 0xad, 0xbe, 0xef}))
	s.completes(read(1, 4))
	s.untouched(mem, 0x1000, []byte{0xde, 0xad, 0xbe, 0xef})
	s.gets(unhex(t, vecBounds)) // a Terminate that blames another segment
	s.is(Terminate)
	want := Cause{Code: Code{1, 1, 1}, Remote: true, HasSegment: true, Opcode: wire.OpWrite, STag: 0x12345678, TO: 0x1000}
	if got := s.q.Cause(); got != want {
		t.Errorf("cause %+v, want %+v", got, want)
	}
}
