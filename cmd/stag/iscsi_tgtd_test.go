package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/storage"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/tgtd"
)

// TestISCSITgtd: the commands use tgtd, whose LUN 0 is no disk.
func TestISCSITgtd(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	target := tgtd.Start(t, p, pair.B, tgtd.Config{Size: 8 << 20})
	here := func(args string) result {
		r := inside(t, p, command(t, append([]string{"iscsi"}, strings.Fields(args)...)...))
		r.ends(t, 0)
		return r
	}
	portal := storage.Scheme + target.Portal().String()
	contains(t, here("discover "+portal).stdout, "Target:"+tgtd.Name+" Portal:"+target.Portal().String()+"\n")
	contains(t, here("ls "+portal).stdout, "Lun:0 ", "Lun:1    Type:disk (Size:8388608 Block:512) IET VIRTUAL-DISK")
	contains(t, here("inq "+portal+"/"+tgtd.Name+"/0").stdout, "Vendor:IET", "Product:Controller")
	contains(t, here("readcap "+target.URL("")).stdout, "Total Size:8388608")
	file, sum := randomFile(t, 8<<20)
	back := filepath.Join(t.TempDir(), "back")
	here("dd " + file + " " + target.URL(""))
	sameFiles(t, file, target.Disk())
	contains(t, here("dd "+target.URL("")+" "+back+" --hash").stdout, sum)
	sameFiles(t, file, back)
	contains(t, here("perf -w -m 4 -t 0.1 "+target.URL("")).stdout, "performing SEQUENTIAL WRITE", "iops average")
}
