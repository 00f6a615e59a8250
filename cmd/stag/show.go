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
		Short: "Show devices, flows, QPs, memory, queues and counters of running engines",
		Long: `Asks this user's engines on this host; with --all-users those of others, too,
into which root alone may look: who runs an engine is shown by uid, and what it
tells is its user's word. What is pinned and has no engine is shown to root, and
that it has none. The subjects, of whose names the beginning is enough, and what WHICH
selects of them:

  devices  ports of adapters, as rdma link has them; with -v as ibv_devinfo
           (a name)
  flows    connections that were taken over, as ss -tin has them, but for the
           congestion window, which is in octets; instead_of is the kernel's
           congestion control, where stag does not have it and goes on with
           another (an address, :port, address:port or id)
  qps      queue pairs, as rdma resource show has them; with -v what each has
           moved (a number)
  mrs      what is registered: STag, domain, place, length, rights (an STag)
  cqs      completion queues (a number)
  queues   AF_XDP queues and their sockets' counters (a device)
  stats    counters, as ethtool -S has them (a device); what each counts is in
           docs/counters.md

Sizes are octets, never rounded; times in text are milliseconds, as in ss. What is
in another network namespace than this one has netns with its name, a process in
it (pid:N), or its cookie. The JSON is an array of flat objects, each with pid,
uid, program and adapter, which are null where no engine runs it; the state of a
connection is in members that begin with tcp_, and a counter is one that is
called after its layer and name. With -w there is an object with time and rows in
each line.

Nothing to show is no error. An engine that does not answer within 2 seconds is
left out, and named on standard error; the exit code is 1 if -p asked for it.`,
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
	f.BoolVar(&o.AllUsers, "all-users", false, "also engines of other users, which tell what they like")
	f.StringVarP(&o.Interface, "interface", "i", "", "only what belongs to this interface; of mrs and cqs, to its adapters")
	f.BoolVarP(&o.All, "all", "a", false, "also counters that are 0, which JSON always has")
	f.Float64VarP(&seconds, "watch", "w", 0, "show again every so many seconds until Ctrl-C; stats then with rates")
	f.BoolVar(&o.JSON, "json", false, "print JSON; with -w one object per line")
	return cmd
}

// checkShow finds what is wrong with the command line, and fills in what it
// says in other units.
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
		return errFailed // who reads has seen enough; all has been said
	case cmd.Context().Err() != nil && err != nil:
		return errors.New("show: interrupted")
	case err != nil:
		return fmt.Errorf("show: %w", err)
	}
	return nil
}

// completeShow offers subjects, and interfaces where one selects.
func completeShow(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return show.Subjects, cobra.ShellCompDirectiveNoFileComp
	}
	if subject, err := show.Subject(args[0]); err == nil && len(args) == 1 && slices.Contains([]string{"devices", "queues", "stats"}, subject) {
		return completeInterface(cmd, nil, word)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeEngine offers processes that have an adapter.
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
