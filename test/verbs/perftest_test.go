//go:build verbs

package verbs

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/excuse"
)

const perftestPort = 18515

// perftestRow matches a line of results: octets, iterations, and numbers. The standard deviation of
// latencies can be nan, because perftest takes the root of a difference that is rounded.
var perftestRow = regexp.MustCompile(`(?m)^ *(\d+)[ \t]+(\d+)((?:[ \t]+(?:\d+\.\d+|-?nan))+)[ \t]*$`)

// perftest is a row of a program of perftest. sizes is how many lines of results it prints.
func perftest(program, options string, sizes int, env []string, kernel bool) row {
	line := program + " -F " + options
	return row{
		server: line, client: line + " " + addrA, port: perftestPort, env: env, kernel: kernel, excuse: excuse.Of,
		check: func(t *trial, _, client string) { saneFigures(t, client, sizes) },
	}
}

// saneFigures checks that the figures are there and positive.
func saneFigures(t *trial, out string, sizes int) {
	rows := perftestRow.FindAllStringSubmatch(out, -1)
	if len(rows) != sizes {
		t.Errorf("%d lines of results, and not %d", len(rows), sizes)
	}
	for _, m := range rows {
		if figure, err := mainFigure(strings.Fields(m[3])); err != nil || !(figure > 0) {
			t.Errorf("the message rate or the average latency in %q is not positive", m[0])
		}
	}
}

// mainFigure returns the message rate of a bandwidth test, or the average of a latency test. The
// bandwidth of small messages is rounded to 0.00 MB/s on a busy machine. The rate has 6 places.
func mainFigure(columns []string) (float64, error) {
	const rate, average, latencies = 2, 3, 7
	if len(columns) >= latencies {
		return strconv.ParseFloat(columns[average], 64)
	}
	if len(columns) <= rate {
		return 0, fmt.Errorf("%d columns", len(columns))
	}
	return strconv.ParseFloat(columns[rate], 64)
}

// TestFigures: slow rows are taken, and those of a perftest without a clock are not.
func TestFigures(t *testing.T) {
	own(t, "figures of perftest")
	const head = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n"
	for _, c := range []struct {
		out  string
		sane bool
	}{
		{head + " 8          500              0.04               0.00   \t\t   0.000494\n", true},
		{head + " 8          500              0.00               0.00   \t\t   0.000000\n", false},
		{" 2       500          75.19          246820.90      84.61    \t       248.30      \t-nan   \t\t140.08  \t\t246820.90\n", true},
		{" 2       500          0.00           0.00           0.00     \t       0.00        \t-nan   \t\t0.00    \t\t0.00\n", false},
		{" 2       500          75.19          246820.90      84.61    \t       -nan        \t-nan   \t\t140.08  \t\t246820.90\n", false},
		{head, false},
	} {
		one := &trial{}
		saneFigures(one, c.out, 1)
		if one.Failed() == c.sane {
			t.Errorf("%q: %v", c.out, one.failures)
		}
	}
}

// allSizes is the number of sizes of -a: 2^1 to 2^23.
const allSizes = 23

// withoutCredits returns how ib_send_bw -e must run. Over iWARP its client stops before as many messages
// as the server has receives, until a Write of the server gives it credits. It sleeps meanwhile until
// one of its Sends completes. If all have completed, nothing wakes it. perftest takes no more
// receives than messages (-r is cut to -n), but one more if their number is odd.
func withoutCredits(messages, more int) string {
	return " -n " + pick(messages|1, more|1) + " -r " + pick(messages+100, more+100)
}

// TestPerftest: all tests with -R. The tests with Writes have no -e. With STAG_BRIEF=1 each option
// runs with one kind only. A size of -a takes a second and more, because perftest measures the
// processor's clock before it prints a line, so -a has few iterations.
func TestPerftest(t *testing.T) {
	for _, kind := range []string{"send", "write", "read"} {
		bw, lat := "ib_"+kind+"_bw", "ib_"+kind+"_lat"
		rows := []row{
			perftest(bw, "-R -n "+pick(1000, 100000), 1, nil, true),
			unless(kind == "write", perftest(bw, "-R -a -n "+pick(5, 1000), allSizes, nil, false)),
			unless(kind == "read", perftest(bw, "-R -b -n "+pick(500, 20000), 1, nil, true)),
			unless(kind == "send", perftest(bw, "-R -q 8 -n "+pick(200, 10000), 1, nil, true)),
			perftest(lat, "-R -n "+pick(500, 20000), 1, nil, true),
			unless(false, perftest(lat, "-R -a -n "+pick(5, 500), allSizes, nil, false)),
		}
		switch kind {
		case "send":
			rows = append(rows, perftest(bw, "-R -e"+withoutCredits(500, 5000), 1, nil, true), perftest(lat, "-R -e -n "+pick(500, 20000), 1, nil, true))
		case "read":
			rows = append(rows, unless(false, perftest(bw, "-R -e -n "+pick(500, 20000), 1, nil, true)),
				unless(false, perftest(lat, "-R -e -n "+pick(500, 20000), 1, nil, true)))
		}
		play(t, rows...)
	}
}

// unless returns a row that STAG_BRIEF=1 leaves out, unless it is one to keep.
func unless(keep bool, r row) row {
	r.more = !keep
	return r
}

// TestAtomics: both atomic operations of RFC 7306.
func TestAtomics(t *testing.T) {
	for _, kind := range []string{"FETCH_AND_ADD", "CMP_AND_SWAP"} {
		play(t, perftest("ib_atomic_bw", "-R -A "+kind+" -n "+pick(500, 20000), 1, nil, true),
			unless(kind == "CMP_AND_SWAP", perftest("ib_atomic_lat", "-R -A "+kind+" -n "+pick(500, 20000), 1, nil, false)))
	}
}

// TestByQPN: perftest without -R exchanges GIDs and QPNs over its own TCP connection. It does so
// only with adapters that are not iWARP.
func TestByQPN(t *testing.T) {
	for _, program := range []string{"ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_send_lat", "ib_write_lat", "ib_read_lat"} {
		play(t, unless(program == "ib_send_bw" || program == "ib_write_lat", perftest(program, "-x 0 -n "+pick(500, 20000), 1, roce, true)))
	}
	play(t, unless(false, perftest("ib_write_bw", "-x 0 -q 8 -n "+pick(200, 5000), 1, roce, false)),
		row{server: "ibv_rc_pingpong -g 0 -c -n 500", client: "ibv_rc_pingpong -g 0 -c -n 500 " + addrA, port: perftestPort, kernel: true,
			check: says("500 iters", "Mbit/sec")},
		row{server: "ibv_rc_pingpong -g 0 -c -e -n 500", client: "ibv_rc_pingpong -g 0 -c -e -n 500 " + addrA, port: perftestPort, kernel: true,
			env: roce, check: says("500 iters", "Mbit/sec")},
	)
}
