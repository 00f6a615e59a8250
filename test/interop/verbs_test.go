//go:build interop

package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
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
	"ib_send_bw -n 200 -e", "ib_read_bw -n 200 -e", // -e needs more than the 100 Sends that have one completion
	"ib_send_lat -n 200", "ib_write_lat -n 200", "ib_read_lat -n 200", "ib_send_lat -n 200 -e", "ib_read_lat -n 200 -e",
	"ib_write_bw -n 5 -a", "ib_read_bw -n 5 -a", "ib_send_bw -n 5 -a",
}

// figures checks that perftest printed a row of results for each size.
func (r *rig) figures(out, line string) {
	r.Helper()
	rows := 1
	if strings.HasSuffix(line, " -a") {
		rows = 23
	}
	if got := strings.Count(out, "\n"+" "); got < rows {
		r.Errorf("%s: want %d rows of results\n%s", line, rows, out)
	}
}

// TestVerbsClient: perftest's client over stag's libraries, with perftest's server over siw.
func TestVerbsClient(t *testing.T) {
	for _, line := range libraryTests {
		row(t, line, about{"perftest server over siw", "-R"}, func(r *rig) {
			env := r.daemon()
			for attempt := 0; attempt < 10; attempt++ {
				server := r.serveInGuest(perftestPort, line+" -R -F -d siw0")
				client := r.program(env, line+" -R -F "+guestV4)
				if r.early(client) {
					r.inGuest("kill $(pidof " + strings.Fields(line)[0] + ")")
					continue
				}
				r.succeeds(client, nil)
				r.ended(server)
				r.figures(client.out.String(), line)
				return
			}
			r.Errorf("the client was refused ten times")
		})
	}
}

// early reports whether a client was refused because it was too early. perftest's client makes a
// first connection, and at once a second. Its server listens for the second after it has closed the
// first listener, and the emulated machine is slow.
func (r *rig) early(client *command) bool {
	r.Helper()
	code := r.code(client)
	client.done <- nil // succeeds waits for the end again
	return code != 0 && strings.Contains(client.out.String()+client.err.String(), "RDMA_CM_EVENT_REJECTED")
}

// TestVerbsServer: perftest's server over stag's libraries, with perftest's client over siw.
func TestVerbsServer(t *testing.T) {
	for _, line := range libraryTests {
		row(t, line, about{"perftest client over siw", "-R"}, func(r *rig) {
			env := r.daemon()
			server := r.program(env, line+" -R -F")
			r.listens(server, perftestPort)
			r.ended(r.startInGuest(line + " -R -F -d siw0 " + ourV4))
			r.succeeds(server, nil)
			r.figures(server.out.String(), line)
		})
	}
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
