package dump

import (
	"encoding/binary"
	"fmt"

	"github.com/stag-rdma/stag/offload/wire"
)

// Operation is the DDP segment in the FPDU that a payload begins with.
type Operation struct {
	Name   string  `json:"operation"` // name of the operation in RFC 5040 or RFC 7306
	STag   string  `json:"stag,omitempty"`
	Offset uint64  `json:"offset"` // tagged offset or message offset
	Queue  *uint32 `json:"queue,omitempty"`
	MSN    *uint32 `json:"msn,omitempty"`
	Length int     `json:"length"` // length of the segment's payload in octets
	Last   bool    `json:"last"`   // the segment is the last of its message

	Invalidate string     `json:"invalidate,omitempty"` // STag that a Send invalidates
	Read       *ReadWords `json:"read,omitempty"`
	Error      *ErrorCode `json:"error,omitempty"`

	Immediate string       `json:"immediate,omitempty"` // Immediate Data, in hexadecimal
	Atomic    *AtomicWords `json:"atomic,omitempty"`
}

// ReadWords are the fields of an RDMA Read Request.
type ReadWords struct {
	SinkSTag     string `json:"sink_stag"`
	SinkOffset   uint64 `json:"sink_offset"`
	SourceSTag   string `json:"source_stag"`
	SourceOffset uint64 `json:"source_offset"`
	Length       uint32 `json:"length"` // number of octets to read
}

// AtomicWords are the fields of an Atomic Request or Atomic Response. The values of 64 bits
// are in hexadecimal.
type AtomicWords struct {
	ID uint32 `json:"id"`

	// A Request has these fields.
	Operation   string `json:"operation,omitempty"`
	STag        string `json:"stag,omitempty"`
	Offset      uint64 `json:"offset,omitempty"`
	Data        string `json:"data,omitempty"` // addend, or new value
	Mask        string `json:"mask,omitempty"`
	Compare     string `json:"compare,omitempty"`
	CompareMask string `json:"compare_mask,omitempty"`

	Original string `json:"original,omitempty"` // Response: the word before the operation
}

// ErrorCode is the error of a Terminate.
type ErrorCode struct {
	Layer uint8 `json:"layer"`
	Type  uint8 `json:"type"`
	Code  uint8 `json:"code"`
}

// parseOperation parses the beginning of a payload. b has the captured octets. ok is false
// if the payload does not begin like an FPDU. Only the values of a few fields distinguish
// the beginning of an FPDU from its middle.
func parseOperation(b []byte) (op *Operation, kind Kind, ok bool) {
	if len(b) > wire.MarkerLen && binary.BigEndian.Uint32(b) == 0 {
		b = b[wire.MarkerLen:] // skip the Marker before the FPDU
	}
	if len(b) < wire.FPDUHeadLen {
		return nil, "", false
	}
	length := int(binary.BigEndian.Uint16(b))
	ulpdu := b[wire.FPDUHeadLen:]
	if len(ulpdu) > length {
		ulpdu = ulpdu[:length]
	}
	if wire.IsTagged(ulpdu) {
		return parseTagged(ulpdu, length)
	}
	return parseUntagged(ulpdu, length)
}

// plausible reports whether the first two octets of a ULPDU are control octets of DDP
// and RDMAP version 1, with all reserved bits 0.
func plausible(ulpdu []byte) bool {
	const ddpRest, ddp, rdmapRest, rdmap = 0x3f, wire.DDPVersion, 0xf0, wire.RDMAPVersion << 6
	return ulpdu[0]&ddpRest == ddp && ulpdu[1]&rdmapRest == rdmap
}

func parseTagged(ulpdu []byte, length int) (*Operation, Kind, bool) {
	h, _, ok := wire.ParseTagged(ulpdu)
	if !ok || !plausible(ulpdu) {
		return nil, "", false
	}
	kind, ok := kindOf(h.Opcode())
	if !ok || kind != Write && kind != ReadResponse {
		return nil, "", false
	}
	return &Operation{
		Name: h.Opcode().String(), STag: h.STag().String(), Offset: h.TO(), Length: length - wire.TaggedLen, Last: h.Last(),
	}, kind, true
}

func parseUntagged(ulpdu []byte, length int) (*Operation, Kind, bool) {
	h, payload, ok := wire.ParseUntagged(ulpdu)
	if !ok || !plausible(ulpdu) {
		return nil, "", false
	}
	queue, msn := h.Queue(), h.MSN()
	op := &Operation{Name: h.Opcode().String(), Offset: uint64(h.MO()), Queue: &queue, MSN: &msn, Length: length - wire.UntaggedLen, Last: h.Last()}
	kind, ok := kindOf(h.Opcode())
	switch {
	case !ok:
		return nil, "", false
	case kind == Send && queue == wire.QueueSend:
		switch info := wire.InfoOf(h.Opcode()); {
		case info.Invalidates:
			op.Invalidate = h.Invalidate().String()
		case info.WithImm:
			op.Immediate = hex(uint64(h.Invalidate()))
		}
	case kind == ReadRequest && queue == wire.QueueReadRequest:
		op.Read = parseRead(payload)
	case kind == Immediate && queue == wire.QueueSend:
		if data, ok := wire.ParseImmediate(payload); ok {
			op.Immediate = hex(data)
		}
	case kind == AtomicRequest && queue == wire.QueueReadRequest, kind == AtomicResponse && queue == wire.QueueAtomicResponse:
		op.Atomic = parseAtomic(kind, payload)
	case kind == Terminate && queue == wire.QueueTerminate:
		if t, ok := wire.ParseTerminate(payload); ok {
			op.Error = &ErrorCode{t.Layer, t.Type, t.Code}
		}
	default:
		return nil, "", false
	}
	return op, kind, true
}

// parseRead parses a Read Request. It returns nil if the Read Request was not captured completely.
func parseRead(payload []byte) *ReadWords {
	f, ok := wire.ParseReadRequest(payload)
	if !ok {
		return nil
	}
	return &ReadWords{f.SinkSTag.String(), f.SinkTO, f.SourceSTag.String(), f.SourceTO, f.Size}
}

// parseAtomic parses an Atomic Request or Atomic Response. It returns nil if the message
// was not captured completely.
func parseAtomic(kind Kind, payload []byte) *AtomicWords {
	if kind == AtomicResponse {
		f, ok := wire.ParseAtomicResponse(payload)
		if !ok {
			return nil
		}
		return &AtomicWords{ID: f.ID, Original: hex(f.Value)}
	}
	f, ok := wire.ParseAtomicRequest(payload)
	if !ok {
		return nil
	}
	return &AtomicWords{
		ID: f.ID, Operation: f.Op.String(), STag: f.STag.String(), Offset: f.TO,
		Data: hex(f.Data), Mask: hex(f.Mask), Compare: hex(f.Compare), CompareMask: hex(f.CompareMask),
	}
}

func hex(v uint64) string { return fmt.Sprintf("0x%016x", v) }
