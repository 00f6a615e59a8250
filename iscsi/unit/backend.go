package unit

import "io"

// Backend is the medium of a logical unit. Offsets and lengths are octets. A unit asks
// only for octets inside [0, Size()), and always for whole logical blocks. The methods
// may be called from several goroutines at once.
type Backend interface {
	io.ReaderAt
	io.WriterAt
	// Size is the capacity. Size must not change while a unit uses the backend.
	Size() int64
	// Sync returns when all octets that were written before are on stable storage.
	Sync() error
}

// Discarder is a Backend that can give storage back.
type Discarder interface {
	// Discard gives the storage of n octets back. The octets are zero afterwards.
	Discard(off, n int64) error
}

// Zeroer is a Backend that writes zeros faster than WriteAt.
type Zeroer interface {
	Zero(off, n int64) error
}

// Mapper is a Backend that knows which octets have storage.
type Mapper interface {
	// Mapped reports whether the octet at off has storage, and for how many octets from
	// off on this holds. n is at least 1, and may go beyond the end.
	Mapped(off int64) (mapped bool, n int64)
}

// ComparerAndWriter is a Backend that compares and writes in one atomic operation.
type ComparerAndWriter interface {
	// CompareAndWrite writes next at off if the octets there equal old. Otherwise it
	// writes nothing and returns the index of the first octet that differs. differ is
	// -1 if the octets are equal.
	CompareAndWrite(off int64, old, next []byte) (differ int, err error)
}

// Lender is a Backend whose medium is memory of this process.
type Lender interface {
	// Lend returns the memory of n octets at off. The memory is valid as long as the
	// backend is open. write says that the caller writes to the memory, and so to the
	// medium. Lend returns nil if it cannot lend these octets.
	Lend(off, n int64, write bool) []byte
}
