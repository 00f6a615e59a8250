package perf

import (
	"fmt"
	"strings"

	"github.com/stag-rdma/stag/rdma"
)

// rule is perftest's separator line.
var rule = strings.Repeat("-", 87)

var titles = map[Test]string{
	WriteBW: "RDMA_Write BW Test", ReadBW: "RDMA_Read BW Test", SendBW: "Send BW Test",
	WriteLat: "RDMA_Write Latency Test", ReadLat: "RDMA_Read Latency Test", SendLat: "Send Latency Test",
}

func (s *runner) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(s.Out, format, args...)
	return err
}

func (s *runner) printWaiting(port uint16) error {
	line := fmt.Sprintf("* Waiting for client to connect to port %d... *", port)
	stars := strings.Repeat("*", len(line))
	return s.printf("\n%s\n%s\n%s\n", stars, line, stars)
}

// title returns the title that perftest prints for the test.
func (o Options) title() string {
	title := titles[o.Test]
	if o.List > 1 {
		title = strings.Replace(title, "BW", "Post List BW", 1)
	}
	if o.Both {
		title = strings.Replace(title, " ", " Bidirectional ", 1)
	}
	return title
}

// printHeader prints what is measured, where, and the names of the columns.
func (s *runner) printHeader() error {
	i := &s.result.Info
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n                    %s\n", rule, s.title())
	if s.Events {
		fmt.Fprintf(&b, " Test with events.\n")
	}
	fmt.Fprintf(&b, " Dual-port       : OFF\t\tDevice         : %s\n", i.Device)
	fmt.Fprintf(&b, " Number of qps   : %d\t\tTransport type : IW\n", i.QPs)
	fmt.Fprintf(&b, " Connection type : RC\t\tUsing SRQ      : OFF\n")
	s.writeDepths(&b)
	if i.MTU > 0 {
		fmt.Fprintf(&b, " Mtu             : %d[B]\n", i.MTU)
	}
	fmt.Fprintf(&b, " Link type       : Ethernet\n")
	fmt.Fprintf(&b, " GID index       : 0\n")
	if s.Test.op() == rdma.WRRead {
		fmt.Fprintf(&b, " Outstand reads  : %d\n", i.Reads)
	} else {
		fmt.Fprintf(&b, " Max inline data : %d[B]\n", i.Inline)
	}
	fmt.Fprintf(&b, " rdma_cm QPs\t : ON\n")
	fmt.Fprintf(&b, " Data ex. method : rdma_cm\n")
	fmt.Fprintf(&b, " Path            : %s\n", i.Path)
	fmt.Fprintf(&b, " CRC             : %s\n", onOff(i.CRC))
	if i.Perftest != "" {
		fmt.Fprintf(&b, " Peer            : perftest %s\n", i.Perftest)
	}
	if i.Verified {
		fmt.Fprintf(&b, " Octets compared : ON\n")
	}
	fmt.Fprintf(&b, "%s\n", rule)
	for _, a := range i.Addresses {
		fmt.Fprintf(&b, " local address: QPN 0x%06x %s\n", a.LocalQPN, a.Local)
		fmt.Fprintf(&b, " remote address: QPN 0x%06x %s\n", a.RemoteQPN, a.Remote)
	}
	fmt.Fprintf(&b, "%s\n", rule)
	if !s.Unsorted { // with Unsorted the columns follow the unsorted latencies
		b.WriteString(s.columns())
	}
	return s.printf("%s", b.String())
}

// writeDepths writes the depths of the queues that this end uses.
func (s *runner) writeDepths(b *strings.Builder) {
	i := &s.result.Info
	if s.drives() {
		fmt.Fprintf(b, " TX depth        : %d\n", i.TxDepth)
	}
	if i.List > 1 {
		fmt.Fprintf(b, " Post List       : %d\n", i.List)
	}
	if i.RxDepth > 0 && (s.serves() || s.Both) {
		fmt.Fprintf(b, " RX depth        : %d\n", i.RxDepth)
	}
	if !s.Test.Latency() {
		fmt.Fprintf(b, " CQ Moderation   : %d\n", i.Moderated)
	}
}

func onOff(on bool) string {
	if on {
		return "ON"
	}
	return "OFF"
}

// columns returns the names of the columns. A server of Reads has no figures, because it gets no completions for Reads.
func (s *runner) columns() string {
	switch {
	case s.Test == ReadLat && s.serves():
		return ""
	case s.Test.Latency():
		return " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\n"
	case s.Gbits:
		return " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
	}
	return " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
}

// unit returns the number of printed units in one Gb/s. The text says MB for MiB, as perftest does.
func (o Options) unit() float64 {
	if o.Gbits {
		return 1
	}
	return 1e9 / 8 / (1 << 20)
}

// printBandwidth prints a row. A rate below 0.1 Gb/s is printed with more digits.
func (s *runner) printBandwidth(r Bandwidth) error {
	digits := 2
	if s.Gbits && r.Gbps < 0.1 {
		digits = 6
	}
	return s.printf(" %-10d %-11d    %-15.*f    %-18.*f   %.6f\n",
		r.Size, r.Iterations, digits, r.PeakGbps*s.unit(), digits, r.Gbps*s.unit(), r.Mpps)
}

// printUnsorted prints all times, and the columns again.
func (s *runner) printUnsorted(r Latency) error {
	var b strings.Builder
	b.WriteString("#, usec\n")
	for i, us := range r.Unsorted {
		fmt.Fprintf(&b, "%d, %g\n", i+1, us)
	}
	return s.printf("%s%s\n%s", b.String(), rule, s.columns())
}

func (s *runner) printLatency(r Latency) error {
	if s.Unsorted {
		if err := s.printUnsorted(r); err != nil {
			return err
		}
	}
	err := s.printf(" %-6d %-11d    %-11.2f    %-11.2f  %-15.2f    %-11.2f    %-13.2f   %-20.2f   %.2f\n",
		r.Size, r.Iterations, r.Min, r.Max, r.Typical, r.Average, r.Deviation, r.P99, r.P999)
	if err != nil || !s.Histogram {
		return err
	}
	if err := s.printf("\n   percentile          usec         count\n"); err != nil {
		return err
	}
	for _, step := range r.Histogram {
		if err := s.printf("   %10.4f    %10.2f    %10d\n", step.Percentile, step.Usec, step.Count); err != nil {
			return err
		}
	}
	return s.printf("\n")
}

func (s *runner) printEnd() error { return s.printf("%s\n", rule) }
