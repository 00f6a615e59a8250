package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestPingPeerDies: if an end is killed in the middle, the other prints the summary and then one line of error.
func TestPingPeerDies(t *testing.T) {
	for _, victim := range []string{"client", "server"} {
		t.Run("kernel/"+victim, func(t *testing.T) {
			ownSockets(t) // killed processes leave their sockets there
			port := freePort(t)
			s := listening(t, onLoopback(t, port, "-s"))
			c := launch(t, onLoopback(t, port, "-c", "-v"))
			if victim == "client" {
				diesInOrder(t, s, c)
			} else {
				oneDies(t, victim, s, c)
			}
			if os.Geteuid() == 0 {
				clearClaims(t)
			}
		})
		t.Run("pair/"+victim, func(t *testing.T) {
			before := tracesOf(t)
			p := netns.XDPPair(t, pair.Config{})
			at := func(side pair.Side, args ...string) *exec.Cmd {
				return command(t, append([]string{"ping", "-i", p.Ends[side].Name, "-a", p.Ends[pair.B].V4.Addr().String()}, args...)...)
			}
			var s, c *running
			rig.Must(t, p.Do(pair.B, func() error { s = listening(t, at(pair.B, "-s")); return nil }))
			in(t, p, func() error { c = launch(t, at(pair.A, "-c", "-v")); return nil })
			oneDies(t, victim, s, c)
			clearClaims(t)
			rig.Must(t, p.Close())
			before.gone(t)
		})
	}
}

// oneDies kills an end as soon as the client has done a few pings.
func oneDies(t *testing.T, victim string, s, c *running) {
	t.Helper()
	c.until("rdma-ping-20: ")
	dies, lives := c, s
	if victim == "server" {
		dies, lives = s, c
	}
	rig.Must(t, dies.cmd.Process.Kill())
	dies.rest()
	said := lives.all(exitFailed)
	contains(t, said, " pings, ", "octets each way, in ")
	complaint(t, lives.said, "stag: ping: ")
}

// diesInOrder kills the client over the kernel's TCP. The kernel then closes the connection. If no ping was outstanding,
// the server cannot distinguish this client from a client that has finished.
func diesInOrder(t *testing.T, s, c *running) {
	t.Helper()
	c.until("rdma-ping-20: ")
	rig.Must(t, c.cmd.Process.Kill())
	c.rest()
	if s.rest() == 0 {
		contains(t, strings.Join(s.said, "\n"), " pings, ", "Clients: 1. Failed: 0.")
		return
	}
	contains(t, strings.Join(s.said, "\n"), " pings, ", "Clients: 1. Failed: 1.")
	complaint(t, s.said, "stag: ping: client ")
}

// TestPingUnread: ping ends with one line if the reader of its output has gone.
func TestPingUnread(t *testing.T) {
	for _, args := range [][]string{{"--json"}, {"-v"}, nil} {
		port := freePort(t)
		s := listening(t, onLoopback(t, port, "-s"))
		cmd := onLoopback(t, port, append([]string{"-c", "-C", "3"}, args...)...)
		complaint(t, lines(unread(t, cmd)), "stag: ping: ", "broken pipe")
		s.rest()
	}
}

// TestPingAdvice: a network error is printed with advice.
func TestPingAdvice(t *testing.T) {
	port := freePort(t)
	s := listening(t, onLoopback(t, port, "-s"))
	for args, says := range map[string]string{
		"-s -a 127.0.0.1 -p " + port: "choose another -p",
		"-s -a 192.0.2.77":           "choose an address of this host",
		"-c -a 127.0.0.1:" + port:    "give a host name or an address, and the port by -p",
		"-c -a 127.0.0.1 -p 1":       "start the server there first",
	} {
		x := launch(t, command(t, append([]string{"ping", "--kernel-port"}, strings.Fields(args)...)...))
		x.all(exitFailed)
		contains(t, strings.Join(x.said, "\n"), "stag: ping: ", says)
	}
	rig.Must(t, s.cmd.Process.Signal(os.Interrupt))
	s.all(exitFailed)
}
