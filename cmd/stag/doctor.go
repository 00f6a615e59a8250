package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/doctor"
)

func doctorCommand() *cobra.Command {
	var (
		o      doctor.Options
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "doctor [IFACE]",
		Short: "Say what this machine, or an interface, lacks for stag, and the command that fixes it",
		Long: `Tries everything that stag needs, one requirement a line, and says how to put
right what is missing. Nothing stays changed, and a stag that runs on the
interface is not disturbed.

Exits with 0 when everything that is required is there, else with 1. A hint
works as it is.`,
		Example: `  stag doctor
  stag doctor eth1 --queues 2
  stag doctor eth1 --generic --json`,
		Args:              atMost(1),
		ValidArgsFunction: completeOneInterface,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkDoctor(o); err != nil {
				return err
			}
			if len(args) == 1 {
				o.Link = args[0]
			}
			return runDoctor(cmd, o, asJSON)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.Engines, "queues", 0, "queues that will have an engine; 0: all that the interface has")
	f.IntVar(&o.Chunk, "chunk", 4096, "octets of a chunk of the ring, 2048 or 4096")
	f.BoolVar(&o.Generic, "generic", false, "for generic mode instead of native")
	f.BoolVar(&asJSON, "json", false, "print the report as JSON")
	return cmd
}

func checkDoctor(o doctor.Options) error {
	switch {
	case o.Engines < 0:
		return usageError{fmt.Errorf("doctor: --queues %d: choose 1 or more", o.Engines)}
	case o.Chunk != 2048 && o.Chunk != 4096:
		return usageError{fmt.Errorf("doctor: --chunk %d: choose 2048 or 4096", o.Chunk)}
	}
	return nil
}

func runDoctor(cmd *cobra.Command, o doctor.Options, asJSON bool) error {
	r, err := doctor.Run(o)
	if err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	if asJSON {
		err = writeJSON(cmd.OutOrStdout(), r)
	} else {
		err = r.Print(cmd.OutOrStdout())
	}
	if err == nil && !r.OK {
		return errFailed
	}
	return err
}
