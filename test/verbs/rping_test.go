//go:build verbs

package verbs

import (
	"strings"
	"testing"
)

// TestLists: the programs that list devices see one, with an active port.
func TestLists(t *testing.T) {
	play(t,
		row{client: "ibv_devices", kernel: true, check: says("stag0")},
		row{client: "ibv_devinfo -v", kernel: true, check: says("stag0", "iWARP", "PORT_ACTIVE")},
	)
}

const rpingPort, cmPort = 7174, 7471

// TestRping: rping compares every octet with -V.
func TestRping(t *testing.T) {
	for _, options := range []string{"-C 10 -v", "-C 100 -S 4000", "-C 20 -S 65000", "-C 20 -q"} {
		var env []string
		if strings.Contains(options, "-q") {
			env = roce // an iWARP adapter connects the QP, not the program
		}
		play(t, row{
			env:    env,
			more:   options == "-C 10 -v" || options == "-C 20 -S 65000",
			server: "rping -s -V -a " + addrA + " " + options, client: "rping -c -V -a " + addrA + " " + options,
			port: rpingPort, kernel: true,
			check: func(t *trial, server, client string) {
				for _, out := range []string{server, client} {
					if strings.Contains(out, "error") || strings.Contains(out, "mismatch") {
						t.Errorf("rping complains")
					}
				}
			},
		})
	}
	play(t, row{
		server: "rping -s -V -a 2001:db8::1 -C 10", client: "rping -c -V -a 2001:db8::1 -C 10", port: rpingPort, kernel: true,
	})
}

// TestConnectionManager: many connections, and the time of each step.
func TestConnectionManager(t *testing.T) {
	play(t,
		row{server: "ucmatose -c 100", client: "ucmatose -s " + addrA + " -c 100", port: cmPort, kernel: true,
			check: says("data transfers complete", "return status 0")},
		row{server: "ucmatose -c 10 -m", client: "ucmatose -s " + addrA + " -c 10 -m", port: cmPort, kernel: true,
			check: says("return status 0")},
		row{server: "cmtime -c 1000", client: "cmtime -s " + addrA + " -c 1000", port: cmPort, stays: true, kernel: true,
			check: says("connect", "disconnect")},
		row{server: "rdma_server", client: "rdma_client -s " + addrA, port: 7471, kernel: true,
			check: says("rdma_client: end 0")},
	)
}
