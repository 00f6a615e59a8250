package login

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// Errors of an Inbox.
var (
	ErrTooLong = errors.New("iscsi: the peer sends a PDU that is too long, or no iSCSI at all")
	ErrDigest  = errors.New("iscsi: a header digest or data digest is wrong")
)

// Inbox collects one PDU. Want never asks for octets behind the PDU, so the next owner of
// the connection finds the stream right behind the last PDU of the login.
//
// The zero Inbox is for PDUs of the login: at most MaxText octets of data and no digests.
type Inbox struct {
	Digests pdu.Digests
	Limit   int // greatest data segment in octets; 0 means MaxText

	buf []byte
}

// Want returns the memory for the next octets of the PDU. It is empty when the PDU is
// whole.
func (b *Inbox) Want() []byte {
	n := b.length()
	if cap(b.buf) < n {
		b.buf = append(make([]byte, 0, n+b.limit()/4), b.buf...)
	}
	return b.buf[len(b.buf):n]
}

func (b *Inbox) limit() int {
	if b.Limit == 0 {
		return MaxText
	}
	return b.Limit
}

// length returns how long the PDU is, as far as the inbox knows.
func (b *Inbox) length() int {
	if len(b.buf) < pdu.HeaderLen {
		return pdu.HeaderLen
	}
	return b.Digests.Len(b.header())
}

func (b *Inbox) header() *pdu.Header { return (*pdu.Header)(b.buf[:pdu.HeaderLen]) }

// Got says that n octets have been written to the memory that Want returned. It reports
// whether the PDU is whole. It fails as soon as the header announces additional header
// segments or more data than the limit, and if a digest is wrong. After ErrTooLong,
// Header has the header.
func (b *Inbox) Got(n int) (whole bool, err error) {
	b.buf = b.buf[:len(b.buf)+n]
	if len(b.buf) < pdu.HeaderLen {
		return false, nil
	}
	h := b.header()
	if h.AHSLength() != 0 || h.DataLength() > b.limit() {
		return false, fmt.Errorf("%w: %v with %d octets of data", ErrTooLong, h.Opcode(), h.DataLength())
	}
	if len(b.buf) < b.length() {
		return false, nil
	}
	return true, b.verify(h)
}

// verify checks the digests of a whole PDU.
func (b *Inbox) verify(h *pdu.Header) error {
	rest := b.buf[pdu.HeaderLen:]
	if b.Digests.Header {
		if pdu.ReadDigest(rest) != pdu.HeaderDigest(h, nil) {
			return ErrDigest
		}
		rest = rest[pdu.DigestLen:]
	}
	if n := pdu.Padded(h.DataLength()); b.Digests.Data && n != 0 && pdu.ReadDigest(rest[n:]) != pdu.UpdateDigest(0, rest[:n]) {
		return ErrDigest
	}
	return nil
}

// Header returns the header, or nil if it is not there yet. It is valid until Reset.
func (b *Inbox) Header() *pdu.Header {
	if len(b.buf) < pdu.HeaderLen {
		return nil
	}
	return b.header()
}

// Data returns the data segment of a whole PDU. It is valid until Reset.
func (b *Inbox) Data() []byte {
	h := b.header()
	from := b.Digests.HeaderLen(h)
	return b.buf[from : from+h.DataLength()]
}

// Reset makes room for the next PDU.
func (b *Inbox) Reset() { b.buf = b.buf[:0] }

// Len returns how many octets of the PDU have arrived.
func (b *Inbox) Len() int { return len(b.buf) }
