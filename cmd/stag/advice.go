package main

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/rdma"
)

const gone = "the other end has ended or refused the connection: look at its output"

// advice maps each network error to a remedy. The remedies are for commands that take
// the host of the other end as an argument and the port by -p.
var advice = []struct {
	is error
	do string
}{
	{loader.ErrNoRoute, ""}, // no remedy: the text of this error already says what to look at
	{rdma.ErrNoPort, "on the command line use --kernel-port, at both ends"},
	{syscall.EADDRINUSE, "choose another -p, or end what listens there"},
	{syscall.EACCES, "choose a -p of 1024 or more, or run as root"},
	{syscall.EADDRNOTAVAIL, "choose an address of this host to listen at"},
	{syscall.ECONNREFUSED, "start the server there first, with the same -p"},
	{syscall.EHOSTUNREACH, "check the address and the route: ip route get"},
	{syscall.ENETUNREACH, "check the address and the route: ip route get"},
	{syscall.ETIMEDOUT, "no host answers: check the address and the firewalls"},
	{syscall.ECONNRESET, gone},
	{stream.ErrReset, gone},
}

// advised adds the advice to err if err is a network error.
func advised(err error) error {
	var name *net.DNSError
	if errors.As(err, &name) {
		return fmt.Errorf("%w: give a host name or an address, and the port by -p", err)
	}
	var call *net.OpError
	for _, a := range advice {
		if a.is == syscall.EACCES && !errors.As(err, &call) {
			continue // this EACCES is not a network error: for example, loading a program failed
		}
		switch {
		case !errors.Is(err, a.is):
		case a.do == "":
			return err
		default:
			return fmt.Errorf("%w: %s", err, a.do)
		}
	}
	return err
}
