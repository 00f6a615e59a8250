package pdu

// PDU is a view of a whole PDU in memory. Only Parse makes one.
type PDU struct {
	octets  []byte
	digests Digests
}

// Parse splits b into its first PDU and the rest. ok is false if b ends within the PDU.
// The PDU aliases b. Parse checks neither digests nor fields.
func Parse(d Digests, b []byte) (p PDU, rest []byte, ok bool) {
	if len(b) < HeaderLen {
		return PDU{}, b, false
	}
	n := d.Len((*Header)(b))
	if len(b) < n {
		return PDU{}, b, false
	}
	return PDU{b[:n:n], d}, b[n:], true
}

// Header returns the header. It aliases the octets of the PDU.
func (p PDU) Header() *Header { return (*Header)(p.octets) }

// Len returns the length of the PDU in octets.
func (p PDU) Len() int { return len(p.octets) }

// AHS returns the octets of the additional header segments.
func (p PDU) AHS() []byte {
	end := HeaderLen + p.Header().AHSLength()
	return p.octets[HeaderLen:end:end]
}

// Data returns the data segment, without its pad.
func (p PDU) Data() []byte {
	at := p.digests.HeaderLen(p.Header())
	end := at + p.Header().DataLength()
	return p.octets[at:end:end]
}

// Intact reports for each digest of the PDU whether it is correct. A digest that the PDU
// does not have is correct.
func (p PDU) Intact() (header, data bool) {
	h := p.Header()
	header, data = true, true
	if p.digests.Header {
		end := HeaderLen + h.AHSLength()
		header = UpdateDigest(0, p.octets[:end]) == ReadDigest(p.octets[end:])
	}
	if n := h.DataLength(); p.digests.Data && n != 0 {
		at := p.digests.HeaderLen(h)
		end := at + Padded(n)
		data = UpdateDigest(0, p.octets[at:end]) == ReadDigest(p.octets[end:])
	}
	return header, data
}

// Append appends a whole PDU: the header with its two lengths set, ahs, data, pad and
// digests. Append sets the lengths in h. ahs must be a multiple of 4 octets and at most
// MaxAHSLength, and data at most MaxDataLength.
func Append(b []byte, d Digests, h *Header, ahs, data []byte) []byte {
	h.SetAHSLength(len(ahs))
	h.SetDataLength(len(data))
	b = append(b, h[:]...)
	b = append(b, ahs...)
	if d.Header {
		b = appendDigest(b, HeaderDigest(h, ahs))
	}
	b = append(b, data...)
	b = append(b, zeros[:Pad(len(data))]...)
	if d.Data && len(data) != 0 {
		b = appendDigest(b, DataDigest(data))
	}
	return b
}

func appendDigest(b []byte, digest uint32) []byte {
	var octets [DigestLen]byte
	PutDigest(octets[:], digest)
	return append(b, octets[:]...)
}
