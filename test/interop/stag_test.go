//go:build interop

package interop

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	common "github.com/stag-rdma/stag/test/rig"
)

// command is a stag command that runs in namespace A.
type command struct {
	cmd      *exec.Cmd
	out, err common.Output
	done     chan error
}

// stag starts the stag command. It is killed when the row ends.
func (r *rig) stag(args ...string) *command {
	r.Helper()
	return r.startHere(r.bin, args...)
}

// startHere starts a program in namespace A. It is killed when the row ends.
func (r *rig) startHere(file string, args ...string) *command {
	r.Helper()
	c := &command{cmd: exec.Command(file, args...), done: make(chan error, 1)}
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.err
	ended := make(chan struct{})
	r.Must(r.launch(pair.A, c.cmd, func(err error) {
		c.done <- err
		close(ended)
	}))
	r.Cleanup(func() {
		c.cmd.Process.Kill()
		<-ended
	})
	return c
}

// serves waits until the command prints that it listens.
func (r *rig) serves(c *command, mark string) *command {
	r.Helper()
	for end := time.Now().Add(patience); !strings.Contains(c.err.String()+c.out.String(), mark); time.Sleep(10 * time.Millisecond) {
		select {
		case err := <-c.done:
			r.Fatalf("%v: %v\n%s%s", c.cmd.Args, err, c.out.String(), c.err.String())
		default:
		}
		if time.Now().After(end) {
			r.Fatalf("%v does not say %q\n%s%s", c.cmd.Args, mark, c.out.String(), c.err.String())
		}
	}
	return c
}

// code waits for the end of the command and returns its exit code. It gives up if no octets
// move for the length of patience.
func (r *rig) code(c *command) int {
	r.Helper()
	for w := r.sniffer.progress.Wait(patience); ; {
		select {
		case <-c.done:
			return c.cmd.ProcessState.ExitCode()
		case <-time.After(time.Second):
		}
		if w.Stuck() {
			c.cmd.Process.Signal(os.Interrupt)
			r.Fatalf("%v does not end, and no octets have moved for %v\n%s%s", c.cmd.Args, patience, c.out.String(), c.err.String())
		}
	}
}

// succeeds waits for the end of the command. The exit code must be 0. If result is not
// nil, succeeds parses the output as JSON into result.
func (r *rig) succeeds(c *command, result any) {
	r.Helper()
	if code := r.code(c); code != 0 {
		r.Fatalf("%v: exit code %d\n%s%s", c.cmd.Args, code, c.out.String(), c.err.String())
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal([]byte(c.out.String()), result); err != nil {
		r.Fatalf("%v: %v\n%s", c.cmd.Args, err, c.out.String())
	}
}
