package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/demo"
)

func demoCommand() *cobra.Command {
	var (
		o      demo.Options
		mib    uint64
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Take a live connection over on both ends and move octets through the engines",
		Long: `Makes two network namespaces with a veth pair between them, lets the kernel
open a TCP connection, takes it over on both ends, and moves octets each way
through AF_XDP, checking every one. Nothing is left behind, whatever ends it.

Without the rights for that it does the same over the kernel's TCP on loopback,
and says so in its first line.`,
		Example: `  stag demo
  stag demo --size 64 --mtu 3506
  stag demo --json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Octets = mib << 20
			o.Out, o.Progress = cmd.OutOrStdout(), os.Stderr
			if asJSON {
				o.Out = nil
			}
			r, err := demo.Run(cmd.Context(), o)
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			if asJSON {
				enc := json.NewEncoder(cmd.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(r)
			}
			return r.Print(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&mib, "size", 1024, "MiB to move each way")
	f.IntVar(&o.MTU, "mtu", 1500, "MTU of the veth pair, octets")
	f.BoolVar(&o.V6, "ipv6", false, "use IPv6")
	f.BoolVar(&o.Generic, "generic", false, "attach in generic mode instead of native")
	f.BoolVar(&o.KernelPort, "kernel-port", false, "use the kernel's TCP on loopback even with the rights for more")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}
