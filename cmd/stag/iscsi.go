package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stag-rdma/stag/cmd/stag/internal/storage"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/rdma"
)

func iscsiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "iscsi",
		Short: "Use, copy, measure and serve disks over iSCSI",
		Long: `Uses disks of iSCSI targets, and serves disks to iSCSI initiators (RFC 7143). A disk
is named by the URL of libiscsi: iscsi://[USER@]HOST[:PORT]/TARGET/LUN, or iser:// for
iSER. Connections run over the kernel's TCP, or over the interfaces of -i.

CHAP secrets come from the environment (LIBISCSI_CHAP_USERNAME,
LIBISCSI_CHAP_PASSWORD) or from the file of --chap-file.`,
		Annotations: manual(iscsiManual + carrierManual),
		Example: `  stag iscsi target --name iqn.2026-01.test.stag:t1 --lun 1=ram:64M
  stag iscsi ls iscsi://192.0.2.1
  stag iscsi dd disk.img iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usageError{fmt.Errorf("iscsi: unknown command %q: see stag iscsi --help", args[0])}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(iscsiDiscover(), iscsiList(), iscsiInquiry(), iscsiCapacity(), iscsiCopy(), iscsiPerf(), iscsiTarget(), iscsiNBD(), iscsiAttach(), iscsiDetach())
	return cmd
}

// iscsiFlags are the flags that all commands of iscsi have.
type iscsiFlags struct {
	storage.Options
	kernelPort, json bool
}

func (o *iscsiFlags) flags(f *pflag.FlagSet) {
	f.SortFlags = false
	portsFlag(f, &o.Interfaces, "interface", "i", "interfaces whose connections are taken over: the ports of one adapter (default the kernel's TCP)")
	carrierFlags(f, &o.Asked, &o.kernelPort, "use the kernel's TCP; this is the default without -i")
	f.BoolVar(&o.Generic, "generic", false, genericUsage)
	f.StringVar(&o.Secrets, "chap-file", "", "file of CHAP secrets, which only its owner may read")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
}

// initiator adds the flags of a command that logs in.
func (o *iscsiFlags) initiator(f *pflag.FlagSet) {
	o.flags(f)
	f.StringVar(&o.Initiator, "initiator-name", "", "iSCSI name of this end (default a name from the host's name)")
}

// recovery adds the flag of a command that may wait for a target that is gone.
func (o *iscsiFlags) recovery(f *pflag.FlagSet) {
	f.DurationVar(&o.Recovery, "recovery", 0, "how long to wait for a target that is gone, as in 2m (default the command ends with the connection)")
}

// check finds mistakes on the command line.
func (o *iscsiFlags) check() error {
	if o.kernelPort && len(o.Interfaces) > 0 {
		return errors.New("-i and --kernel-port: choose one")
	}
	if err := checkCarrier(&o.Asked, &o.kernelPort, &o.Interfaces, "-i", rdma.ForAnything); err != nil {
		return err
	}
	switch {
	case o.Recovery < 0:
		return fmt.Errorf("--recovery %v: choose more than 0", o.Recovery)
	case o.Generic && len(o.Interfaces) == 0:
		return errors.New("--generic has no meaning without -i")
	}
	return nil
}

// checkURL finds mistakes in a URL, and warns of a secret in it.
func checkURL(cmd *cobra.Command, url string, disk bool) error {
	u, err := iscsi.ParseURL(url)
	if err != nil {
		return err
	}
	if disk && u.Target == "" {
		return errors.New("the URL names no target: write iscsi://HOST/TARGET/LUN, or list the targets by stag iscsi ls")
	}
	if storage.HasSecret(url) {
		fmt.Fprintf(cmd.ErrOrStderr(), "stag: %s: warning: every user can read the secret in the URL: use LIBISCSI_CHAP_PASSWORD or --chap-file\n", commandName(cmd))
	}
	return nil
}

// commandName returns a command as it is typed after "stag".
func commandName(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// exactly accepts n arguments, none of them empty. what says which.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < n {
			return usageError{fmt.Errorf("%s: name %s: see %s --help", commandName(cmd), what, cmd.CommandPath())}
		}
		if len(args) > n {
			return usageError{fmt.Errorf("%s: unexpected argument %q: see %s --help", commandName(cmd), args[n], cmd.CommandPath())}
		}
		if slices.Contains(args, "") {
			return usageError{fmt.Errorf("%s: an argument is empty", commandName(cmd))}
		}
		return nil
	}
}

// printer is a result that has a text.
type printer interface{ Print(w io.Writer) error }

// show prints a result.
func (o *iscsiFlags) show(cmd *cobra.Command, w io.Writer, v printer) error {
	print := v.Print
	if o.json {
		print = func(w io.Writer) error { return writeJSON(w, v) }
	}
	if err := print(w); err != nil {
		return fmt.Errorf("%s: print the result: %w", commandName(cmd), err)
	}
	return nil
}

// start prepares a command of iscsi to run.
func (o *iscsiFlags) start(ctx context.Context) error {
	o.Log, o.Chosen = logger(ctx), os.Stderr
	if len(o.Interfaces) == 0 {
		return nil
	}
	return areUp(o.Interfaces)
}

// iscsiAdvice has the remedies for commands that take a URL.
var iscsiAdvice = []remedy{
	{loader.ErrNoRoute, ""}, // no remedy: the text of this error already says what to look at
	{rdma.ErrNoPort, "leave out -i to use the kernel's TCP"},
	{syscall.EADDRINUSE, "choose another --portal or --iser, or end what listens there"},
	{syscall.EACCES, "choose a --portal with a port of 1024 or more, or run as root"},
	{syscall.EADDRNOTAVAIL, "choose an address of this host for --portal"},
	{syscall.ECONNREFUSED, "start the target there, or write its port into the URL"},
	{syscall.EHOSTUNREACH, checkRoute},
	{syscall.ENETUNREACH, checkRoute},
	{syscall.ETIMEDOUT, noAnswer},
	{syscall.ECONNRESET, gone},
	{stream.ErrReset, gone},
}

// iscsiFailed adds the name of the command, and a remedy, to an error.
func iscsiFailed(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", commandName(cmd), advise(err, iscsiAdvice, "give a host name or an address in the URL"))
}
