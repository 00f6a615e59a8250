package main

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
)

// TestAdvised: what to do is said of the network's errors, and of no others
// that have the same number.
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
