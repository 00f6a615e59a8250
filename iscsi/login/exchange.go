package login

import (
	"github.com/stag-rdma/stag/iscsi/pdu"
)

const (
	// MaxText is the greatest data segment of a PDU during the login in octets, whatever
	// the ends declare (RFC 7143 §6.3).
	MaxText = DefaultMaxRecvDataSegmentLength
	// maxSequence is the greatest text over several PDUs that an end takes. RFC 7143
	// §6.2 demands 8192 octets. Only authentication methods that stag lacks need more.
	maxSequence = 8192
	// maxExchanges is how many requests a login may have. RFC 7143 §6.3 demands six.
	maxExchanges = 64
)

// inflow joins the data segments of a text that is longer than a PDU.
type inflow struct {
	text  []byte
	going bool // the last PDU had Continue set
}

// add takes a data segment. It returns false if the text grows beyond maxSequence.
func (f *inflow) add(h *pdu.Header, data []byte) bool {
	if !f.going {
		f.text = f.text[:0]
	}
	if len(f.text)+len(data) > maxSequence {
		return false
	}
	f.text = append(f.text, data...)
	f.going = h.Has(pdu.Continue)
	return true
}

// outflow cuts a text into data segments.
type outflow struct{ rest []byte }

// next returns the next data segment, and whether more follow.
func (f *outflow) next() (segment []byte, more bool) {
	n := min(len(f.rest), MaxText)
	segment, f.rest = f.rest[:n], f.rest[n:]
	return segment, len(f.rest) > 0
}

// appendPDU appends a PDU without additional header segments, with the digests that are
// in force. The login has none.
func appendPDU(out []byte, h *pdu.Header, data []byte, d pdu.Digests) []byte {
	h.SetDataLength(len(data))
	out = append(out, h[:]...)
	if d.Header {
		out = appendDigest(out, pdu.HeaderDigest(h, nil))
	}
	out = append(out, data...)
	out = append(out, make([]byte, pdu.Pad(len(data)))...)
	if d.Data && len(data) != 0 {
		out = appendDigest(out, pdu.DataDigest(data))
	}
	return out
}

func appendDigest(out []byte, digest uint32) []byte {
	var b [pdu.DigestLen]byte
	pdu.PutDigest(b[:], digest)
	return append(out, b[:]...)
}

// noDigests are the digests of the login.
var noDigests pdu.Digests
