package main

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/storage"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/test/rig"
)

// TestISCSIPaths: dd and perf use all paths of a URL, and --json tells them. The commands
// that ask over one session say what to leave out.
func TestISCSIPaths(t *testing.T) {
	disk, err := backend.NewRAM(8 << 20)
	rig.Must(t, err)
	defer disk.Close()
	s, err := iscsi.Serve(context.Background(), iscsi.ServerConfig{
		Address: "127.0.0.1:0", Portals: []iscsi.PortalConfig{{Address: "127.0.0.1:0", Group: 2}},
		Access:  map[uint16]iscsi.AccessState{2: iscsi.AccessStandby},
		Targets: []iscsi.TargetConfig{{Name: iqn, LUNs: map[uint16]iscsi.LUN{1: {Backend: disk}}}},
	})
	rig.Must(t, err)
	defer func() { rig.Check(t, s.Close()) }()
	url := lun1(storage.Scheme+s.Addr().String()) + "?policy=queue-depth&path=" + s.Addrs()[1].String()
	file, sum := randomFile(t, 8<<20)
	r := iscsiRun(t, "dd --json "+file+" "+url)
	r.ends(t, 0)
	var copied storage.Copied
	rig.Must(t, json.Unmarshal([]byte(r.stdout), &copied))
	if p := copied.ToPaths; len(p) != 2 || p[0].State != "active" || p[1].State != "passive" || p[1].Access != "standby" || p[1].Group != 2 || copied.FromPaths != nil {
		t.Errorf("paths %+v", p)
	}
	rig.Must(t, s.SetAccess(2, iscsi.AccessOptimized))
	back := filepath.Join(t.TempDir(), "back")
	r = iscsiRun(t, "dd --hash "+url+" "+back)
	r.ends(t, 0)
	contains(t, r.stdout, sum)
	sameFiles(t, file, back)
	r = iscsiRun(t, "perf --json -m 8 -t 0.1 "+strings.Replace(url, s.Addr().String(), "127.0.0.1:1", 1))
	r.ends(t, 0)
	var load storage.Load
	rig.Must(t, json.Unmarshal([]byte(r.stdout), &load))
	if p := load.Paths; len(p) != 2 || p[0].State != "down" || p[0].Error == "" || p[1].State != "active" {
		t.Errorf("paths %+v", p)
	}
	for _, command := range []string{"inq", "readcap", "ls", "discover"} {
		r = iscsiRun(t, command+" "+url)
		r.ends(t, 2)
		contains(t, r.stderr, "iscsi "+command+": the answer is that of one path: leave out path=")
	}
	r = iscsiRun(t, "perf -t 0.1 "+lun1("iscsi://127.0.0.1")+"?policy=fastest")
	r.ends(t, 2)
	contains(t, r.stderr, "choose round-robin")
}
