package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/ping"
	"github.com/stag-rdma/stag/rdma"
)

// genericUsage describes --generic of commands that open an interface.
const genericUsage = "use XDP in generic mode instead of native: slower, for drivers without XDP"

// pingFlags are the flags of stag ping that ping.Options does not have.
type pingFlags struct {
	server, client, debug, verbose, asJSON bool
	interval                               float64 // seconds
}

func pingCommand() *cobra.Command {
	var (
		o ping.Options
		p pingFlags
	)
	cmd := &cobra.Command{
		Use:   "ping -s|-c -a HOST",
		Short: "Ping by RDMA Read and RDMA Write, as rping does",
		Long: `Pings by RDMA Read and RDMA Write, with the exchange of rping. The other end may be
rping. Choose an interface with -i, those of a running stag daemon with --daemon, or
the kernel's own TCP with --carrier kernel, which needs no rights.

The client pings until Ctrl-C, or -C times. The server ends with its client. With
-P it serves any number of clients at the same time, until Ctrl-C.`,
		Annotations: manual(pingManual + carrierManual),
		Example: `  stag ping -s -i eth1 -v
  stag ping -c -a 192.0.2.1 -i eth1 -C 10 -V -v
  stag ping -c -a 192.0.2.1 -i eth1 --interval 1
  stag ping -c -a 127.0.0.1 --carrier kernel -C 1000 -S 65536 -V --json`,
		Args: atMost(0),

		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkPing(cmd, &o, p); err != nil {
				return usageError{fmt.Errorf("ping: %w", err)}
			}
			o.Interval = seconds(p.interval)
			return runPing(cmd, o, p)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&p.server, "server", "s", false, "be the server: answer pings")
	f.BoolVarP(&p.client, "client", "c", false, "be the client: ping")
	f.StringVarP(&o.Address, "address", "a", "", "host to ping; with -s the address to listen at (default all addresses)")
	f.IntVarP(&o.Port, "port", "p", ping.DefaultPort, "TCP port")
	portsFlag(f, &o.Interfaces, "port-if", "i", "interfaces whose connections are taken over: the ports of one adapter")
	carrierFlags(f, &o.Asked, &o.KernelPort, "use the kernel's TCP instead of an interface")
	daemonFlag(f, &o.Daemon)
	f.BoolVar(&o.Generic, "generic", false, genericUsage)
	f.Uint64VarP(&o.Count, "count", "C", 0, "number of pings; with -s the most pings that a client may do (default no limit)")
	f.IntVarP(&o.Size, "size", "S", 0, fmt.Sprintf("octets of data in a ping (default %d); with -s the most octets that the server accepts (default %d)", ping.DefaultSize, ping.MaxSize))
	f.Float64Var(&p.interval, "interval", 0, "seconds from ping to ping, and print a line for each ping (default no pause)")
	f.BoolVarP(&o.Validate, "validate", "V", false, "check the data that comes back; with -s check the data that arrives")
	f.BoolVarP(&o.Persistent, "persistent", "P", false, "with -s, serve any number of clients until Ctrl-C")
	f.BoolVarP(&p.debug, "debug", "d", false, "print each step to standard error, and log")
	f.BoolVarP(&p.verbose, "verbose", "v", false, "print the data of each ping; with -c also how long each ping took")
	f.BoolVar(&p.asJSON, "json", false, "print the summary as JSON")
	return cmd
}

// checkPing finds mistakes on the command line, and fills in the size.
func checkPing(cmd *cobra.Command, o *ping.Options, p pingFlags) error {
	if !cmd.Flags().Changed("size") {
		o.Size = ping.DefaultSize
		if p.server {
			o.Size = ping.MaxSize
		}
	}
	if err := checkCarrier(&o.Asked, &o.KernelPort, &o.Interfaces, "-i", rdma.ForLatency); err != nil {
		return err
	}
	switch {
	case p.server == p.client:
		return errors.New("choose one: -s to answer pings, -c to ping")
	case p.client && o.Address == "":
		return errors.New("-c needs -a: the host to ping")
	case p.client && o.Persistent:
		return errors.New("-P is for a server: leave it out, or choose -s instead of -c")
	case o.Daemon != "" && (len(o.Interfaces) > 0 || o.KernelPort || o.Generic || o.Given()):
		return errors.New("--daemon, and -i, --carrier, --for, --kernel-port or --generic: choose one, because the daemon has the interfaces")
	case o.Daemon == "" && !o.Chooses() && o.KernelPort == (len(o.Interfaces) > 0):
		return errors.New("choose one: -i and an interface, --daemon, or --carrier kernel for the kernel's TCP")
	case o.Generic && o.KernelPort:
		return errors.New("--generic and --kernel-port: choose one")
	case o.Port < 1 || o.Port > 65535:
		return fmt.Errorf("-p %d: choose 1 to 65535", o.Port)
	case o.Size < 1 || o.Size > ping.MaxSize:
		return fmt.Errorf("-S %d: choose 1 to %d octets", o.Size, ping.MaxSize)
	case cmd.Flags().Changed("count") && o.Count == 0:
		return errors.New("-C 0: choose 1 or more, or leave it out to go on until Ctrl-C")
	case cmd.Flags().Changed("interval") && !(p.interval >= 0.001 && p.interval <= 1e6):
		return fmt.Errorf("--interval %v: choose 0.001 to 1000000 seconds", p.interval)
	case p.server && p.interval != 0:
		return errors.New("--interval is for a client: leave it out")
	case p.verbose && p.asJSON:
		return errors.New("-v has no meaning with --json: choose one")
	}
	return nil
}

func runPing(cmd *cobra.Command, o ping.Options, p pingFlags) error {
	o.Log, o.Chosen = os.Stderr, os.Stderr
	if p.debug {
		o.Debug, o.Adapter = os.Stderr, newLogger(os.Stderr, 2)
	}
	out := cmd.OutOrStdout()
	if p.verbose {
		o.Data = out
	}
	if p.client && !p.asJSON && (p.verbose || o.Interval > 0) {
		o.Each = out
	}
	if err := areUp(o.Interfaces); err != nil {
		return fmt.Errorf("ping: %w", err)
	}
	run := ping.Client
	if p.server {
		run = ping.Server
	}
	r, err := run(cmd.Context(), o)
	if err == nil {
		err = endedEarly(cmd.Context(), o, r)
	}
	if err != nil {
		err = fmt.Errorf("ping: %w", advised(err))
	}
	if err != nil && r.Path == "" && !p.asJSON {
		return err // no connection was made, so the error is the whole message
	}
	print := r.Print
	if p.asJSON {
		print = func(w io.Writer) error { return writeJSON(w, r) }
	}
	if failed := print(out); failed != nil {
		err = errors.Join(err, fmt.Errorf("ping: print what was done: %w", failed))
	}
	return err
}

// endedEarly returns an error if an interrupt ended the command before its work was
// complete.
func endedEarly(ctx context.Context, o ping.Options, r ping.Result) error {
	switch {
	case ctx.Err() == nil || !r.Interrupted || o.Persistent:
		return nil
	case o.Count > 0 && r.Pings < o.Count:
		return fmt.Errorf("interrupted after %d of %d pings", r.Pings, o.Count)
	case r.Path == "":
		return errors.New("interrupted before there was a connection")
	case r.Role == "server":
		return errors.New("interrupted before the client had left")
	}
	return nil
}
