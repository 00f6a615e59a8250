//go:build interop

package interop

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/excuse"
)

// nobody is the user that the programs run as. Its group has access to the daemon's socket.
const nobody, nobodysGroup = 65534, "nogroup"

// daemon starts stag's daemon on side A and returns the environment of its clients: stag's
// libibverbs and librdmacm are in the place of the distribution's.
func (r *rig) daemon() []string {
	r.Helper()
	const dir = "/run/verbs" // unlike r.dir, nobody may enter it
	lib, socket := filepath.Join(dir, "verbs"), filepath.Join(dir, "stagd.sock")
	r.Must(os.MkdirAll(lib, 0o755))
	build := exec.Command("make", "-C", "../..", "verbs", "BIN="+dir)
	if out, err := build.CombinedOutput(); err != nil {
		r.Fatalf("%v: %v\n%s", build.Args, err, out)
	}
	c := r.stag("daemon", "--socket", socket, "--group", nobodysGroup, "-i", r.port())
	r.serves(c, "serving ")
	r.Cleanup(func() {
		if r.Failed() {
			r.Logf("the daemon: %s%s", c.out.String(), c.err.String())
		}
	})
	return []string{"LD_LIBRARY_PATH=" + lib, "STAG_DAEMON=" + socket}
}

// program starts a program of the distribution on side A, as nobody.
func (r *rig) program(env []string, line string) *command {
	r.Helper()
	words := strings.Fields(line)
	c := &command{cmd: exec.Command(words[0], words[1:]...), done: make(chan error, 1)}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.err
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Dir = "/"
	ended := make(chan struct{})
	r.Must(r.launchAs(&syscall.Credential{Uid: nobody, Gid: nobody, Groups: []uint32{nobody}}, pair.A, c.cmd, func(err error) {
		c.done <- err
		close(ended)
	}))
	r.Cleanup(func() {
		c.cmd.Process.Kill()
		<-ended
	})
	return c
}

// libraryTests are the tests of perftest with -R that both ends run, the one over stag's
// libraries and the other over siw.
var libraryTests = []string{
	"ib_send_bw -n 200", "ib_write_bw -n 200", "ib_read_bw -n 200",
	"ib_send_bw -n 100 -b", "ib_write_bw -n 100 -b", "ib_read_bw -n 100 -b",
	"ib_send_bw -n 50 -q 8", "ib_write_bw -n 50 -q 8", "ib_read_bw -n 50 -q 8",
	// -e needs more than the 100 Sends that have one completion. With an odd number of messages the
	// client of ib_send_bw needs no credits, for which it may wait for ever (package test/verbs).
	"ib_send_bw -n 201 -e", "ib_read_bw -n 200 -e",
	"ib_send_lat -n 200", "ib_write_lat -n 200", "ib_read_lat -n 200", "ib_send_lat -n 200 -e", "ib_read_lat -n 200 -e",
	"ib_write_bw -n 5 -a", "ib_read_bw -n 5 -a", "ib_send_bw -n 5 -a",
}

// tests returns the lines of libraryTests. If brief is set, only one has -a: kept.
func tests(kept string) []string {
	if !brief {
		return libraryTests
	}
	return slices.DeleteFunc(slices.Clone(libraryTests), func(line string) bool { return strings.HasSuffix(line, " -a") && line != kept })
}

// figuresRow matches the beginning of a row of results: octets, iterations and a figure.
var figuresRow = regexp.MustCompile(`(?m)^ \d+[ \t]+\d+[ \t]+-?(\d+\.\d+|nan|inf)`)

// figures checks that perftest's client printed a row of results for each size. A server prints
// one row only, if only its client sends.
func (r *rig) figures(out, line string) {
	r.Helper()
	rows := 1
	if strings.HasSuffix(line, " -a") {
		rows = 23
	}
	if got := len(figuresRow.FindAllString(out, -1)); got != rows {
		r.Errorf("%s: %d rows of results instead of %d\n%s", line, got, rows, out)
	}
}

// TestVerbsClient: perftest's client over stag's libraries, with perftest's server over siw.
func TestVerbsClient(t *testing.T) {
	for _, line := range tests("ib_write_bw -n 5 -a") {
		row(t, line, about{"perftest server over siw", "-R"}, func(r *rig) {
			env := r.daemon()
			r.measure(line, true, func() (*command, *job) {
				server := r.serveInGuest(perftestPort, line+" -R -F -d siw0")
				return r.program(env, line+" -R -F "+guestV4), server
			})
		})
	}
}

// TestVerbsServer: perftest's server over stag's libraries, with perftest's client over siw. siw sends
// no first message unless it is told to. The server of ib_write_lat sends first.
func TestVerbsServer(t *testing.T) {
	for _, line := range tests("ib_send_bw -n 5 -a") {
		row(t, line, about{"perftest client over siw", "-R"}, func(r *rig) { r.serveLibrary(line) })
	}
	row(t, "ib_write_lat -n 200, peer-to-peer", about{"perftest client over siw", "-R"}, func(r *rig) {
		r.siw(siwRTR.name, siwRTR.value)
		r.serveLibrary("ib_write_lat -n 200")
	})
}

