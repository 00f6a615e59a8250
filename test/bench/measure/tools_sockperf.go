package measure

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
)

// sockperf sends a message over TCP and waits for the answer. It reports half of the
// round-trip time.
var sockperf = tool{name: "sockperf", rows: map[string]func(tool, Case, Options) *Row{"latency": sockperfRow}}

func sockperfRow(t tool, alike Case, o Options) *Row {
	seconds := whole(o.Time)
	m := match{
		tool: t, alike: alike,
		server: []string{"server", "--tcp", "-i", addressOf, "-p", toolPortText},
		client: []string{
			"ping-pong", "--tcp", "-i", addressOf, "-p", toolPortText, "-t", strconv.Itoa(seconds), "-m", strconv.Itoa(alike.Message),
		},
		patience: within(seconds),
	}
	alike.Name = t.name
	return &Row{Case: alike, run: func(ctx context.Context) (Values, error) { return m.result(ctx, readSockperf) }}
}

// sockperfLines matches the lines to read, such as "percentile 99.900 =   59.729", by
// the figure of the latency table.
var sockperfLines = map[Figure]*regexp.Regexp{
	"p50_us":  regexp.MustCompile(`percentile 50\.000 = +([0-9.]+)`),
	"p99_us":  regexp.MustCompile(`percentile 99\.000 = +([0-9.]+)`),
	"p999_us": regexp.MustCompile(`percentile 99\.900 = +([0-9.]+)`),
	"max_us":  regexp.MustCompile(`<MAX> observation = +([0-9.]+)`),
}

func readSockperf(printed []byte) (Values, error) {
	v := Values{}
	for f, line := range sockperfLines {
		found := line.FindSubmatch(printed)
		if found == nil {
			return nil, fmt.Errorf("no line like %s", line)
		}
		us, err := strconv.ParseFloat(string(found[1]), 64)
		if err != nil || us <= 0 {
			return nil, fmt.Errorf("%q is no time", found[0])
		}
		v[f] = us
	}
	return v, nil
}
