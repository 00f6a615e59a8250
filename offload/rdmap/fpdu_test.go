package rdmap

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
)

// FPDUs made by hand: octets appended one after the other, without any code under test.
// vectors_test.go compares them with the golden vectors.

var be = binary.BigEndian

// fpdu frames a ULPDU (RFC 5044 §4.1), with the CRC.
func fpdu(ulpdu []byte) []byte {
	b := be.AppendUint16(nil, uint16(len(ulpdu)))
	b = append(b, ulpdu...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return append(b, crcOf(b)...)
}

// ulpduOf takes an FPDU apart again.
func ulpduOf(f []byte) []byte { return f[2 : 2+int(be.Uint16(f))] }

func control(tagged, last bool) (c byte) {
	c = 1
	if tagged {
		c |= 0x80
	}
	if last {
		c |= 0x40
	}
	return c
}

// tagged returns a segment with the tagged header (RFC 5041 §4.2).
func tagged(op wire.Opcode, last bool, stag uint32, to uint64, payload []byte) []byte {
	b := []byte{control(true, last), 0x40 | byte(op)}
	b = be.AppendUint32(b, stag)
	b = be.AppendUint64(b, to)
	return fpdu(append(b, payload...))
}

// untagged returns a segment with the untagged header (RFC 5041 §4.3).
func untagged(op wire.Opcode, last bool, invalidate, queue, msn, mo uint32, payload []byte) []byte {
	b := []byte{control(false, last), 0x40 | byte(op)}
	for _, v := range []uint32{invalidate, queue, msn, mo} {
		b = be.AppendUint32(b, v)
	}
	return fpdu(append(b, payload...))
}

// send returns a whole Send message in one segment.
func send(msn uint32, payload []byte) []byte {
	return untagged(wire.OpSend, true, 0, 0, msn, 0, payload)
}

// write returns a whole RDMA Write message in one segment.
func write(stag uint32, to uint64, payload []byte) []byte {
	return tagged(wire.OpWrite, true, stag, to, payload)
}

// response returns the last segment of a Read Response.
func response(stag uint32, to uint64, payload []byte) []byte {
	return tagged(wire.OpReadResponse, true, stag, to, payload)
}

// readHeader returns the header of a Read Request (RFC 5040 §4.4).
func readHeader(sink uint32, sinkTO uint64, size, source uint32, sourceTO uint64) []byte {
	b := be.AppendUint32(nil, sink)
	b = be.AppendUint64(b, sinkTO)
	b = be.AppendUint32(b, size)
	b = be.AppendUint32(b, source)
	return be.AppendUint64(b, sourceTO)
}

func readRequest(msn, sink uint32, sinkTO uint64, size, source uint32, sourceTO uint64) []byte {
	return untagged(wire.OpReadRequest, true, 0, 1, msn, 0, readHeader(sink, sinkTO, size, source, sourceTO))
}

// atomicRequest returns an Atomic Request (RFC 7306 §5.2.1). operands are the add or swap
// data, its mask, the compare data and the compare mask.
func atomicRequest(msn, op, id, stag uint32, to uint64, operands ...uint64) []byte {
	b := be.AppendUint32(be.AppendUint32(be.AppendUint32(nil, op), id), stag)
	b = be.AppendUint64(b, to)
	for _, v := range operands {
		b = be.AppendUint64(b, v)
	}
	return untagged(wire.OpAtomicRequest, true, 0, 1, msn, 0, b)
}

// atomicResponse returns an Atomic Response (RFC 7306 §5.2.2).
func atomicResponse(msn, id uint32, old uint64) []byte {
	return untagged(wire.OpAtomicResponse, true, 0, 3, msn, 0, be.AppendUint64(be.AppendUint32(nil, id), old))
}

// immediate returns an Immediate Data message (RFC 7306 §6.2).
func immediate(msn uint32, solicited bool, data uint64) []byte {
	op := wire.OpImmediate
	if solicited {
		op = wire.OpImmediateSE
	}
	return untagged(op, true, 0, 0, msn, 0, be.AppendUint64(nil, data))
}

// terminateFPDU returns a Terminate (RFC 5040 §4.8). Without quote it has the code alone.
// With one quote it has M and D set, and quotes the segment of that FPDU. With two quotes
// it also has R set, and the second quote is the Read Request header.
func terminateFPDU(code Code, quote ...[]byte) []byte {
	return untagged(wire.OpTerminate, true, 0, 2, 1, 0, terminateBody(code, quote...))
}

func terminateBody(code Code, quote ...[]byte) []byte {
	b := []byte{code.Layer<<4 | code.Type, code.Code, 0, 0}
	if len(quote) == 0 {
		return b
	}
	segment := ulpduOf(quote[0])
	n := 18
	if segment[0]&0x80 != 0 {
		n = 14
	}
	b[2] = 0xc0
	b = be.AppendUint16(b, uint16(len(segment)))
	b = append(b, segment[:n]...)
	if len(quote) == 2 {
		b[2] |= 0x20
		b = append(b, quote[1]...)
	}
	return b
}

// again returns an FPDU after a change of its ULPDU, with the CRC made good.
func again(f []byte, edit func(ulpdu []byte)) []byte {
	u := append([]byte(nil), ulpduOf(f)...)
	edit(u)
	return fpdu(u)
}

// describe returns an FPDU as readable text.
func describe(f []byte) string {
	if len(f) < 16 {
		return fmt.Sprintf("%x", f)
	}
	u := ulpduOf(f)
	last := ""
	if u[0]&0x40 != 0 {
		last = " last"
	}
	op := wire.Opcode(u[1] & 15)
	if u[0]&0x80 != 0 {
		return fmt.Sprintf("%v%s STag %x TO %#x, %d octets %s", op, last, u[2:6], be.Uint64(u[6:]), len(u)-14, short(u[14:]))
	}
	return fmt.Sprintf("%v%s inv %x QN %d MSN %d MO %d, %d octets %s", op, last, u[2:6],
		be.Uint32(u[6:]), be.Uint32(u[10:]), be.Uint32(u[14:]), len(u)-18, short(u[18:]))
}

func short(b []byte) string {
	if len(b) > 64 {
		return hex.EncodeToString(b[:64]) + "..."
	}
	return hex.EncodeToString(b)
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// crcOf returns the CRC of b as it stands on the wire.
func crcOf(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(nil, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
}
