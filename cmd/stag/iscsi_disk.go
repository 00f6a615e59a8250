package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/storage"
	"github.com/stag-rdma/stag/iscsi"
)

// question makes a command that asks the target of a URL and prints the answer. ask may
// return a part of the answer beside an error. disk: the URL must name a target.
func question(cmd *cobra.Command, o *iscsiFlags, disk bool, ask func(ctx context.Context, url string) (printer, error)) *cobra.Command {
	cmd.Args = exactly(1, "the URL")
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := o.check()
		if err == nil {
			err = checkURL(cmd, args[0], disk)
		}
		if err == nil {
			err = onePath(args[0])
		}
		if err != nil {
			return usageError{fmt.Errorf("%s: %w", commandName(cmd), err)}
		}
		if err := o.start(cmd.Context()); err != nil {
			return iscsiFailed(cmd, err)
		}
		answer, err := ask(cmd.Context(), args[0])
		if answer != nil {
			if err := o.show(cmd, cmd.OutOrStdout(), answer); err != nil {
				return err
			}
		}
		return iscsiFailed(cmd, err)
	}
	o.initiator(cmd.Flags())
	return cmd
}

// onePath refuses a URL with several paths: an answer is that of one session.
func onePath(url string) error {
	u, err := iscsi.ParseURL(url)
	if err == nil && len(u.Paths) != 0 {
		err = errors.New("the answer is that of one path: leave out path=, and ask each portal by itself")
	}
	return err
}

func iscsiDiscover() *cobra.Command {
	var o iscsiFlags
	return question(&cobra.Command{
		Use:   "discover URL",
		Short: "Ask a portal for its targets",
		Long: `Asks a portal for its targets by a discovery session, and prints a line for each
portal of each target, as iscsi-ls does.`,
		Example: `  stag iscsi discover iscsi://192.0.2.1
  stag iscsi discover iscsi://[2001:db8::1]:3260 --json`,
	}, &o, false, func(ctx context.Context, url string) (printer, error) {
		list, err := storage.Discover(ctx, o.Options, url)
		if err != nil {
			return nil, err
		}
		return list, nil
	})
}

func iscsiList() *cobra.Command {
	var o iscsiFlags
	return question(&cobra.Command{
		Use:   "ls URL",
		Short: "List the targets of a portal, and their logical units",
		Long: `Lists the logical units of all targets of a portal, or of the target of the URL, as
iscsi-ls -s does. If a target or a unit does not answer, the command lists the
others, prints the error, and exits with 1.`,
		Example: `  stag iscsi ls iscsi://192.0.2.1
  stag iscsi ls iscsi://192.0.2.1/iqn.2026-01.test.stag:t1 --json`,
	}, &o, false, func(ctx context.Context, url string) (printer, error) {
		list, err := storage.List(ctx, o.Options, url)
		if list == nil {
			return nil, err
		}
		return list, err
	})
}

func iscsiInquiry() *cobra.Command {
	var (
		o    iscsiFlags
		page string
	)
	cmd := question(&cobra.Command{
		Use:   "inq URL",
		Short: "Ask a logical unit what it is",
		Long: `Prints the standard INQUIRY data of a logical unit, or a page of its vital product
data. The names of pages are supported, serial, id, extended, limits,
characteristics and provisioning. A page that the command does not know is printed
in hexadecimal.`,
		Example: `  stag iscsi inq iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1
  stag iscsi inq iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1 --vpd limits
  stag iscsi inq iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1 --vpd 0x83 --json`,
	}, &o, true, func(ctx context.Context, url string) (printer, error) {
		ask := storage.Inquire
		if page != "" {
			code, err := storage.Page(page)
			if err != nil {
				return nil, usageError{fmt.Errorf("--vpd: %w", err)}
			}
			ask = func(ctx context.Context, o storage.Options, url string) (storage.Answer, error) {
				return storage.VPD(ctx, o, url, code)
			}
		}
		return answered(ask(ctx, o.Options, url))
	})
	cmd.Flags().StringVar(&page, "vpd", "", "page of vital product data: a number (131, 0x83 or 83h), or a name")
	return cmd
}

func iscsiCapacity() *cobra.Command {
	var o iscsiFlags
	return question(&cobra.Command{
		Use:   "readcap URL",
		Short: "Ask a disk for its size",
		Long: `Prints what a disk answers to READ CAPACITY(16), or to READ CAPACITY(10) if it
knows only that. Sizes are octets.`,
		Example: `  stag iscsi readcap iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1
  stag iscsi readcap iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1 --json`,
	}, &o, true, func(ctx context.Context, url string) (printer, error) {
		return answered(storage.Capacity(ctx, o.Options, url))
	})
}

// answered returns no answer if there is an error.
func answered(a storage.Answer, err error) (printer, error) {
	if err != nil {
		return nil, err
	}
	return a, nil
}
