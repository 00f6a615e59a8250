package wire

// Family is the version of IP.
type Family uint8

const (
	V4 Family = 4
	V6 Family = 6
)

// Protocol numbers of the payload of IP (IANA).
const (
	protoICMPv4 = 1
	protoTCP    = 6
	protoICMPv6 = 58
)

// ECN codepoints. They are the low two bits of the TOS octet and of the traffic class
// (RFC 3168 §5).
const (
	ecnMask = 3
	ecnECT0 = 2
	ecnCE   = 3
)
