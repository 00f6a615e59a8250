package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// These are the figures of flows that share a bottleneck. A fair share is the mean
// throughput of all flows.
const (
	StagShare   Figure = "stag_share"   // mean of stag's flows, in fair shares
	KernelShare Figure = "kernel_share" // mean of the kernel's flows, in fair shares
	LeastShare  Figure = "least_share"  // the slowest flow of both stacks, in fair shares
	MostShare   Figure = "most_share"
	TotalMbps   Figure = "total_mbps" // payload of all flows, 10^6 bits per second
)

// fairFlows is the number of connections of each stack through the bottleneck.
const fairFlows = 4

// fairLonger is how many times longer a contest takes than a stream of other tables. At
// a bottleneck with a queue of 50 ms, a congestion window has a period of seconds.
const fairLonger = 100

// bottleneck has a queue of 50 ms. The queue is the whole round-trip time.
var bottleneck = pair.Router{Rate: 200e6, Queue: 200e6 / 8 / 20}

func fairnessTable(o Options) *Table {
	t := &Table{
		Name:  "fairness",
		Title: "Fairness: 4 flows of stag and 4 of the kernel through one bottleneck of 200 Mb/s, queue 50 ms",
		About: fmt.Sprintf(`All leave one host through one interface, and all arrive at plain kernel sockets
behind a router; each measurement takes %d times as long as those of other
tables. In parts of what every flow had if all had the same: the mean of each
side, and the flows with the least and the most. Only with --full, or when named.`, fairLonger),
		Columns: []Column{{StagShare, "stag", 2, false}, {KernelShare, "kernel", 2, false},
			{LeastShare, "least", 2, false}, {MostShare, "most", 2, false}, {TotalMbps, "Mb/s", 1, false}},
	}
	if !o.Full && !slices.Contains(o.Tables, t.Name) {
		return t
	}
	for _, control := range []string{"cubic", "reno"} {
		t.Rows = append(t.Rows, &Row{
			Case: Case{Name: control, MTU: 1500, Connections: 2 * fairFlows},
			run: func(ctx context.Context) (Values, error) {
				return contend(ctx, control, fairLonger*o.Warm, fairLonger*o.Time)
			},
		})
	}
	return t
}

// fairnessGoals wants each side to have between 0.7 and 1.3 of its fair share. The two
// shares have the sum 2, so a lower bound of 0.7 for both is enough.
func fairnessGoals(r *Report) (list []Goal) {
	t := r.table("fairness")
	if t == nil {
		return nil
	}
	for _, row := range t.Rows {
		for _, side := range []struct {
			name   string
			figure Figure
		}{{"stag", StagShare}, {"kernel", KernelShare}} {
			if have, ok := row.Median[side.figure]; ok {
				list = append(list, Goal{What: fmt.Sprintf("fair share of %s among %s flows of both", side.name, row.Name), Want: 0.7, Have: have})
			}
		}
	}
	return list
}

// contest is a set of flows of both stacks through one bottleneck.
type contest struct {
	*stage
	plain    []*plain
	received [2 * fairFlows]*atomic.Uint64 // even indexes are stag's flows, odd indexes the kernel's
}

// contend runs flows with one congestion control through the bottleneck. It lets them
// run for warm, then counts what arrives from each flow in d.
func contend(ctx context.Context, control string, warm, d time.Duration) (v Values, err error) {
	st, err := newStage(setting{stacks: [2]stack{offload, kernel}, mtu: 1500, router: &bottleneck})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	c := &contest{stage: st}
	defer func() {
		for _, p := range c.plain {
			err = errors.Join(err, p.stop())
		}
	}()
	for i := range c.received {
		if err := c.add(ctx, i, control); err != nil {
			return nil, err
		}
	}
	if err := sleep(ctx, warm); err != nil {
		return nil, err
	}
	before, begin := c.octets(), time.Now()
	if err := sleep(ctx, d); err != nil {
		return nil, err
	}
	after := c.octets()
	return shares(before, after, time.Since(begin))
}

// add starts flow i.
func (c *contest) add(ctx context.Context, i int, control string) error {
	a, b, err := c.connect(ctx)
	if err != nil {
		return err
	}
	sink, err := startPlain(b, false)
	if err != nil {
		a.Close()
		return err
	}
	c.plain, c.received[i] = append(c.plain, sink), &sink.received
	if err := setControl(a, control); err != nil {
		a.Close()
		return err
	}
	if i%2 == 0 {
		_, err := c.take(ctx, from, a, &blaster{sends: true})
		return err
	}
	source, err := startPlain(a, true)
	if err == nil {
		c.plain = append(c.plain, source)
	}
	return err
}

// setControl sets the congestion control of a connection. An engine that takes the
// connection over keeps this congestion control.
func setControl(c *net.TCPConn, name string) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptString(int(fd), unix.SOL_TCP, unix.TCP_CONGESTION, name)
	})
	if failed != nil {
		return fmt.Errorf("congestion control %s: %w", name, failed)
	}
	return err
}

func (c *contest) octets() (n [2 * fairFlows]uint64) {
	for i, r := range c.received {
		n[i] = r.Load()
	}
	return n
}

// shares returns what each side has moved between two counts, in fair shares.
func shares(before, after [2 * fairFlows]uint64, took time.Duration) (Values, error) {
	var part [2 * fairFlows]float64
	sum, side := 0.0, [2]float64{}
	for i := range part {
		part[i] = float64(after[i] - before[i])
		sum += part[i]
		side[i%2] += part[i]
	}
	if sum == 0 {
		return nil, fmt.Errorf("nothing arrived within %v: all connections broke or stall", took)
	}
	fair := sum / float64(len(part))
	return Values{
		StagShare: side[0] / fair / fairFlows, KernelShare: side[1] / fair / fairFlows,
		LeastShare: slices.Min(part[:]) / fair, MostShare: slices.Max(part[:]) / fair,
		TotalMbps: 8 * sum / 1e6 / took.Seconds(),
	}, nil
}

// sleep sleeps for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
