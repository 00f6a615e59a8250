//go:build interop

package interop

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/bench/measure"
	common "github.com/stag-rdma/stag/test/rig"
)

// comparedFile is the file that BenchmarkCompared writes.
var comparedFile = flag.String("compared", "", "write the result of BenchmarkCompared to `FILE`, as JSON")

// comparedRounds is the number of rounds of BenchmarkCompared.
var comparedRounds = flag.Int("rounds", 5, "measure every row of BenchmarkCompared `N` times")

// comparedWay is a way to move data within the guest. Each of its commands is for the guest.
// SIZE and N are replaced. The time of few messages is subtracted from the time of many, so
// that the start of a program does not count. The clocks of these programs do not count:
// they are useless under emulation.
type comparedWay struct {
	name         string
	before       string // makes the way possible
	after        string // undoes before
	port         int
	serve        [2]string // servers for long messages, and for short ones that come back
	stream, pong string
}

// comparedWays are the rows. Their ends sleep, because the guest has one processor.
var comparedWays = []comparedWay{
	{name: "sockets", port: 5001, serve: [2]string{"/host/sockets serve 5001 SIZE", "/host/sockets serve 5001 SIZE"},
		stream: "/host/sockets stream " + guestV4 + ":5001 SIZE N", pong: "/host/sockets pong " + guestV4 + ":5001 SIZE N"},
	{name: "ucx over TCP", port: 5002, serve: [2]string{ucxInGuest + " -p 5002", ucxInGuest + " -p 5002"},
		stream: ucxInGuest + " " + guestV4 + " -p 5002 -t ucp_put_bw -s SIZE -n N -w 1", pong: ucxInGuest + " " + guestV4 + " -p 5002 -t tag_lat -s SIZE -n N -w 1"},
	{name: "siw", port: perftestPort, serve: [2]string{"ib_write_bw -R -F -d siw0 -s SIZE -n N", "ib_send_lat -e -R -F -d siw0 -s SIZE -n N"},
		stream: "ib_write_bw -R -F -d siw0 -s SIZE -n N " + guestV4, pong: "ib_send_lat -e -R -F -d siw0 -s SIZE -n N " + guestV4},
	{name: "rxe", port: perftestPort, before: "rdma link delete siw0; rdma link add rxe0 type rxe netdev eth0", after: "rdma link delete rxe0; rdma link add siw0 type siw netdev eth0",
		serve:  [2]string{"ib_write_bw -R -F -d rxe0 -s SIZE -n N", "ib_send_lat -e -R -F -d rxe0 -s SIZE -n N"},
		stream: "ib_write_bw -R -F -d rxe0 -s SIZE -n N " + guestV4, pong: "ib_send_lat -e -R -F -d rxe0 -s SIZE -n N " + guestV4},
	{name: "stag, kernel port", port: 18516, serve: [2]string{"/host/stag perf write_bw --carrier kernel -p 18516 -s SIZE -n N", "/host/stag perf send_lat -e --carrier kernel -p 18516 -s SIZE -n N"},
		stream: "/host/stag perf write_bw --carrier kernel -p 18516 -s SIZE -n N " + guestV4, pong: "/host/stag perf send_lat -e --carrier kernel -p 18516 -s SIZE -n N " + guestV4},
}

const ucxInGuest = "env LD_LIBRARY_PATH=/host/compared/lib:$LD_LIBRARY_PATH UCX_TLS=tcp /host/compared/bin/ucx_perftest -E sleep"

// These are the sizes and numbers of messages.
var (
	comparedLong  = [3]int{64 << 10, 100, 600} // octets, few, many
	comparedShort = [3]int{64, 100, 1100}
)

