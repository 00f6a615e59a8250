package pdu

import "encoding/hex"

// layout says which bits of a header have no meaning.
type layout struct {
	reserved Header // 1 for each reserved bit: senders must set it to 0 (RFC 7143 §11)
	ones     Flags  // bits of the second octet that must be 1
}

// layouts has a row for each opcode, from the figures of RFC 7143 §11 and RFC 7144 §5, §6.
var layouts = [opcodes]layout{
	OpNOPOut:         {mask("807fffff 00000000 00000000 00000000 00000000 00000000 00000000 00000000 ffffffff ffffffff ffffffff ffffffff"), Final},
	OpCommand:        {mask("8018f0ff 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"), 0},
	OpTask:           {mask("8000ffff 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 ffffffff ffffffff"), Final},
	OpLogin:          {mask("80300000 00000000 00000000 00000000 00000000 0000ffff 00000000 00000000 ffffffff ffffffff ffffffff ffffffff"), 0},
	OpText:           {mask("803fffff 00000000 00000000 00000000 00000000 00000000 00000000 00000000 ffffffff ffffffff ffffffff ffffffff"), 0},
	OpDataOut:        {mask("c07fffff 00000000 00000000 00000000 00000000 00000000 ffffffff 00000000 ffffffff 00000000 00000000 ffffffff"), 0},
	OpLogout:         {mask("8000ffff 00000000 ffffffff ffffffff 00000000 0000ffff 00000000 00000000 ffffffff ffffffff ffffffff ffffffff"), Final},
	OpSNACK:          {mask("c070ffff 00000000 00000000 00000000 00000000 00000000 ffffffff 00000000 ffffffff ffffffff 00000000 00000000"), Final},
	OpNOPIn:          {mask("c07fffff 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 ffffffff ffffffff ffffffff"), Final},
	OpResponse:       {mask("c0610000 00000000 ffff0000 ffffffff 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"), Final},
	OpTaskResponse:   {mask("c07f00ff 00000000 000000ff ffffffff 00000000 ffffffff 00000000 00000000 00000000 ffffffff ffffffff ffffffff"), Final},
	OpLoginResponse:  {mask("c0300000 00000000 00000000 00000000 00000000 ffffffff 00000000 00000000 00000000 0000ffff ffffffff ffffffff"), 0},
	OpTextResponse:   {mask("c03fffff 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 ffffffff ffffffff ffffffff"), 0},
	OpDataIn:         {mask("c038ff00 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"), 0},
	OpLogoutResponse: {mask("c07f00ff 00000000 ffffffff ffffffff 00000000 ffffffff 00000000 00000000 00000000 ffffffff 00000000 ffffffff"), Final},
	OpR2T:            {mask("c07fffff 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"), Final},
	OpAsync:          {mask("c07fffff 00000000 00000000 00000000 00000000 ffffffff 00000000 00000000 00000000 00000000 00000000 ffffffff"), Final},
	// LIO leaves octets of the rejected PDU in a Reject, so only the first word is marked.
	OpReject: {mask("c07f00ff 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000"), Final},
}

// mask reads the 12 words of a header.
func mask(words string) (h Header) {
	digits := make([]byte, 0, 2*HeaderLen)
	for _, c := range []byte(words) {
		if c != ' ' {
			digits = append(digits, c)
		}
	}
	if _, err := hex.Decode(h[:], digits); err != nil {
		panic(err) // a row of the table is wrong
	}
	return h
}

// Plausible reports whether h is a header as its sender must make it: Check finds no
// fault, reserved bits are 0, and bits that must be 1 are 1. Most other octets are not
// plausible. A receiver must not refuse a header whose reserved bits are set (RFC 7143
// §11.1.2); Plausible serves to find headers in captures.
func (h *Header) Plausible() bool {
	l := &layouts[h.Opcode()]
	if h.Check() != OK || h.Flags()&l.ones != l.ones {
		return false
	}
	for i, b := range l.reserved {
		if h[i]&b != 0 {
			return false
		}
	}
	return true
}
