package scsi

// Residual returns by how many octets a command's data differ from what the initiator
// expects (RFC 7143 §11.4.5). edtl is the Expected Data Transfer Length, and spdtl is the
// length of the data that the CDB stands for. At most one result is not 0: over octets
// were not transferred because the initiator did not expect them, and under octets were
// expected and did not exist.
func Residual(spdtl uint64, edtl uint32) (over, under uint32) {
	switch e := uint64(edtl); {
	case spdtl > e:
		return uint32(min(spdtl-e, 1<<32-1)), 0
	default:
		return 0, uint32(e - spdtl)
	}
}

// Transferred returns how many octets of a command's data there are, from the residual
// counts of the answer. ok is false if the target's counts contradict themselves: both
// are given, or fewer octets than none are left.
func Transferred(edtl, over, under uint32) (n uint32, ok bool) {
	switch {
	case over != 0 && under != 0, under > edtl:
		return 0, false
	}
	return edtl - under, true
}
