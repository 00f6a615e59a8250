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

// perftestVersion is the version of the exchange in Debian 12's perftest.
const perftestVersion = "6.06"

// bandwidthRow matches a row of results: octets, messages and rates.
var bandwidthRow = regexp.MustCompile(`(?m)^ \d+ +(\d+)( +\d+\.\d+){3}$`)

// measurement is a test of perftest with the options for both ends.
type measurement struct {
	test, options string
	messages      int // number of messages that both ends must report
}

// The bandwidth tests send messages in one direction, or in both with -b. The numbers
// of messages are small, because emulation is slow. The last rows test parts of the
// exchange that the others do not use.
var measurements = []measurement{
	{"write_bw", "-n 200", 200},
	{"read_bw", "-n 200", 200},
	{"send_bw", "-n 200", 200},
	{"write_lat", "-n 300", 299}, // numbers above 255; stag measures the times between messages
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

// measured holds the fields of `stag perf --json` that the rows use.
type measured struct {
	Info struct {
		Path     string
		Perftest string
	} `json:"test_info"`
	Bandwidth, Latency []struct {
		Messages int `json:"n_iterations"`
	}
}

// ours starts the stag command with additional arguments.
func (r *rig) ours(m measurement, more ...string) *command {
	r.Helper()
	args := append([]string{"perf", m.test, "--perftest", "-d", r.port()}, strings.Fields(m.options)...)
	return r.stag(append(args, more...)...)
}

// theirs returns perftest's command. Its clock is useless under emulation. -F
// suppresses a message about that, and the tests ignore perftest's rates.
func (m measurement) theirs() string {
	return fmt.Sprintf("ib_%s -R -F -d siw0 %s", m.test, m.options)
}

// TestPerftestClient tests perftest's client with stag's server.
func TestPerftestClient(t *testing.T) {
	for _, m := range measurements {
		row(t, m.String(), m.about(" client"), m.serve)
	}
}

// serve runs stag's server, which prints the results of perftest's client.
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

// TestPerftestServer tests stag's client with perftest's server.
func TestPerftestServer(t *testing.T) {
	for _, m := range measurements {
		row(t, m.String(), m.about(" server"), m.measure)
	}
}

// measure runs stag's client and checks its result.
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
