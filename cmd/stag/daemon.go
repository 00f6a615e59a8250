package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/daemon"
	"github.com/stag-rdma/stag/cmd/stag/internal/version"
	"github.com/stag-rdma/stag/rdma"
	server "github.com/stag-rdma/stag/rdma/daemon"
)

func daemonCommand() *cobra.Command {
	var (
		o      daemon.Options
		quota  string
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "daemon -i IFACE | --carrier kernel",
		Short: "Let many processes use one adapter, also C programs for libibverbs",
		Long: `Owns the adapter until Ctrl-C. C programs use it with stag's libibverbs and librdmacm:
see stag run. A program needs no right but that to connect to the socket. When a
program ends or is killed, everything that it had goes away.`,
		Annotations: manual(daemonManual + carrierManual),
		Example: `  stag daemon -i eth1
  stag daemon --carrier kernel --socket /tmp/stagd.sock`,
		Args: atMost(0),

		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := checkCarrier(&o.Asked, &o.KernelPort, &o.Interfaces, "-i", rdma.ForAnything); err != nil {
				return usageError{fmt.Errorf("daemon: %w", err)}
			}
			if !o.Chooses() && (len(o.Interfaces) == 0) == !o.KernelPort {
				return usageError{errors.New("daemon: choose interfaces with -i, or --carrier kernel")}
			}
			if o.Quota, err = server.ParseQuota(quota); err != nil {
				return usageError{fmt.Errorf("daemon: --%w", err)}
			}
			o.Log, o.Chosen, o.Adapter = os.Stderr, os.Stderr, logger(cmd.Context())
			if v, err := version.Read(); err == nil {
				o.Version = v.Version
			}
			return runDaemon(cmd, o, asJSON)
		},
	}
	f := cmd.Flags()
	portsFlag(f, &o.Interfaces, "port-if", "i", "interfaces that become the ports of the adapter")
	carrierFlags(f, &o.Asked, &o.KernelPort, "use the kernel's TCP, without an interface and without root")
	f.StringVar(&o.Socket, "socket", "", "`path` of the socket (default $STAG_DAEMON, else /run/stag/stagd.sock)")
	f.StringVar(&o.Group, "group", "", "`group` whose users may connect (default rdma for root, if it exists)")
	f.StringVar(&quota, "quota", "", "`limits` of each program, such as qps=64,rings=16M: "+strings.Join(server.QuotaNames(), ", "))
	f.BoolVar(&o.Generic, "generic", false, genericUsage)
	f.BoolVar(&asJSON, "json", false, "print the summary as JSON")
	return cmd
}

func runDaemon(cmd *cobra.Command, o daemon.Options, asJSON bool) error {
	if err := areUp(o.Interfaces); err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	attendant, err := daemon.Attends()
	if err != nil {
		return fmt.Errorf("daemon: %w", err)
	}
	o.Attendant = attendant
	r, err := daemon.Serve(cmd.Context(), o)
	attendant.Failed(err)
	if err != nil {
		err = fmt.Errorf("daemon: %w", err)
		if !asJSON {
			return err
		}
	}
	print := r.Print
	if asJSON {
		print = func(w io.Writer) error { return writeJSON(w, r) }
	}
	return errors.Join(err, print(cmd.OutOrStdout()))
}
