package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/echo"
)

func echoCommand() *cobra.Command {
	var (
		o      echo.Options
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "echo -i IFACE",
		Short: "Send every octet of TCP connections back, and survive upgrades",
		Long: `Serves the echo service of RFC 862 over TCP until Ctrl-C. Each connection is taken
over from the kernel, and its octets are sent back. Any TCP program can be the peer.
The process can be upgraded: see stag upgrade.`,
		Annotations: manual(echoManual),
		Example: `  stag echo -i eth1
  stag echo -i eth1,eth2 -a 192.0.2.1 -p 4007`,
		Args: atMost(0),

		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case len(o.Interfaces) == 0:
				return usageError{errors.New("echo: choose an interface with -i")}
			case o.Port < 0 || o.Port > 65535:
				return usageError{fmt.Errorf("echo: -p %d: choose a port up to 65535", o.Port)}
			}
			o.Log, o.Adapter = os.Stderr, logger(cmd.Context())
			return runEcho(cmd, o, asJSON)
		},
	}
	f := cmd.Flags()
	portsFlag(f, &o.Interfaces, "port-if", "i", "interfaces whose connections are taken over: the ports of one adapter")
	f.StringVarP(&o.Address, "address", "a", "", "address to listen at (default all addresses)")
	f.IntVarP(&o.Port, "port", "p", echo.DefaultPort, "TCP port; 0: any free port")
	f.BoolVar(&o.Generic, "generic", false, genericUsage)
	f.BoolVar(&asJSON, "json", false, "print the summary as JSON")
	return cmd
}

func runEcho(cmd *cobra.Command, o echo.Options, asJSON bool) error {
	if err := areUp(o.Interfaces); err != nil {
		return fmt.Errorf("echo: %w", err)
	}
	r, err := echo.Serve(cmd.Context(), o)
	if err != nil {
		err = fmt.Errorf("echo: %w", advised(err))
		if r.Address == "" && !asJSON {
			return err
		}
	}
	print := r.Print
	if asJSON {
		print = func(w io.Writer) error { return writeJSON(w, r) }
	}
	return errors.Join(err, print(cmd.OutOrStdout()))
}
