package pdu

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strconv"
)

// ParseNumber reads a numerical value: decimal digits without zeros in front, or
// hexadecimal digits behind 0x (RFC 7143 §6.1). ok is false for another text, and for a
// number of more than 64 bits.
func ParseNumber(value []byte) (n uint64, ok bool) {
	if digits, is := cutPrefix(value, 'x'); is {
		return parseDigits(digits, 16)
	}
	if len(value) > 1 && value[0] == '0' {
		return 0, false
	}
	return parseDigits(value, 10)
}

// parseDigits reads digits without a sign and without underscores.
func parseDigits(digits []byte, base int) (n uint64, ok bool) {
	n, err := strconv.ParseUint(string(digits), base, 64)
	if err != nil {
		return 0, false
	}
	return n, true
}

// cutPrefix removes 0x or 0b in front of a value, in upper or lower case.
func cutPrefix(value []byte, letter byte) (rest []byte, found bool) {
	if len(value) < 2 || value[0] != '0' || value[1]|0x20 != letter {
		return nil, false
	}
	return value[2:], true
}

// AppendBinary appends the octets of a binary value to b: hexadecimal digits behind 0x,
// or base64 (RFC 4648 §4) behind 0b (RFC 7143 §6.1). An odd number of hexadecimal digits
// has a zero in front. ok is false for another text; b is then unchanged.
func AppendBinary(b, value []byte) (_ []byte, ok bool) {
	n := len(b)
	if digits, is := cutPrefix(value, 'x'); is && len(digits) > 0 {
		if len(digits)%2 == 1 {
			digits = append([]byte{'0'}, digits...)
		}
		all, err := hex.AppendDecode(b, digits)
		return all[:end(n, all, err)], err == nil
	}
	if digits, is := cutPrefix(value, 'b'); is && len(digits) > 0 && !bytes.ContainsAny(digits, "\r\n") {
		all, err := base64.StdEncoding.AppendDecode(b, digits)
		return all[:end(n, all, err)], err == nil
	}
	return b, false
}

// end is the length of all, or n if there was an error.
func end(n int, all []byte, err error) int {
	if err != nil {
		return n
	}
	return len(all)
}

// AppendHex appends octets as a binary value, with lower-case hexadecimal digits.
func AppendHex(b, octets []byte) []byte { return hex.AppendEncode(append(b, "0x"...), octets) }

// AppendBase64 appends octets as a binary value in base64.
func AppendBase64(b, octets []byte) []byte {
	return base64.StdEncoding.AppendEncode(append(b, "0b"...), octets)
}
