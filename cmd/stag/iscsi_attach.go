package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stag-rdma/stag/cmd/stag/internal/storage"
	"github.com/stag-rdma/stag/iscsi/attach"
)

// localFlags are the flags of commands that make a disk available on this host.
type localFlags struct {
	iscsiFlags
	storage.LocalOptions
}

const recoveryTime = 2 * time.Minute

func (o *localFlags) flags(f *pflag.FlagSet) {
	o.initiator(f)
	f.BoolVar(&o.ReadOnly, "read-only", false, "refuse writes")
	f.DurationVar(&o.Recovery, "recovery", recoveryTime, "how long requests wait for a target that is gone, before they fail")
}

// check finds mistakes on the command line.
func (o *localFlags) check(cmd *cobra.Command, url string) error {
	if err := o.iscsiFlags.check(); err != nil {
		return err
	}
	if o.Recovery <= 0 {
		return fmt.Errorf("--recovery %v: choose more than 0", o.Recovery)
	}
	return checkURL(cmd, url, true)
}

// options returns what the work needs.
func (o *localFlags) options(cmd *cobra.Command, url string) storage.LocalOptions {
	l := o.LocalOptions
	l.Options, l.URL = o.iscsiFlags.Options, url
	l.Notice = func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "stag: %s: %s\n", commandName(cmd), text) }
	return l
}

func iscsiNBD() *cobra.Command {
	var (
		o      localFlags
		socket string
		name   string
	)
	cmd := &cobra.Command{
		Use:   "nbd URL",
		Short: "Export a disk to NBD clients of this host",
		Long: `Serves a disk at a Unix socket by the NBD protocol until Ctrl-C, for programs such as
qemu, nbdcopy and nbd-client. Only this user may connect.`,
		Annotations: manual(iscsiLocalManual),
		Example: `  stag iscsi nbd iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1 --socket /run/disk.sock
  qemu-img info 'nbd+unix:///?socket=/run/disk.sock'`,
		Args:              exactly(1, "the URL"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := o.check(cmd, args[0])
			if err == nil && socket == "" {
				err = errors.New("name the socket: --socket PATH")
			}
			if err != nil {
				return usageError{fmt.Errorf("%s: %w", commandName(cmd), err)}
			}
			if err := o.start(cmd.Context()); err != nil {
				return iscsiFailed(cmd, err)
			}
			x := storage.ExportOptions{LocalOptions: o.options(cmd, args[0]), Socket: socket, Name: name}
			return iscsiFailed(cmd, storage.Export(cmd.Context(), x, func(e storage.Exported) error {
				return o.show(cmd, cmd.OutOrStdout(), e)
			}))
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().StringVar(&socket, "socket", "", "path of the Unix socket")
	cmd.Flags().StringVar(&name, "export", "", "name of the export (default the empty name)")
	return cmd
}

func iscsiAttach() *cobra.Command {
	var (
		o      localFlags
		driver string
	)
	cmd := &cobra.Command{
		Use:   "attach URL",
		Short: "Make a disk a block device of this host",
		Long: `Makes a disk the block device /dev/ublkbN if the kernel has ublk, and else /dev/nbdN,
until Ctrl-C or stag iscsi detach. mkfs, mount and fio work on the device. It ends
when nobody uses it: unmount it first. It takes root.`,
		Annotations: manual(iscsiLocalManual),
		Example: `  stag iscsi attach iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1
  stag iscsi detach /dev/ublkb0`,
		Args:              exactly(1, "the URL"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := o.check(cmd, args[0])
			if err == nil && driver != "" && !attach.Known(driver) {
				err = fmt.Errorf("--driver %q: choose ublk or nbd", driver)
			}
			if err != nil {
				return usageError{fmt.Errorf("%s: %w", commandName(cmd), err)}
			}
			if err := o.start(cmd.Context()); err != nil {
				return iscsiFailed(cmd, err)
			}
			x := storage.AttachOptions{LocalOptions: o.options(cmd, args[0]), Driver: driver, Force: secondSignal(cmd.Context())}
			return attachFailed(cmd, storage.Attach(cmd.Context(), x, func(a storage.Attached) error {
				return o.show(cmd, cmd.OutOrStdout(), a)
			}))
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().StringVar(&driver, "driver", "", "ublk or nbd (default what the kernel has, ublk first)")
	return cmd
}

// secondSignal returns a channel that is closed by a signal after the one that has ended
// ctx.
func secondSignal(ctx context.Context) <-chan struct{} {
	second := make(chan struct{})
	context.AfterFunc(ctx, func() {
		again, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		<-again.Done()
		close(second)
	})
	return second
}

func iscsiDetach() *cobra.Command {
	var all, force, asJSON bool
	cmd := &cobra.Command{
		Use:   "detach DEVICE|URL",
		Short: "End a block device of stag iscsi attach",
		Long: `Ends the block device of a name or a URL, or with --all every one: what the kernel
has cached is written, the device disappears, and its stag iscsi attach logs out and
ends. A device in use ends only with --force, and then loses what was not written.`,
		Example: `  stag iscsi detach /dev/ublkb0
  stag iscsi detach iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1
  stag iscsi detach --all`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args: func(cmd *cobra.Command, args []string) error {
			if all {
				return exactly(0, "")(cmd, args)
			}
			return exactly(1, "the device or the URL, or give --all")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			what := ""
			if !all {
				what = args[0]
			}
			done, err := storage.Detach(cmd.Context(), what, force)
			o := iscsiFlags{json: asJSON}
			if err == nil || len(done.Devices) != 0 {
				if err := o.show(cmd, cmd.OutOrStdout(), done); err != nil {
					return err
				}
			}
			return attachFailed(cmd, err)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&all, "all", false, "end every device")
	f.BoolVar(&force, "force", false, "end the device though it is in use")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

// attachAdvice has the remedies for block devices.
var attachAdvice = append([]remedy{
	{attach.ErrNoDriver, "install a kernel with one of them, or use stag iscsi nbd, which needs none"},
	{attach.ErrInUse, "unmount it first, or choose --force"},
}, iscsiAdvice...)

// attachFailed adds the name of the command, and a remedy, to an error.
func attachFailed(cmd *cobra.Command, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s: %w: run as root", commandName(cmd), err)
	}
	return fmt.Errorf("%s: %w", commandName(cmd), advise(err, attachAdvice, "give a host name or an address in the URL"))
}
