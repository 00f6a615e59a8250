package rdmap

import "github.com/stag-rdma/stag/offload/reach"

// span is a range of addresses. It keeps no memory alive, and is only compared.
type span struct{ from, to uint64 }

// spanOf returns the addresses of mem.
func spanOf(mem []byte) span {
	from := reach.Address(mem)
	return span{from, from + uint64(len(mem))}
}

func (a span) overlaps(b span) bool { return a.from < b.to && b.from < a.to }
