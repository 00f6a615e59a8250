package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stag-rdma/stag/cmd/stag/internal/demo"
	"github.com/stag-rdma/stag/rdma"
)

// These are the limits of --size, in MiB.
const (
	defaultSize = 1 << 10
	maxSize     = 1 << 20
)

// These are the limits of --mtu, in octets. A veth pair with IPv6 accepts these MTUs.
const minMTU, maxMTU = 1280, 65535

func demoCommand() *cobra.Command {
	var (
		o        demo.Options
		mib, kib uint64
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show RDMA between two hosts, and what is refused",
		Long: `Makes two network namespaces with a veth pair between them and an RDMA adapter at
each end. Moves data by RDMA Write, RDMA Read and Send, and checks every octet that
arrives. Then tries operations that must be refused, and shows the errors. Then binds,
uses and unbinds a memory window. Then two peers and a program add to one counter by
atomic operations. Removes the namespaces at its end, and after Ctrl-C.

Without the rights to make namespaces, the command does the same over the kernel's
TCP on loopback, and its first line says so.`,
		Annotations: manual(demoManual + carrierManual),
		Example: `  stag demo
  stag demo --size 64 --mtu 3506
  stag demo --json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDemo(cmd, &o, mib, kib); err != nil {
				return err
			}
			o.Octets, o.Message = mib<<20, int(kib<<10)
			o.Progress, o.Log = os.Stderr, logger(cmd.Context())
			if !asJSON {
				o.Out = cmd.OutOrStdout()
			}
			r, err := demo.Run(cmd.Context(), o)
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), r)
			}
			return r.Print(cmd.OutOrStdout(), verbosity(cmd) > 0)
		},
	}
	cmd.AddCommand(demoISCSI(), demoFailover())
	f := cmd.Flags()
	f.Uint64Var(&mib, "size", defaultSize, "MiB to move with each operation")
	f.Uint64Var(&kib, "msg", demo.DefaultMessage>>10, "message size in KiB")
	demoFlags(f, &o)
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

func demoISCSI() *cobra.Command {
	var (
		o      demo.Options
		mib    uint64
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "iscsi",
		Short: "Show an iSCSI disk between two hosts, and what is refused",
		Long: `Makes two network namespaces with a veth pair between them, an iSCSI target with a
disk in memory at one end and an initiator at the other. Writes the disk and reads it
back, and checks every octet: data is placed by the tag of its command. Then a lying
target and a lying initiator send what must be refused. Removes the namespaces at its
end, and after Ctrl-C.

Without the rights to make namespaces, the command does the same over the kernel's
TCP on loopback, and its first line says so.`,
		Annotations: manual(demoISCSIManual),
		Example: `  stag demo iscsi
  stag demo iscsi --size 64 --mtu 3506
  stag demo iscsi --json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDemo(cmd, &o, mib, 1); err != nil {
				return err
			}
			o.Octets, o.Progress, o.Log = mib<<20, os.Stderr, logger(cmd.Context())
			if !asJSON {
				o.Out = cmd.OutOrStdout()
			}
			r, err := demo.RunISCSI(cmd.Context(), o)
			if err != nil {
				return fmt.Errorf("demo iscsi: %w", err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), r)
			}
			return r.Print(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&mib, "size", defaultSize, "MiB to write, and to read back")
	demoFlags(f, &o)
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

// maxPulls is the limit of --pulls.
const maxPulls = 1000

func demoFailover() *cobra.Command {
	var (
		o        demo.Options
		mib, kib uint64
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "failover",
		Short: "Show connections that survive a pulled cable",
		Long: `Makes two network namespaces with two veth pairs between them, and an RDMA adapter
with two ports at each end. Moves data by RDMA Write, RDMA Read and Send, and checks
every octet. Meanwhile it pulls the first cable and puts it back several times, and
drains the first port of both adapters once. A TCP connection of the kernels does the
same after each operation. Prints for how long no data arrived, of both. Removes the
namespaces at its end, and after Ctrl-C. Needs root.`,
		Annotations: manual(demoFailoverManual),
		Example: `  stag demo failover
  stag demo failover --size 256 --pulls 10
  stag demo failover --json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDemo(cmd, &o, mib, kib); err != nil {
				return err
			}
			if o.Pulls < 1 || o.Pulls > maxPulls {
				return usageError{fmt.Errorf(commandName(cmd)+": --pulls %d: choose 1 to %d", o.Pulls, maxPulls)}
			}
			o.Octets, o.Message = mib<<20, int(kib<<10)
			o.Progress, o.Log = os.Stderr, logger(cmd.Context())
			if !asJSON {
				o.Out = cmd.OutOrStdout()
			}
			r, err := demo.RunFailover(cmd.Context(), o)
			if err != nil {
				return fmt.Errorf("demo failover: %w", err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), r)
			}
			return r.Print(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&mib, "size", defaultSize, "MiB to move with each operation, or more: at least 16 for each event")
	f.Uint64Var(&kib, "msg", demo.DefaultMessage>>10, "message size in KiB")
	f.IntVar(&o.Pulls, "pulls", 3, "how often to pull the cable during each operation")
	f.IntVar(&o.MTU, "mtu", 1500, "MTU of the veth pairs in octets")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

// demoFlags adds the flags that every demonstration has.
func demoFlags(f *pflag.FlagSet, o *demo.Options) {
	f.IntVar(&o.MTU, "mtu", 1500, "MTU of the veth pair in octets")
	f.BoolVar(&o.V6, "ipv6", false, "use IPv6")
	f.BoolVar(&o.Generic, "generic", false, "attach in generic mode instead of native")
	carrierFlags(f, &o.Asked, &o.KernelPort, "use the kernel's TCP on loopback even with the rights to make namespaces")
	f.Lookup("carrier").Usage = "what carries connections: afxdp over a veth pair, or kernel on loopback (default auto, which says why)"
}

func checkDemo(cmd *cobra.Command, o *demo.Options, mib, kib uint64) error {
	veth := []string{"the demonstration's veth pair"}
	if err := checkCarrier(&o.Asked, &o.KernelPort, &veth, "", rdma.ForAnything); err != nil {
		return usageError{fmt.Errorf(commandName(cmd)+": %w", err)}
	}
	for _, flag := range []string{"mtu", "generic"} {
		if o.KernelPort && cmd.Flags().Changed(flag) {
			return usageError{fmt.Errorf(commandName(cmd)+": --%s has no meaning with --kernel-port: choose one", flag)}
		}
	}
	switch {
	case mib < 1 || mib > maxSize:
		return usageError{fmt.Errorf(commandName(cmd)+": --size %d: choose 1 to %d MiB", mib, maxSize)}
	case kib < 1 || kib > demo.MaxMessage>>10:
		return usageError{fmt.Errorf(commandName(cmd)+": --msg %d: choose 1 to %d KiB", kib, demo.MaxMessage>>10)}
	case o.MTU < minMTU || o.MTU > maxMTU:
		return usageError{fmt.Errorf(commandName(cmd)+": --mtu %d: choose %d to %d", o.MTU, minMTU, maxMTU)}
	}
	return nil
}
