package work

import (
	"errors"
	"fmt"
	"strings"

	"github.com/stag-rdma/stag/tpt"
)

// Access is the set of rights to a region or a window. The numbers are those of
// libibverbs. Only RemoteInvalidate and OneTouch do not exist in libibverbs.
type Access uint32

const (
	LocalWrite   Access = 0x01 // receives and Reads of this end may write to the region
	RemoteWrite  Access = 0x02 // peers may write
	RemoteRead   Access = 0x04 // peers may read
	RemoteAtomic Access = 0x08 // peers may perform atomic operations
	MWBind       Access = 0x10 // windows may be bound to the region
	ZeroBased    Access = 0x20 // tagged offsets begin at 0

	OneTouch         Access = 1 << 29 // the first Write or Read Response makes the STag invalid
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
	{OneTouch, "one touch", 0},
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

// errOneTouch is made in advance because a step may not allocate.
var errOneTouch = errors.New("one touch counts Writes of peers and Reads of this end: use it with RemoteWrite or LocalWrite, without RemoteRead and RemoteAtomic")

// Check returns an error if the flags do not go together. Check does not allocate.
func (a Access) Check() error {
	if a&OneTouch != 0 && (a&(LocalWrite|RemoteWrite) == 0 || a&(RemoteRead|RemoteAtomic) != 0) {
		return errOneTouch
	}
	return nil
}

// RightsOf returns a as rights of the translation and protection table. ZeroBased and
// OneTouch are no rights. known is false if a has unknown flags.
func RightsOf(a Access) (r tpt.Rights, known bool) {
	rest := a
	for _, f := range accessFlags {
		if a&f.flag != 0 {
			r, rest = r|f.right, rest&^f.flag
		}
	}
	return r, rest == 0
}
