package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/internal/doctor"
)

func doctorCommand() *cobra.Command {
	var (
		o      doctor.Options
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "doctor [IFACE]",
		Short: "Check what this machine or an interface lacks for stag, and print how to fix it",
		Long: `Checks each requirement of stag: tries it, or reads what the kernel reports. Prints
the command that fixes each missing one. The command leaves nothing changed, and
does not disturb a stag that runs on the interface. A hint needs no action. A row is
unknown if it cannot be checked, for example without root: it says why and what to do.

The exit code is 1 if something that is required is missing, else 0.`,
		Annotations: manual(doctorManual),
		Example: `  stag doctor
  stag doctor -v eth1
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
	f.IntVar(&o.Engines, "queues", 0, "number of queues that will have an engine; 0 means all queues of the interface")
	f.IntVar(&o.Chunk, "chunk", 4096, "size of a chunk of the UMEM in octets, 2048 or 4096")
	f.BoolVar(&o.Generic, "generic", false, "check for generic mode instead of native")
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
		out := cmd.OutOrStdout()
		err = r.Print(out, doctor.Style{All: verbosity(cmd) > 0, Colour: coloured(out)})
	}
	if err == nil && !r.OK {
		return errFailed
	}
	return err
}

// coloured reports whether out is a terminal, and its user allows colours
// (no-color.org).
func coloured(out io.Writer) bool {
	f, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
