package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/successor"
)

func upgradeCommand() *cobra.Command {
	var (
		o      successor.Options
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "upgrade PID | --device IFACE",
		Short: "Replace a running process by the program that is installed now, without a reset",
		Long: `Asks the process PID, or the one whose adapter has the port IFACE, to start its
program once more and to hand all connections to the new process. The peers notice
a pause. Prints how long it was. If anything fails before the new process has the
connections, the old one runs them on, and the exit code is 1. Of stag's commands,
stag echo can be upgraded.`,
		Annotations: manual(upgradeManual),
		Example: `  stag upgrade 1234
  stag upgrade --device eth1`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (len(args) == 1) == (o.Device != "") {
				return usageError{errors.New("upgrade: name the process or a port of it: see stag upgrade --help")}
			}
			if len(args) == 1 {
				pid, err := strconv.Atoi(args[0])
				if err != nil || pid < 1 {
					return usageError{fmt.Errorf("upgrade: %q is no number of a process", args[0])}
				}
				o.PID = pid
			}
			o.Progress = os.Stderr
			return runUpgrade(cmd, o, asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.Device, "device", "d", "", "the process whose adapter has this port")
	f.BoolVar(&o.AllUsers, "all-users", false, "also look at processes of other users")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return cmd
}

func runUpgrade(cmd *cobra.Command, o successor.Options, asJSON bool) error {
	r, err := successor.Run(cmd.Context(), o)
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}
	if asJSON {
		err = writeJSON(cmd.OutOrStdout(), r)
	} else {
		err = r.Print(cmd.OutOrStdout())
	}
	if err == nil && len(r.Lost)+len(r.Warnings) != 0 {
		err = errFailed
	}
	return err
}
