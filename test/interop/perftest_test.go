//go:build interop

package interop

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const perftestPort = 18515

// perftestVersion is what Debian 12's perftest calls its exchange.
const perftestVersion = "6.06"

// bandwidthRow is a row of figures: octets and messages.
var bandwidthRow = regexp.MustCompile(`(?m)^ \d+ +(\d+)( +\d+\.\d+){3}$`)

// measurement is a test of perftest, and its options, which both ends are given.
type measurement struct {
	test, options string
	messages      int // that both ends have come to report
}

// The bandwidths are of messages in one direction, except where -b says so.
// Emulation is slow, and so they are few; the last rows are those that need
// something of the exchange that the others do not.
var measurements = []measurement{
	{"write_bw", "-n 200", 200},
	{"read_bw", "-n 200", 200},
	{"send_bw", "-n 200", 200},
	{"write_lat", "-n 300", 299}, // numbers that do not fit in an octet; we take times between messages
	{"read_lat", "-n 200", 200},
	{"send_lat", "-n 200", 200},

	{"write_bw", "-n 100 -s 3000 -q 3", 300},
	{"write_bw", "-n 100 -s 20000 -b", 200},
	{"read_bw", "-n 50 -s 1000 -b -q 2", 200},
	{"send_bw", "-n 200 -s 3000 -q 3 -r 20", 600},
	{"send_bw", "-n 100 -s 5000 -b -q 2", 400},
	{"send_lat", "-n 100 -s 100000", 100},
}

func (m measurement) bandwidth() bool { return strings.HasSuffix(m.test, "_bw") }

func (m measurement) String() string { return m.test + " " + m.options }

func (m measurement) about(role string) about { return about{"ib_" + m.test + role, m.options} }

// measured is what `stag perf --json` prints, as far as rows look at it.
type measured struct {
	Info struct {
		Path     string
		Perftest string
	} `json:"test_info"`
	Bandwidth, Latency []struct {
		Messages int `json:"n_iterations"`
	}
}

// ours is our end: the command with these arguments more.
func (r *rig) ours(m measurement, more ...string) *command {
	r.Helper()
	args := append([]string{"perf", m.test, "--perftest", "-d", r.port()}, strings.Fields(m.options)...)
	return r.stag(append(args, more...)...)
}

// theirs is perftest's command. Its clock is of no use under emulation: -F keeps
// it from saying so, and nothing here looks at its figures.
func (m measurement) theirs() string {
	return fmt.Sprintf("ib_%s -R -F -d siw0 %s", m.test, m.options)
}

// TestPerftestClient: perftest's client, and our server.
func TestPerftestClient(t *testing.T) {
	for _, m := range measurements {
		row(t, m.String(), m.about(" client"), m.serve)
	}
}

// serve is our server, which prints what perftest's client has measured.
func (m measurement) serve(r *rig) {
	r.Helper()
	server := r.serves(r.ours(m), "Waiting for client")
	r.ended(r.startInGuest(m.theirs() + " " + ourV4))
	r.succeeds(server, nil)
	text := server.out.String()
	if !strings.Contains(text, "perftest "+perftestVersion) || !strings.Contains(text, "native XDP") {
		r.Errorf("the server says\n%s", text)
	}
	if rows := bandwidthRow.FindAllStringSubmatch(text, -1); m.bandwidth() && (len(rows) != 1 || rows[0][1] != strconv.Itoa(m.messages)) {
		r.Errorf("want one row of %d messages:\n%s", m.messages, text)
	}
}

// TestPerftestServer: our client, and perftest's server.
func TestPerftestServer(t *testing.T) {
	for _, m := range measurements {
		row(t, m.String(), m.about(" server"), m.measure)
	}
}

// measure is our client, whose result counts.
func (m measurement) measure(r *rig) {
	r.Helper()
	server := r.serveInGuest(perftestPort, m.theirs())
	var got measured
	r.succeeds(r.ours(m, "--json", guestV4), &got)
	r.ended(server)
	if got.Info.Perftest != perftestVersion || !strings.Contains(got.Info.Path, "native") {
		r.Errorf("%+v", got.Info)
	}
	if rows := append(got.Bandwidth, got.Latency...); len(rows) != 1 || rows[0].Messages != m.messages {
		r.Errorf("%+v, want one row of %d messages", got, m.messages)
	}
}
