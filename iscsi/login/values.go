package login

import (
	"errors"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// The greatest lengths of values (RFC 7143 §6.1), in octets.
const (
	maxValue  = 255  // a value that is not binary
	maxBinary = 1024 // a binary value, decoded
	maxName   = 223  // an iSCSI name (RFC 7143 §4.2.7.1)
)

// Values that answer an offer instead of a value (RFC 7143 §6.2).
const (
	answerReject        = "Reject"
	answerIrrelevant    = "Irrelevant"
	answerNotUnderstood = "NotUnderstood"
)

const (
	yes = "Yes"
	no  = "No"
)

var (
	errNumber  = errors.New("the value is not a decimal or hexadecimal number in the permitted range")
	errBoolean = errors.New("the value is neither Yes nor No")
	errBinary  = errors.New("the value is not hexadecimal (0x) or base64 (0b), or is longer than 1024 octets")
)

// parseNumber reads a number in a range.
func parseNumber(v string, from, to uint32) (uint32, error) {
	n, ok := pdu.ParseNumber([]byte(v))
	if !ok || n < uint64(from) || n > uint64(to) {
		return 0, errNumber
	}
	return uint32(n), nil
}

func parseBoolean(v string) (uint32, error) {
	switch v {
	case yes:
		return 1, nil
	case no:
		return 0, nil
	}
	return 0, errBoolean
}

func formatBoolean(n uint32) string {
	if n != 0 {
		return yes
	}
	return no
}

// parseBinary decodes a binary value of 1 to maxBinary octets.
func parseBinary(v string) ([]byte, error) {
	b, ok := pdu.AppendBinary(nil, []byte(v))
	if !ok || len(b) == 0 || len(b) > maxBinary {
		return nil, errBinary
	}
	return b, nil
}

// formatBinary encodes octets as hexadecimal digits in lower case.
func formatBinary(b []byte) string { return string(pdu.AppendHex(nil, b)) }
