package main

import (
	"github.com/spf13/pflag"

	"github.com/stag-rdma/stag/cmd/stag/internal/daemon"
	server "github.com/stag-rdma/stag/rdma/daemon"
)

// usualDaemon is the value of --daemon without a path.
const usualDaemon = "auto"

// throughDaemon is a flag for the socket of a daemon.
type throughDaemon struct{ path *string }

func (d throughDaemon) String() string { return "" }
func (d throughDaemon) Type() string   { return "socket" }

func (d throughDaemon) Set(path string) error {
	if path == usualDaemon {
		path = daemon.Socket()
	}
	*d.path = path
	return nil
}

// daemonFlag adds the flag --daemon.
func daemonFlag(f *pflag.FlagSet, to *string) {
	f.Var(throughDaemon{to}, "daemon", "use the interfaces of a running stag daemon, by its `socket` (default $STAG_DAEMON, else /run/stag/stagd.sock)")
	f.Lookup("daemon").NoOptDefVal = usualDaemon
}

// daemonServes reports whether a daemon runs that programs find by themselves.
func daemonServes() bool { return server.Serves(daemon.Socket()) }
