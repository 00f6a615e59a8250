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

// dumpFlags are what the flags of stag dump say beside the options.
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
		Short: "Capture what engines receive and send, which tcpdump cannot see",
		Long: `Packets of connections that were taken over pass the kernel by, and tcpdump with
it. This shows both directions of them as engines see them: received ones as
they arrived, sent ones as they go on the wire, retransmissions and checksums
included. Without -w it prints a line for each packet, with the operation where
the segment begins with an FPDU; with -w it writes pcapng for Wireshark, with
direction, queue, flow and QP as a comment, and the queue and the direction as
fields. Packets over the kernel port are the kernel's: use tcpdump for them.

Wireshark finds RDMA only behind the MPA Request and Reply, which the kernels
exchange before a connection is taken over. So -w writes, in front of the first
packet of each connection, two that stand for them; their comments say so, they
do not count, and --bare leaves them out, as they are for connections with
Markers. Short Sends are taken for RPC: tshark --disable-protocol rpcordma.

The time of a packet is when the engine took it from the interface, or had it
ready to be sent: packets that came while it slept or did something else have
later times than on the wire, by as long as it took to come to them.

It captures on this user's engines of this host; with --all-users also on those
of others, into which root alone may look; on those that run now, not on any that
begin later. An engine that ends is told on standard error, and the others go on. Payload is shown to
whoever may look: files are made for their owner alone.

Engines wait for nobody. Each queue keeps up to 8 MiB for a capture (64 MiB for
an interface); what does not fit because dump, or who reads its output, is slow,
is lost and counted, in the last line and in the file. At most 8 captures at a
time look at one engine. Packets of several engines, or interfaces, come in the
order in which they were handed over.

The kinds for --kind: write, read-request, read-response, send and terminate are
judged by the header of the FPDU that a segment begins with, others in the same
segment are not looked at; ack is a segment without payload, also a FIN or RST;
data is payload that begins with no FPDU, as when FPDUs are cut; icmp is a
router's word that a packet was too big; other is what cannot be taken apart.

It goes on until Ctrl-C, for -c packets, until no engine is left or nobody reads
its output, and then says how many packets it captured and lost. It exits with 1
when an engine died, or when the output could not be written: what is in the
file by then is whole.`,
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
	f.BoolVar(&o.All, "all-users", false, "also engines of other users, which tell what they like")
	f.StringVarP(&o.File, "write", "w", "", "write pcapng to this file; -: to standard output")
	f.IntVarP(&o.SnapLen, "snaplen", "s", dump.DefaultSnapLen, "octets of each packet that -w writes; 0: all")
	f.BoolVar(&o.Bare, "bare", false, "write nothing but what was captured: see above")
	f.Uint64VarP(&o.Count, "count", "c", 0, "end after so many packets (default without end)")
	f.StringVar(&p.flow, "flow", "", "only packets of this flow: an id of stag show flows")
	f.Uint32Var(&o.QP, "qp", 0, "only packets of the QP with this number, which must be connected")
	f.StringSliceVar(&p.kinds, "kind", nil, "only packets of these kinds: "+dump.KindNames())
	f.BoolVar(&o.JSON, "json", false, "print a JSON object for each packet")
	return cmd
}

// checkDump finds what is wrong with the command line, and fills in what it says
// in other words.
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
		return errors.New("--json is for what is printed, -w writes pcapng: choose one")
	case changed("snaplen") && !changed("write"):
		return errors.New("-s is for what -w writes: give -w, too, or leave it out")
	case changed("bare") && !changed("write"):
		return errors.New("--bare is for what -w writes: give -w, too, or leave it out")
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
		return errFailed // all has been said
	case ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		return nil // interrupted before it had begun
	case err != nil:
		return fmt.Errorf("dump: %w", err)
	}
	return nil
}