// BenchmarkCompared measures ways to move data within the guest, in interleaved rounds. It is
// no row of the matrix, because emulation makes its times longer than those of a machine: only
// ratios mean something.
//
//	go test -tags interop -run - -bench Compared -benchtime 1x ./test/interop -compared FILE
func BenchmarkCompared(b *testing.B) {
	g, err := theStage.booted()
	if err != nil {
		b.Fatal(err)
	}
	r := &rig{common.On(b), &theStage, g}
	ways := r.compared()
	samples := map[string][]measure.Values{}
	for range *comparedRounds {
		for _, w := range ways {
			samples[w.name] = append(samples[w.name], r.measured(w))
		}
	}
	var names []string
	for _, w := range ways {
		names = append(names, w.name)
	}
	report := measure.Compared(names, samples, strings.TrimSpace(r.inGuest("uname -r")))
	if *comparedFile == "" {
		r.Must(report.Print(os.Stdout))
		return
	}
	f, err := os.Create(*comparedFile)
	r.Must(err)
	r.Must(report.PrintJSON(f))
	r.Must(f.Close())
}

// compared puts all programs into the guest. It returns the ways that work here.
func (r *rig) compared() (ways []comparedWay) {
	r.storage()
	r.Must(copyFile(r.bin, filepath.Join(r.shared, "stag")))
	build := exec.Command("go", "build", "-o", filepath.Join(r.shared, "sockets"), "./sockets")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err == nil {
		out, err = exec.Command("bash", "image/compared.sh", filepath.Join(r.shared, "compared")).CombinedOutput()
	}
	if err != nil {
		r.Fatalf("%v\n%s", err, out)
	}
	r.inGuest("while read -r m; do lsmod | grep -q \"^${m%.ko} \" || insmod /host/compared/modules/$m 2>/dev/null; done </host/compared/modules/order; lsmod | grep -q ^rdma_rxe")
	r.inGuest("cp /host/compared/lib/rxe.driver /etc/libibverbs.d/; cp /host/compared/lib/librxe-rdmav34.so /usr/lib/x86_64-linux-gnu/libibverbs/")
	for _, w := range comparedWays {
		if _, err := os.Stat(filepath.Join(r.shared, "compared/bin/ucx_perftest")); err != nil && strings.HasPrefix(w.name, "ucx") {
			continue
		}
		ways = append(ways, w)
	}
	return ways
}

// measured measures a way once.
func (r *rig) measured(w comparedWay) measure.Values {
	r.Helper()
	if w.before != "" {
		r.inGuest(w.before)
		defer r.inGuest(w.after)
	}
	long, short := r.each(w, w.serve[0], w.stream, comparedLong), r.each(w, w.serve[1], w.pong, comparedShort)
	return measure.Values{measure.Gbps: float64(comparedLong[0]) * 8 / 1e9 / long, measure.SleepP50: short * 1e6 / 2}
}

// each returns how long a message takes, in seconds.
func (r *rig) each(w comparedWay, serve, client string, of [3]int) float64 {
	r.Helper()
	few := r.lasts(w, serve, client, of[0], of[1])
	many := r.lasts(w, serve, client, of[0], of[2])
	if many <= few {
		r.Fatalf("%s: %d messages took %v s, and %d took %v s", w.name, of[1], few, of[2], many)
	}
	return (many - few) / float64(of[2]-of[1])
}

// lasts returns how long a client runs, in seconds, by the clock of the guest.
func (r *rig) lasts(w comparedWay, serve, client string, size, n int) float64 {
	r.Helper()
	fill := strings.NewReplacer("SIZE", strconv.Itoa(size), "N", strconv.Itoa(n)).Replace
	server := r.serveInGuest(w.port, fill(serve))
	out := r.inGuest(fmt.Sprintf("read a x </proc/uptime; %s >/tmp/client 2>&1 || { cat /tmp/client; exit 1; }; read b x </proc/uptime; echo $a $b", fill(client)))
	r.ended(server)
	var begin, end float64
	if _, err := fmt.Sscan(out, &begin, &end); err != nil {
		r.Fatalf("%q: %v", out, err)
	}
	return end - begin
}
