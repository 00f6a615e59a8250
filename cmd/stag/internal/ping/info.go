package ping

import (
	"encoding/binary"
	"fmt"

	"github.com/stag-rdma/stag/rdma"
)

// info is the only message of the exchange. From the client it has the address, the key
// and the size of the client's memory. From the server it is all zero and means "go
// ahead".
//
//	0          8      12       16
//	| address  | key  | octets |
type info struct {
	addr   uint64
	key    rdma.STag
	octets uint32
}

const infoLen = 16

func infoOf(mr *rdma.MR) info { return info{mr.Addr(), mr.RKey(), uint32(mr.Len())} }

func (i info) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, i.addr)
	b = binary.BigEndian.AppendUint32(b, uint32(i.key))
	return binary.BigEndian.AppendUint32(b, i.octets)
}

func parseInfo(b []byte) (info, error) {
	if len(b) != infoLen {
		return info{}, fmt.Errorf("a message of %d octets came, want %d: does the peer speak rping?", len(b), infoLen)
	}
	return info{
		addr:   binary.BigEndian.Uint64(b),
		key:    rdma.STag(binary.BigEndian.Uint32(b[8:])),
		octets: binary.BigEndian.Uint32(b[12:]),
	}, nil
}

func (i info) String() string {
	return fmt.Sprintf("%d octets at %#x, key %#08x", i.octets, i.addr, uint32(i.key))
}
