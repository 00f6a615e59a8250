//go:build interop

package interop

import (
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
)

// addresses are those of the guest for the two portals. The second has another prefix, so
// that it stays when the first is taken away.
var addresses = []string{guestV4 + "/24", "192.0.2.12/25"}

// TestLIOPaths has a disk of LIO over two portals. In the middle of writes and reads one
// portal becomes silent: each command completes once, over the path that is left, and no
// octet is wrong.
func TestLIOPaths(t *testing.T) {
	for i, c := range carriers {
		row(t, c.name, about{"LIO", "2 paths, one killed"}, func(r *rig) {
			l := r.lio(permissive...)
			host, _, _ := strings.Cut(addresses[1], "/")
			second := net.JoinHostPort(host, portal)
			r.address("add", addresses[1])
			r.Cleanup(func() {
				r.address("replace", addresses[0])
				r.address("del", addresses[1])
			})
			r.inGuest(fmt.Sprintf("/host/lio.sh portal %s %s", lioName, second))
			d := r.dial(c, l.url("", lioFileLUN, "?path="+second), iscsi.Config{Ping: 200 * time.Millisecond})
			l.pathKilled(d, i)
		})
	}
}

// address gives the guest's interface an address, or takes it away. Packets to an address
// that is not there get no answer.
func (r *rig) address(command, address string) {
	r.Helper()
	r.inGuest(fmt.Sprintf("/sbin/ip addr %s %s dev eth0", command, address))
}

// pathKilled kills path i while a load runs.
func (l *lio) pathKilled(d *iscsi.Disk, i int) {
	l.Helper()
	state := func(i int, want iscsi.PathState) {
		l.Helper()
		l.Eventually(fmt.Sprintf("path %d is %v", i, want), func() bool { return d.Paths()[i].State == want })
	}
	state(0, iscsi.PathActive)
	state(1, iscsi.PathActive)
	w := newLoad(l.rig, d, 1<<20)
	var stop atomic.Bool
	ended := make(chan error, 1)
	go func() { ended <- w.run(func() bool { return !stop.Load() }) }()
	w.moves()
	l.address("del", addresses[i])
	state(i, iscsi.PathDown)
	w.moves()
	l.address("add", addresses[i])
	state(i, iscsi.PathActive)
	w.moves()
	stop.Store(true)
	l.Must(<-ended)
	w.there(l)
}