// serveLibrary runs a test of perftest whose server is over stag's libraries.
func (r *rig) serveLibrary(line string) {
	r.Helper()
	env := r.daemon()
	r.measure(line, false, func() (*command, *job) {
		r.unused(perftestPort)
		server := r.program(env, line+" -R -F")
		r.listens(server, perftestPort)
		return server, r.startInGuest(line + " -R -F -d siw0 " + ourV4)
	})
}

// measure runs a test of perftest, and again if its second connection was too early. begin starts
// the program here, which is the client if ourClient is set, and the one in the guest. The figures
// can be zeros: under emulation perftest often fails to measure the processor's clock.
func (r *rig) measure(line string, ourClient bool, begin func() (*command, *job)) {
	r.Helper()
	for n := 1; ; n++ {
		ours, theirs := begin()
		said, why := r.together(ours, theirs)
		if why == "" {
			r.Cleanup(func() {
				if r.Failed() {
					r.Logf("the guest: %s\n%s", theirs.command, said)
				}
			})
			r.succeeds(ours, nil)
			client := r.ended(theirs)
			if ourClient {
				client = ours.out.String()
			}
			r.figures(client, line)
			return
		}
		if n == excuse.Tries {
			r.Fatalf("%s: %d tries: %s", line, n, why)
		}
		r.Logf("%s: tried again: %s", line, why)
		ours.cmd.Process.Kill()
		r.code(ours)
		_, _, err := r.guest.run("killall -9 -q "+theirs.program, patience)
		r.Must(err)
	}
}

// Exit codes of the command with which together asks for the state of the guest's program.
const (
	endedWell = iota
	stillRuns
	endedBadly
)

// together waits until both programs have ended, and returns what the one in the guest has printed.
// It returns sooner if no octets move, or if there is an excuse, which it then returns. If the one in
// the guest has failed without an excuse, the row ends: the one here may wait for it for ever.
func (r *rig) together(ours *command, theirs *job) (said, why string) {
	r.Helper()
	for w := r.sniffer.progress.Wait(patience); ; time.Sleep(200 * time.Millisecond) {
		over := len(ours.done) > 0
		said, state, err := r.guest.run(fmt.Sprintf("cat %[1]s; if ! [ -e %[1]s.end ]; then (exit %[2]d); elif ! grep -qx 0 %[1]s.end; then (exit %[3]d); fi",
			theirs.file, stillRuns, endedBadly), patience)
		r.Must(err)
		why = excuse.Early(ours.out.String(), ours.err.String(), said)
		if why == "" && state == endedBadly {
			r.ended(theirs)
		}
		if why != "" || over && state == endedWell || w.Stuck() {
			return said, why
		}
	}
}

// unused waits until nobody listens on a port of side A.
func (r *rig) unused(port int) {
	r.Helper()
	listening := regexp.MustCompile(fmt.Sprintf(":%04X 0+:0000 0A", port))
	r.Eventually("the port is free", func() (free bool) {
		r.Must(r.pair.Do(pair.A, func() error {
			four, err := os.ReadFile("/proc/thread-self/net/tcp")
			six, err6 := os.ReadFile("/proc/thread-self/net/tcp6")
			free = !listening.Match(append(four, six...))
			return errors.Join(err, err6)
		}))
		return free
	})
}

// TestVerbsRping: rping at both ends, in both directions. Both ends compare the octets.
func TestVerbsRping(t *testing.T) {
	row(t, "client", about{"rping -s over siw", "200 x 4096"}, func(r *rig) {
		env := r.daemon()
		server := r.serveInGuest(rpingPort, "rping -s -V -a "+guestV4+" -S 4096")
		r.succeeds(r.program(env, "rping -c -V -a "+guestV4+" -S 4096 -C 200"), nil)
		r.rpingServed(server)
	})
	row(t, "server", about{"rping -c over siw", "200 x 4096"}, func(r *rig) {
		env := r.daemon()
		server := r.program(env, "rping -s -V -a "+ourV4+" -S 4096 -C 200")
		r.listens(server, rpingPort)
		r.ended(r.startInGuest("rping -c -V -a " + ourV4 + " -S 4096 -C 200"))
		r.succeeds(server, nil)
	})
}

// listens waits until a program of side A listens on a port.
func (r *rig) listens(c *command, port int) {
	r.Helper()
	want := ":" + strings.ToUpper(strconv.FormatInt(int64(port), 16)) + " "
	r.Eventually("the program listens", func() bool {
		four, err := os.ReadFile("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/net/tcp")
		six, err6 := os.ReadFile("/proc/" + strconv.Itoa(c.cmd.Process.Pid) + "/net/tcp6")
		return err == nil && err6 == nil && strings.Contains(string(four)+string(six), want)
	})
}
