package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/show"
	"github.com/stag-rdma/stag/offload/control"
)

func showCommand() *cobra.Command {
	var (
		o       show.Options
		seconds float64
	)
	cmd := &cobra.Command{
		Use:   "show SUBJECT [WHICH]",
		Short: "Show devices, flows, QPs, memory, queues, counters, moves and iSCSI sessions of running engines",
		Long: `Asks the engines of this user on this host. With --all-users root also asks the
engines of other users. If a program is loaded but no engine runs, root sees the
pinned state. SUBJECT is one of these, or the beginning of one: devices (ports of
adapters), flows (connections that were taken over), qps (queue pairs), mrs
(registered memory), cqs (completion queues), srqs (shared receive queues), queues
(AF_XDP queues and their sockets), stats (counters), iscsi (sessions), luns (logical
units), ports (moves of connections), clients (programs that use a daemon). WHICH
selects a device, address, :port, number, id, STag, program or part of an iSCSI name.`,
		Annotations: manual(showManual),
		Example: `  stag show devices -v
  stag show flows :7174
  stag show qps -p 4711 --json
  stag show stats eth1 -w 1`,
		ValidArgsFunction: completeShow,
		Args: func(_ *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return usageError{fmt.Errorf("show: choose one of %s: see stag show --help", strings.Join(show.Subjects, ", "))}
			case len(args) > 2:
				return usageError{fmt.Errorf("show: unexpected argument %q: see stag show --help", args[2])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkShow(cmd, &o, args, seconds); err != nil {
				return usageError{fmt.Errorf("show: %w", err)}
			}
			return runShow(cmd, o)
		},
	}
	f := cmd.Flags()
	f.IntVarP(&o.PID, "pid", "p", 0, "only engines of this process")
	f.BoolVar(&o.AllUsers, "all-users", false, "also ask engines of other users, whose reports cannot be verified")
	f.StringVarP(&o.Interface, "interface", "i", "", "only rows of this interface; for mrs, cqs, srqs and luns, rows of the adapters that use it")
	f.BoolVarP(&o.All, "all", "a", false, "also print counters that are 0; JSON always has them")
	f.Float64VarP(&seconds, "watch", "w", 0, "print again every `SECONDS` until Ctrl-C; stats then have rates")
	f.BoolVar(&o.JSON, "json", false, "print JSON; with -w one object per line")
	return cmd
}

// checkShow finds mistakes on the command line, and fills in options from flags with
// other units.
func checkShow(cmd *cobra.Command, o *show.Options, args []string, seconds float64) error {
	switch changed := cmd.Flags().Changed; {
	case changed("watch") && !(seconds >= show.Shortest.Seconds() && seconds <= math.MaxInt32):
		return fmt.Errorf("-w %v: choose %v seconds or more", seconds, show.Shortest.Seconds())
	case changed("pid") && o.PID < 1:
		return fmt.Errorf("-p %d: give the number of a process", o.PID)
	case changed("interface") && o.Interface == "":
		return errors.New("-i: give the name of an interface")
	case len(args) > 1 && args[1] == "":
		return errors.New("an argument is empty")
	}
	o.Watch = time.Duration(seconds * float64(time.Second))
	if len(args) > 1 {
		o.Match = args[1]
	}
	var err error
	if o.Subject, err = show.Subject(args[0]); err != nil {
		return err
	}
	return o.Check()
}

func runShow(cmd *cobra.Command, o show.Options) error {
	o.Detail = verbosity(cmd) > 0
	o.Out, o.Notes, o.Log = os.Stdout, os.Stderr, logger(cmd.Context())
	err := show.Run(cmd.Context(), o)
	switch {
	case errors.Is(err, syscall.EPIPE), errors.Is(err, show.ErrMissing):
		return errFailed // the reader has closed the output; everything is printed
	case cmd.Context().Err() != nil && err != nil:
		return errors.New("show: interrupted")
	case err != nil:
		return fmt.Errorf("show: %w", err)
	}
	return nil
}

// completeShow offers the subjects. After a subject whose rows an interface can select,
// it offers the interfaces.
func completeShow(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return show.Subjects, cobra.ShellCompDirectiveNoFileComp
	}
	if subject, err := show.Subject(args[0]); err == nil && len(args) == 1 && slices.Contains([]string{"devices", "ports", "queues", "stats"}, subject) {
		return completeInterface(cmd, nil, word)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeEngine offers the processes that have an adapter.
func completeEngine(*cobra.Command, []string, string) (pids []string, _ cobra.ShellCompDirective) {
	list, err := control.Engines(0)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	for _, e := range list {
		pids = append(pids, strconv.Itoa(e.PID))
	}
	return pids, cobra.ShellCompDirectiveNoFileComp
}
