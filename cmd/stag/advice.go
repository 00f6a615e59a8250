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

const (
	gone       = "the other end has ended or refused the connection: look at its output"
	checkRoute = "check the address and the route: ip route get"
	noAnswer   = "no host answers: check the address and the firewalls"
)

// remedy is what a user can do about an error.
type remedy struct {
	is error
	do string
}

// advice maps each network error to a remedy. The remedies are for commands that take
// the host of the other end as an argument and the port by -p.
var advice = []remedy{
	{loader.ErrNoRoute, ""}, // no remedy: the text of this error already says what to look at
	{rdma.ErrNoPort, "on the command line use --kernel-port, at both ends"},
	{syscall.EADDRINUSE, "choose another -p, or end what listens there"},
	{syscall.EACCES, "choose a -p of 1024 or more, or run as root"},
	{syscall.EADDRNOTAVAIL, "choose an address of this host to listen at"},
	{syscall.ECONNREFUSED, "start the server there first, with the same -p"},
	{syscall.EHOSTUNREACH, checkRoute},
	{syscall.ENETUNREACH, checkRoute},
	{syscall.ETIMEDOUT, noAnswer},
	{syscall.ECONNRESET, gone},
	{stream.ErrReset, gone},
}

// advised adds the advice to err if err is a network error, or if another process has the
// interface.
func advised(err error) error {
	if errors.Is(err, loader.ErrQueueBusy) && daemonServes() {
		return fmt.Errorf("%w, or share the adapter of the stag daemon that runs: --daemon", err)
	}
	return advise(err, advice, "give a host name or an address, and the port by -p")
}

// advise adds a remedy of list to err if err is a network error. naming is the remedy for
// the name of a host that is not known.
func advise(err error, list []remedy, naming string) error {
	var name *net.DNSError
	if errors.As(err, &name) {
		return fmt.Errorf("%w: %s", err, naming)
	}
	var call *net.OpError
	for _, a := range list {
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
