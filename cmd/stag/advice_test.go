package main

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/rdma"
)

// TestAdvised: advised adds advice to a network error, and none to another error with the same errno.
func TestAdvised(t *testing.T) {
	denied := &net.OpError{Op: "listen", Err: syscall.EACCES}
	for _, c := range []struct {
		err   error
		ports bool
	}{
		{fmt.Errorf("listen: %w", denied), true},
		{fmt.Errorf("load the program: %w", syscall.EACCES), false},
	} {
		if said := advised(c.err).Error(); strings.Contains(said, "choose a -p") != c.ports {
			t.Errorf("%v: %q", c.err, said)
		}
	}
}

// TestAdvisedOnce: an error that already has advice gets no second one. An error of package rdma
// gets advice that names the flag of the command line.
func TestAdvisedOnce(t *testing.T) {
	way := fmt.Errorf("%w: no route to 192.0.2.2 (%w): see ip route get 192.0.2.2", loader.ErrNoRoute, syscall.ENETUNREACH)
	if said := advised(way).Error(); strings.Count(said, "ip route get") != 1 {
		t.Errorf("%q", said)
	}
	own := fmt.Errorf("%w: 192.0.2.1 is on this host", rdma.ErrNoPort)
	if said := advised(own).Error(); !strings.Contains(said, "--kernel-port") {
		t.Errorf("%q", said)
	}
}
