package measure

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"strconv"
)

const ucxName = "ucx put"

// ucxPerftest puts data into its peer's memory over the kernel's TCP.
var ucxPerftest = tool{name: "ucx_perftest", rows: map[string]func(tool, Case, Options) *Row{
	"goodput": ucxGoodputRow, "latency": ucxLatencyRow,
}}

// ucxPuts and ucxPingPongs are numbers of messages, because UCX does not accept times. At
// 3 Gb/s and 20 µs a run takes less than a second. It takes much longer if both ends
// share a core with other work, so ucxSeconds limits it.
const (
	ucxPuts      = 4000
	ucxPingPongs = 5000
	ucxSeconds   = 40
)

// ucx returns a match in which the client runs the given test.
func (t tool) ucx(alike Case, test string, size, count, percentile int) match {
	return match{
		tool: t, alike: alike,
		server: []string{"-p", toolPortText},
		client: []string{
			addressOf, "-p", toolPortText, "-t", test, "-s", strconv.Itoa(size), "-n", strconv.Itoa(count), "-w", strconv.Itoa(count / 10),
			"-R", strconv.Itoa(percentile), "-f", "-v",
		},
		patience: within(ucxSeconds),
	}
}

func ucxGoodputRow(t tool, alike Case, _ Options) *Row {
	m := t.ucx(alike, "ucp_put_bw", message, ucxPuts, 50)
	alike.Name = ucxName
	return &Row{Case: alike, run: func(ctx context.Context) (Values, error) {
		return m.result(ctx, func(printed []byte) (Values, error) {
			mib, err := readUCX(printed, "overall_bw")
			return Values{Gbps: mib * (1 << 20) * 8 / 1e9}, err
		})
	}}
}

// ucxSmalls is the number of small messages.
const ucxSmalls = 200_000

// ucxRateRow returns a row with the rate of small puts.
func ucxRateRow(t tool, alike Case) *Row {
	m := t.ucx(alike, "ucp_put_bw", small, ucxSmalls, 50)
	alike.Name = ucxName
	return &Row{Case: alike, run: func(ctx context.Context) (Values, error) {
		return m.result(ctx, func(printed []byte) (Values, error) {
			mib, err := readUCX(printed, "overall_bw")
			return Values{Rate: mib * (1 << 20) / small / 1e6}, err
		})
	}}
}

// ucxLatencyRow runs UCX once for each percentile, because UCX prints only one
// percentile.
func ucxLatencyRow(t tool, alike Case, _ Options) *Row {
	size := alike.Message
	row := &Row{Case: alike}
	row.Name = ucxName
	row.run = func(ctx context.Context) (Values, error) {
		found := Values{}
		for f, percentile := range map[Figure]int{"p50_us": 50, "p99_us": 99} {
			m := t.ucx(alike, "ucp_put_lat", size, ucxPingPongs, percentile)
			v, err := m.result(ctx, func(printed []byte) (Values, error) {
				us, err := readUCX(printed, fmt.Sprintf("%d.0_percentile_lat", percentile))
				return Values{f: us}, err
			})
			if err != nil {
				return nil, err
			}
			found[f] = v[f]
		}
		return found, nil
	}
	return row
}

// readUCX reads a column of the output of -f -v: a line of names, then a line of
// numbers.
func readUCX(printed []byte, column string) (float64, error) {
	lines, err := csv.NewReader(bytes.NewReader(printed)).ReadAll()
	if err != nil {
		return 0, err
	}
	if len(lines) != 2 {
		return 0, fmt.Errorf("%d lines of numbers, not 1", len(lines)-1)
	}
	for i, name := range lines[0] {
		if name != column {
			continue
		}
		v, err := strconv.ParseFloat(lines[1][i], 64)
		if err != nil || v <= 0 {
			return 0, fmt.Errorf("%s is %q", column, lines[1][i])
		}
		return v, nil
	}
	return 0, fmt.Errorf("no column %s", column)
}
