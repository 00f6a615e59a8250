package work

import (
	"fmt"
	"strings"

	"github.com/stag-rdma/stag/tpt"
)

// Access is the set of rights to a region or a window. The numbers are those of
// libibverbs. Only RemoteInvalidate does not exist in libibverbs.
type Access uint32

const (
	LocalWrite   Access = 0x01 // receives and Reads of this end may write to the region
	RemoteWrite  Access = 0x02 // peers may write
	RemoteRead   Access = 0x04 // peers may read
	RemoteAtomic Access = 0x08 // peers may perform atomic operations
	MWBind       Access = 0x10 // windows may be bound to the region
	ZeroBased    Access = 0x20 // tagged offsets begin at 0

	RemoteInvalidate Access = 1 << 30 // all peers of the protection domain may invalidate the STag
)

// accessFlags has one row for each flag.
var accessFlags = []struct {
	flag  Access
	name  string
	right tpt.Rights
}{
	{LocalWrite, "local write", tpt.LocalWrite},
	{RemoteWrite, "remote write", tpt.RemoteWrite},
	{RemoteRead, "remote read", tpt.RemoteRead},
	{RemoteAtomic, "remote atomic", tpt.RemoteAtomic},
	{MWBind, "window binding", tpt.Bind},
	{ZeroBased, "zero-based", 0},
	{RemoteInvalidate, "remote invalidate", tpt.RemoteInvalidate},
}

// String returns the names of the flags, such as "local write, remote read".
func (a Access) String() string {
	var names []string
	rest := a
	for _, f := range accessFlags {
		if a&f.flag != 0 {
			names, rest = append(names, f.name), rest&^f.flag
		}
	}
	if rest != 0 {
		names = append(names, fmt.Sprintf("unknown %#x", uint32(rest)))
	}
	if len(names) == 0 {
		return "local read"
	}
	return strings.Join(names, ", ")
}

// RightsOf returns a as rights of the translation and protection table. ZeroBased is no
// right. known is false if a has unknown flags.
func RightsOf(a Access) (r tpt.Rights, known bool) {
	rest := a
	for _, f := range accessFlags {
		if a&f.flag != 0 {
			r, rest = r|f.right, rest&^f.flag
		}
	}
	return r, rest == 0
}
