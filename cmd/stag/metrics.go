package main

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/metrics"
)

// metricsAddress is the default address. Prometheus' list of exporters has assigned all
// ports from 9100 to 9999; this port is not among them.
const metricsAddress = "127.0.0.1:17174"

func metricsCommand() *cobra.Command {
	var (
		o      metrics.Options
		listen string
		once   bool
	)
	cmd := &cobra.Command{
		Use:   "metrics",
		Short: "Export the counters of engines to Prometheus",
		Long: `Answers Prometheus at ` + metrics.Path + ` until Ctrl-C. Each scrape asks every engine of
this user on this host. Root also reads programs that were loaded to stay and have
no engine; with --all-users root also asks the engines of other users.

With --once the command prints the metrics and ends. Use it with node_exporter's
textfile collector.`,
		Annotations: manual(metricsManual),
		Example: `  stag metrics
  stag metrics --listen 192.0.2.1:17174 --per-qp
  stag metrics --once > /var/lib/node_exporter/stag.prom`,
		Args:              atMost(0),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkListen(listen); err != nil {
				return err
			}
			if once && cmd.Flags().Changed("listen") {
				return usageError{fmt.Errorf("metrics: --once and --listen: choose one")}
			}
			o.Log = logger(cmd.Context())
			return runMetrics(cmd, o, listen, once)
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", metricsAddress, "address and port to listen at; without an address, all addresses of this host")
	f.BoolVar(&o.AllUsers, "all-users", false, "also ask engines of other users; their series carry the user's uid")
	f.BoolVar(&o.PerQP, "per-qp", false, "also export series for each queue pair; there may be many")
	f.BoolVar(&once, "once", false, "print the metrics once and end")
	return cmd
}

// checkListen finds mistakes in the syntax of the address.
func checkListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return usageError{fmt.Errorf("metrics: --listen %q: give ADDRESS:PORT, as in %s or [::1]:17174", address, metricsAddress)}
	}
	return nil
}

func runMetrics(cmd *cobra.Command, o metrics.Options, listen string, once bool) error {
	x, err := metrics.New(o)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	if once {
		if err := x.Write(cmd.Context(), cmd.OutOrStdout()); err != nil {
			return fmt.Errorf("metrics: %w", err)
		}
		return nil
	}
	l, err := metrics.Listen(cmd.Context(), listen)
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	if os.Geteuid() != 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "stag: metrics: only this user's engines are exported: run as root to export root's engines and programs that are loaded to stay, and as root with --all-users to export the engines of all users")
	}
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "Metrics at http://%s%s until Ctrl-C.\n", l.Addr(), metrics.Path); err != nil {
		l.Close()
		return fmt.Errorf("metrics: %w", err)
	}
	if err := x.Serve(cmd.Context(), l); err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	return nil
}
