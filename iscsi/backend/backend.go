package backend

import "github.com/stag-rdma/stag/iscsi/unit"

// Backend is the medium of a logical unit. A program may have its own. The interfaces below
// are optional: a Backend that has their methods makes more commands possible, or faster.
type Backend = unit.Backend

type (
	// Discarder is a Backend that can give storage back. Its unit has UNMAP.
	Discarder = unit.Discarder
	// Zeroer is a Backend that writes zeros faster than WriteAt.
	Zeroer = unit.Zeroer
	// Mapper is a Backend that knows which octets have storage.
	Mapper = unit.Mapper
	// ComparerAndWriter is a Backend that compares and writes in one atomic operation.
	ComparerAndWriter = unit.ComparerAndWriter
	// Lender is a Backend whose medium is memory of this process.
	Lender = unit.Lender
)
