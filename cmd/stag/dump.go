package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/dump"
)

// dumpFlags are the flags of stag dump whose values cannot go into dump.Options before
// they are parsed.
type dumpFlags struct {
	flow  string
	kinds []string
}

func dumpCommand() *cobra.Command {
	var (
		o dump.Options
		p dumpFlags
	)
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Capture the packets of engines, which tcpdump cannot see",
		Long: `Captures packets of connections that were taken over, in both directions, as the
engines see them. Prints a line for each packet, with the RDMA operation or the
iSCSI PDU if the segment begins with one. With -w the command writes pcapng for
Wireshark.

Captures on the engines of this user on this host, until Ctrl-C. With --all-users
root also captures on the engines of other users. Packets that do not fit into the
buffers are lost and counted; an engine never waits for a capture.`,
		Annotations: manual(dumpManual),
		Example: `  stag dump -i eth1
  stag dump -w trace.pcapng --qp 7
  stag dump -w - | tshark -r -
  stag dump --kind terminate --json`,
		Args: atMost(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkDump(cmd, &o, p); err != nil {
				return usageError{fmt.Errorf("dump: %w", err)}
			}
			return runDump(cmd, o)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&o.Device, "interface", "i", "", "only packets of this interface")
	f.IntVarP(&o.PID, "pid", "p", 0, "only engines of this process")
	f.BoolVar(&o.All, "all-users", false, "also ask engines of other users, whose reports cannot be verified")
	f.StringVarP(&o.File, "write", "w", "", "write pcapng to this file; - is standard output")
	f.IntVarP(&o.SnapLen, "snaplen", "s", dump.DefaultSnapLen, "octets of each packet that -w writes; 0 means all")
	f.BoolVar(&o.Bare, "bare", false, "write only captured packets, not the two made-up packets that show the MPA handshake")
	f.Uint64VarP(&o.Count, "count", "c", 0, "end after this many packets (default no limit)")
	f.StringVar(&p.flow, "flow", "", "only packets of the flow with this id; stag show flows prints the ids")
	f.Uint32Var(&o.QP, "qp", 0, "only packets of the QP with this number; the QP must be connected")
	f.StringSliceVar(&p.kinds, "kind", nil, "only packets of these kinds: "+dump.KindNames())
	f.BoolVar(&o.JSON, "json", false, "print a JSON object for each packet")
	return cmd
}

// checkDump finds mistakes on the command line, and fills in the options that p names.
func checkDump(cmd *cobra.Command, o *dump.Options, p dumpFlags) (err error) {
	changed := cmd.Flags().Changed
	switch {
	case changed("interface") && o.Device == "":
		return errors.New("-i: give the name of an interface")
	case changed("pid") && o.PID < 1:
		return fmt.Errorf("-p %d: give the number of a process", o.PID)
	case changed("write") && o.File == "":
		return errors.New("-w: give the name of a file, or - for standard output")
	case changed("write") && o.JSON:
		return errors.New("--json and -w: choose one: -w writes pcapng")
	case changed("snaplen") && !changed("write"):
		return errors.New("-s has no meaning without -w: give -w too, or leave -s out")
	case changed("bare") && !changed("write"):
		return errors.New("--bare has no meaning without -w: give -w too, or leave --bare out")
	case o.SnapLen < 0 || o.SnapLen > dump.DefaultSnapLen:
		return fmt.Errorf("-s %d: choose 1 to %d octets, or 0 for all", o.SnapLen, dump.DefaultSnapLen)
	case changed("count") && o.Count == 0:
		return errors.New("-c 0: choose 1 or more, or leave it out to go on until Ctrl-C")
	case changed("qp") && o.QP == 0:
		return errors.New("--qp 0: give the number of a QP")
	case o.File == "-" && dump.IsTerminal(os.Stdout):
		return errors.New("-w - would write to the terminal, which cannot show it: pipe it on, or name a file")
	}
	if o.SnapLen == 0 {
		o.SnapLen = dump.DefaultSnapLen
	}
	if changed("flow") {
		id, err := strconv.ParseUint(p.flow, 0, 32)
		if err != nil || id == 0 {
			return fmt.Errorf("--flow %q: give the id of a flow, as stag show flows has it", p.flow)
		}
		o.Flow = uint32(id)
	}
	if changed("kind") && len(p.kinds) == 0 {
		return fmt.Errorf("--kind: choose of %s", dump.KindNames())
	}
	if o.Kinds, err = dump.ParseKinds(p.kinds); err != nil {
		return fmt.Errorf("--kind: %w", err)
	}
	return nil
}

func runDump(cmd *cobra.Command, o dump.Options) error {
	ctx := cmd.Context()
	o.Out, o.Notes, o.Log = os.Stdout, os.Stderr, logger(ctx)
	err := dump.Run(ctx, o)
	switch {
	case errors.Is(err, dump.ErrEngineGone):
		return errFailed // everything has been printed
	case ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		return nil // an interrupt came before the dump began
	case err != nil:
		return fmt.Errorf("dump: %w", err)
	}
	return nil
}
