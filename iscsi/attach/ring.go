package attach

import "github.com/stag-rdma/stag/iscsi/block"

// ring is a first-in first-out list of a fixed size.
type ring struct {
	rs   []*block.Request
	head int
	n    int
}

func (f *ring) init(size int) { f.rs = make([]*block.Request, size) }

func (f *ring) front() *block.Request { return f.rs[f.head] }

func (f *ring) push(r *block.Request) {
	f.rs[(f.head+f.n)%len(f.rs)] = r
	f.n++
}

func (f *ring) pop() *block.Request {
	r := f.rs[f.head]
	f.rs[f.head] = nil
	f.head, f.n = (f.head+1)%len(f.rs), f.n-1
	return r
}
