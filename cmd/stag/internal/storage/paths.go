package storage

import (
	"github.com/stag-rdma/stag/iscsi"
)

// Path is a path to a disk whose URL has several.
type Path struct {
	Portal string `json:"portal"`
	State  string `json:"state"`            // down, passive, ready or active
	Access string `json:"access,omitempty"` // access state of the target port group, unless the path is down
	Group  uint16 `json:"group,omitempty"`  // target port group; 0: the unit has none
	Error  string `json:"error,omitempty"`  // why the path is down
}

// pathsOf returns the paths of a disk, or none if the disk has one.
func pathsOf(d *iscsi.Disk) (all []Path) {
	list := d.Paths()
	if len(list) < 2 {
		return nil
	}
	for _, p := range list {
		x := Path{Portal: p.Portal, State: p.State.String(), Group: p.Group}
		if p.State != iscsi.PathDown {
			x.Access = p.Access.String()
		}
		if p.Err != nil {
			x.Error = p.Err.Error()
		}
		all = append(all, x)
	}
	return all
}

// paths returns the paths of an end of a copy.
func paths(e end) []Path {
	switch x := e.(type) {
	case diskSource:
		return pathsOf(x.Disk)
	case diskSink:
		return pathsOf(x.Disk)
	}
	return nil
}

// digests reports which digests a path of a disk has that works.
func digests(d *iscsi.Disk) (header, data bool) {
	for _, p := range d.Paths() {
		if p.State != iscsi.PathDown {
			return p.HeaderDigest, p.DataDigest
		}
	}
	return false, false
}

// count returns how many paths the URL of a disk has.
func count(url string) int {
	u, err := iscsi.ParseURL(url)
	if err != nil {
		return 1 // opening the disk tells the error
	}
	return 1 + len(u.Paths)
}
