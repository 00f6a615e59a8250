package rdmap

import (
	"fmt"

	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// Code is the cause in a Terminate message (RFC 5040 §4.8): the layer that found the
// error, the error type and the error code. The zero Code means no error. Local
// catastrophic errors are sent as 0/0/ff.
type Code struct{ Layer, Type, Code uint8 }

// Layers of a Code.
const (
	LayerRDMAP = 0
	LayerDDP   = 1
	LayerLLP   = 2 // MPA
)

// typeLocal is the error type Local Catastrophic of RDMAP and of DDP. The end that
// sends the Terminate has the error.
const typeLocal = 0

// Codes of the layers (RFC 5040 §4.8 Figure 9, RFC 5044 §8, RFC 6581 §8).
var (
	LocalCatastrophic = Code{0, 0, 0xff}

	ProtInvalidSTag = Code{0, 1, 0x00}
	ProtBounds      = Code{0, 1, 0x01}
	ProtAccess      = Code{0, 1, 0x02}
	ProtStream      = Code{0, 1, 0x03}
	ProtWrap        = Code{0, 1, 0x04}
	ProtInvalidate  = Code{0, 1, 0x09}

	OpVersion    = Code{0, 2, 0x05}
	OpUnexpected = Code{0, 2, 0x06}
	OpStream     = Code{0, 2, 0x07}
	OpInvalidate = Code{0, 2, 0x09}

	CRCError        = Code{2, 0, 0x02}
	MarkerError     = Code{2, 0, 0x03}
	InsufficientIRD = Code{2, 0, 0x06}
	NoMatchingRTR   = Code{2, 0, 0x07}
)

var codeNames = map[Code]string{
	LocalCatastrophic: "RDMAP: local catastrophic error",
	ProtInvalidSTag:   "RDMAP remote protection error: invalid STag",
	ProtBounds:        "RDMAP remote protection error: base or bounds violation",
	ProtAccess:        "RDMAP remote protection error: access rights violation",
	ProtStream:        "RDMAP remote protection error: STag not associated with the stream",
	ProtWrap:          "RDMAP remote protection error: tagged offset wraps",
	ProtInvalidate:    "RDMAP remote protection error: STag cannot be invalidated",
	{0, 1, 0xff}:      "RDMAP remote protection error: unspecified",
	OpVersion:         "RDMAP remote operation error: invalid RDMAP version",
	OpUnexpected:      "RDMAP remote operation error: unexpected opcode",
	OpStream:          "RDMAP remote operation error: catastrophic for this stream",
	{0, 2, 0x08}:      "RDMAP remote operation error: catastrophic for all streams",
	OpInvalidate:      "RDMAP remote operation error: STag cannot be invalidated",
	{0, 2, 0xff}:      "RDMAP remote operation error: unspecified",
	{2, 0, 0x01}:      "MPA: connection lost",
	CRCError:          "MPA: CRC error",
	MarkerError:       "MPA: Marker or length error",
	{2, 0, 0x04}:      "MPA: bad Request or Reply",
	{2, 0, 0x05}:      "MPA: local catastrophic error",
	InsufficientIRD:   "MPA: insufficient inbound read depth",
	NoMatchingRTR:     "MPA: no common ready-to-receive message",
}

// String returns the code in words and numbers.
func (c Code) String() string {
	return fmt.Sprintf("%s (%x/%x/%02x)", c.words(), c.Layer, c.Type, c.Code)
}

func (c Code) words() string {
	switch {
	case c.Layer == LayerLLP && c.Type == 3:
		c.Type = 0 // some adapters send MPA errors with another type
	case c.Layer == LayerRDMAP && c.Type == 0:
		c = LocalCatastrophic // the code does not matter for that type
	}
	if name, ok := codeNames[c]; ok {
		return name
	}
	if c.Layer == LayerDDP {
		for f := ddp.LocalFault; f <= ddp.UntaggedVersion; f++ {
			if c == ddpCode(f) {
				return "DDP " + ddpTypes[c.Type] + ": " + f.String()
			}
		}
	}
	return "unknown error"
}

var ddpTypes = [...]string{"local error", "tagged buffer error", "untagged buffer error"}

// ddpCode returns the code for a segment that DDP refuses.
func ddpCode(f ddp.Fault) Code {
	switch f {
	case ddp.OK:
		return Code{}
	case ddp.Short:
		return MarkerError // the ULPDU_Length is wrong; siw reports it with this code
	}
	t, c := f.Code()
	return Code{LayerDDP, t, c}
}

// mpaCode returns the code for an FPDU that MPA refuses.
func mpaCode(f mpa.Fault) Code { return Code{LayerLLP, 0, f.Code()} }

// writeCode returns the code for an RDMA Write that the table refuses. The RFCs define
// no DDP code for a missing access right. For that fault, writeCode returns the RDMAP
// code.
func writeCode(f tpt.Fault) Code {
	if f == tpt.NoRight {
		return ProtAccess
	}
	return ddpCode(ddp.Tagged(f))
}

// readCode returns the code for a Read Request whose source the table refuses.
func readCode(f tpt.Fault) Code {
	switch f {
	case tpt.WrongPD:
		return ProtStream
	case tpt.NoRight:
		return ProtAccess
	case tpt.Wrap:
		return ProtWrap
	case tpt.OutOfBounds:
		return ProtBounds
	}
	return ProtInvalidSTag
}

// localStatus returns the status of a work request if the table refuses one of the
// request's SGEs.
func localStatus(f tpt.Fault) work.Status {
	if f == tpt.NoRight {
		return work.LocalAccessErr
	}
	return work.LocalProtErr
}
