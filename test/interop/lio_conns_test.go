//go:build interop

package interop

import (
	"testing"

	"github.com/stag-rdma/stag/iscsi"
)

// TestLIOConnections has four connections in one session with LIO: all octets of the disk each
// way. No row removes the target meanwhile, because Linux 6.1 then uses a connection that it has
// freed (iscsit_stop_session), and the guest dies.
func TestLIOConnections(t *testing.T) {
	const four = "param/MaxConnections=4"
	for _, c := range carriers {
		row(t, "bulk, "+c.name, about{"LIO", "64 MiB each way, 4 connections"}, func(r *rig) {
			l := r.lio(append([]string{four}, permissive...)...)
			d := r.dial(c, l.url("", lioFileLUN, "?connections=4&header_digest=crc32c"), iscsi.Config{})
			if n := d.Session().Connections(); n != 4 {
				r.Fatalf("%d connections, want 4", n)
			}
			l.says("MaxConnections=4")
			w := newLoad(r, d, bulk/parts)
			r.Must(w.run(func() bool { return false }))
			w.there(l)
		})
	}
}
