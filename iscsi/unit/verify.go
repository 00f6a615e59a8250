package unit

import (
	"bytes"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// Values of BYTCHK (SBC-3 §5.26).
const (
	checkMedium = 0 // read, compare nothing
	checkAll    = 1 // compare with as many octets of Data-Out
	checkOne    = 3 // compare each block with one block of Data-Out
)

// byteCheck returns the field BYTCHK.
func (t *Task) byteCheck() byte { return t.CDB[1] >> 1 & 3 }

// planVerify checks VERIFY (SBC-3 §5.26 to §5.29).
func planVerify(u *Unit, t *Task) Sense {
	n, s := u.transfer(t)
	if s.failed() {
		return s
	}
	switch t.byteCheck() {
	case checkAll:
		t.out(n)
	case checkOne:
		t.out(min(n, uint32(u.conf.BlockSize)))
	case checkMedium:
	default:
		return badField(1)
	}
	return Sense{}
}

// planWriteAndVerify checks WRITE AND VERIFY (SBC-3 §5.36 to §5.38).
func planWriteAndVerify(u *Unit, t *Task) Sense {
	if t.byteCheck() > checkAll {
		return badField(1)
	}
	return planWrite(u, t)
}

// verify executes VERIFY.
func (u *Unit) verify(t *Task) Sense {
	switch t.byteCheck() {
	case checkAll:
		return u.compare(t.lba, u.octets(t.blocks), t.Data)
	case checkOne:
		for i := range t.blocks {
			if s := u.compare(t.lba+uint64(i), u.octets(1), t.Data); s.failed() {
				return s
			}
		}
		return Sense{}
	}
	return u.compare(t.lba, u.octets(t.blocks), nil)
}

// writeAndVerify executes WRITE AND VERIFY.
func (u *Unit) writeAndVerify(t *Task) Sense {
	if s := u.writeAt(t.Data, t.lba); s.failed() {
		return s
	}
	if s := u.sync(); s.failed() {
		return s
	}
	if t.byteCheck() == checkMedium {
		return u.compare(t.lba, uint64(len(t.Data)), nil)
	}
	return u.compare(t.lba, uint64(len(t.Data)), t.Data)
}

// piece is how many octets of the medium a command looks at in one go, when they do not
// go to the initiator.
const piece = 64 << 10

// compare reads the blocks of n octets and compares the octets with want. nil matches
// everything.
func (u *Unit) compare(lba, n uint64, want []byte) Sense {
	size := uint64(u.conf.BlockSize)
	buf := make([]byte, min((n+size-1)/size*size, piece))
	for left := n; left != 0; {
		b := buf[:min((left+size-1)/size*size, piece)]
		if s := u.readAt(b, lba); s.failed() {
			return s
		}
		b = b[:min(left, piece)]
		if want != nil {
			if !bytes.Equal(b, want[:len(b)]) {
				return miscompare(differAt(b, want))
			}
			want = want[len(b):]
		}
		lba += uint64(len(b)) >> u.shift
		left -= uint64(len(b))
	}
	return Sense{}
}

// miscompare is the sense of a comparison whose octet number at differs.
func miscompare(at int) Sense {
	return Sense{Key: Miscompare, Code: scsi.MiscompareDuringVerify, Info: uint64(at), HasInfo: true}
}

// differAt returns the index of the first octet of a that differs from b. b has at least
// the length of a. If there is none, the result is -1.
func differAt(a, b []byte) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
