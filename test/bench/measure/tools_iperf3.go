package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
)

const iperf3Name = "iperf3"

// iperf3 writes 1 MiB at a time. Its goodput is what its receiver counts.
var iperf3 = tool{name: iperf3Name, rows: map[string]func(tool, Case, Options) *Row{"goodput": iperf3Row}}

func iperf3Row(t tool, alike Case, o Options) *Row {
	seconds := whole(o.Time)
	m := match{
		tool: t, alike: alike,
		server:   []string{"-s", "-1", "-B", addressOf, "-p", toolPortText},
		client:   []string{"-c", addressOf, "-p", toolPortText, "-t", strconv.Itoa(seconds), "-l", "1M", "-J"},
		patience: within(seconds),
	}
	alike.Name = iperf3Name
	return &Row{Case: alike, run: func(ctx context.Context) (Values, error) { return m.result(ctx, readIperf3) }}
}

// readIperf3 reads the output of iperf3 -J. It needs only a part of the output.
func readIperf3(printed []byte) (Values, error) {
	var r struct {
		Error string
		End   struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		}
	}
	if err := json.Unmarshal(printed, &r); err != nil {
		return nil, err
	}
	if r.Error != "" {
		return nil, errors.New(r.Error)
	}
	if r.End.Received.Rate <= 0 {
		return nil, fmt.Errorf("end.sum_received.bits_per_second is %v", r.End.Received.Rate)
	}
	return Values{Gbps: r.End.Received.Rate / 1e9}, nil
}

// iperf3Goals requires that the benchmark's own stream over the kernel's TCP and iperf3
// give similar results. Otherwise neither is a fair base.
func iperf3Goals(r *Report) (list []Goal) {
	t := r.table("goodput")
	if t == nil {
		return nil
	}
	for _, mtu := range t.distinct(func(c Case) int { return c.MTU }) {
		list = t.compare(list, kernelTCP, iperf3Name, mtu, "", 0.9)
		list = t.compare(list, iperf3Name, kernelTCP, mtu, "", 0.9)
	}
	return list
}
