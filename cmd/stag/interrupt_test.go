package main

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/rig"
)

// long is a size in MiB that a demonstration cannot finish before it is interrupted.
const long = "65536"

// running is a command whose output is read line by line while it runs.
type running struct {
	*testing.T
	cmd   *exec.Cmd
	lines chan string // lines of standard output and standard error; closed when both have ended
	said  []string
}

// launch starts cmd with out as its standard output and error, and reads its lines from in.
func launch(t *testing.T, cmd *exec.Cmd) *running {
	t.Helper()
	r, w, err := os.Pipe()
	rig.Must(t, err)
	t.Cleanup(func() { r.Close() })
	cmd.Stdout, cmd.Stderr = w, w
	rig.Must(t, cmd.Start())
	w.Close()
	x := &running{T: t, cmd: cmd, lines: make(chan string)}
	go func() {
		defer close(x.lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			x.lines <- s.Text()
		}
	}()
	return x
}

// until reads lines until each word was in one of them, in any order. It fails the test if the
// output ends first.
func (x *running) until(words ...string) {
	x.Helper()
	missing := slices.Clone(words)
	for line := range x.lines {
		x.said = append(x.said, line)
		missing = slices.DeleteFunc(missing, func(word string) bool { return strings.Contains(line, word) })
		if len(missing) == 0 {
			return
		}
	}
	x.Fatalf("never said %q, but %q", missing, x.said)
}

// untilClaims waits until the command holds n claims.
func (x *running) untilClaims(n int) {
	x.Helper()
	for end := time.Now().Add(30 * time.Second); files(x.T, loader.RuntimeDir) < n; {
		if time.Now().After(end) {
			x.Fatalf("no %d claims within 30 s", n)
		}
		time.Sleep(50 * time.Microsecond)
	}
}

// rest reads the remaining lines, waits for the command to end, and returns its exit code.
func (x *running) rest() (code int) {
	for line := range x.lines {
		x.said = append(x.said, line)
	}
	x.cmd.Wait()
	return x.cmd.ProcessState.ExitCode()
}

// moments are the points at which a demonstration is interrupted.
var moments = map[string]func(*running){
	"as the first end is claimed":  func(x *running) { x.untilClaims(1) },
	"as the first end is opened":   func(x *running) { x.untilClaims(2) },
	"as the second end is claimed": func(x *running) { x.untilClaims(3) },
	"as the second end is opened":  func(x *running) { x.untilClaims(4) },
	"when both ends are open":      func(x *running) { x.until("Two namespaces") },
	"as the kernels connect":       func(x *running) { x.until("Side A dials") },
	"as connections are taken over": func(x *running) {
		x.until("Side A dials")
		time.Sleep(5 * time.Millisecond)
	},
	"a little later": func(x *running) {
		x.until("Side A dials")
		time.Sleep(20 * time.Millisecond)
	},
	"when both ends are taken over": func(x *running) { x.until("are taken over") },
}

// TestDemoInterrupted: Ctrl-C leaves nothing behind, at every moment.
func TestDemoInterrupted(t *testing.T) {
	for name, moment := range moments {
		t.Run(name, func(t *testing.T) {
			before := tracesOf(t)
			x := launch(t, offloaded(t, "--size", long))
			moment(x)
			x.interrupted(os.Interrupt)
			before.gone(t)
		})
	}
}

// TestDemoEndedMidway: each signal that asks the process to end is sent in the middle of its transfer. The
// demonstration cleans up.
func TestDemoEndedMidway(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			before := tracesOf(t)
			x := launch(t, offloaded(t, "--size", "1024"))
			x.until("RDMA Write")
			if now := tracesOf(t); now.programs != before.programs+2 || now.claims != before.claims+4 {
				t.Errorf("in mid-transfer: %v, and before %v", now, before)
			}
			x.interrupted(sig)
			before.gone(t)
		})
	}
}

// interrupted sends sig, and demands that the command reports the interrupt and exits with 1.
func (x *running) interrupted(sig os.Signal) {
	x.Helper()
	rig.Must(x.T, x.cmd.Process.Signal(sig))
	code := x.rest()
	if last := x.said[len(x.said)-1]; code != exitFailed || last != "stag: demo: interrupted" {
		x.Errorf("exit code %d, last line %q", code, last)
	}
}

// TestDemoKilled: a killed process leaves only the files of its claims. These files do not keep a resource busy.
func TestDemoKilled(t *testing.T) {
	before := tracesOf(t)
	x := launch(t, offloaded(t, "--size", "1024"))
	x.until("RDMA Write")
	rig.Must(t, x.cmd.Process.Kill())
	if code := x.rest(); code != -1 {
		t.Errorf("exit code %d", code)
	}
	claims := files(t, loader.RuntimeDir)
	clearClaims(t)
	before.gone(t)
	if claims != before.claims+4 {
		t.Errorf("%d claims left, and before there were %d", claims, before.claims)
	}
}

// TestDemoUnread: a demonstration ends when the reader of its output goes away.
func TestDemoUnread(t *testing.T) {
	before := tracesOf(t)
	cmd := offloaded(t, "--size", "8")
	r, w, err := os.Pipe()
	rig.Must(t, err)
	r.Close()
	var errs strings.Builder
	cmd.Stdout, cmd.Stderr = w, &errs
	rig.Must(t, cmd.Start())
	w.Close()
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(errs.String(), "broken pipe") {
		t.Errorf("exit code %d, %q", code, errs.String())
	}
	before.gone(t)
}

// TestDemoInterruptedLate: the interrupt comes in a later operation than the first.
func TestDemoInterruptedLate(t *testing.T) {
	for _, word := range []string{"RDMA Read", "Send"} {
		t.Run(word, func(t *testing.T) {
			before := tracesOf(t)
			x := launch(t, offloaded(t, "--size", "128"))
			x.until(word)
			x.interrupted(os.Interrupt)
			before.gone(t)
		})
	}
}

// TestDemoInterruptedWithoutRights: an interrupt ends a demonstration over the loopback.
func TestDemoInterruptedWithoutRights(t *testing.T) {
	for _, word := range []string{"Kernel port", "Side A dials", "RDMA Write"} {
		t.Run(word, func(t *testing.T) {
			x := launch(t, anyone(t, "--size", long))
			x.until(word)
			x.interrupted(os.Interrupt)
		})
	}
}
