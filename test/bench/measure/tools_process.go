package measure

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// process is a tool that runs on a side of a pair. It is killed when its context ends
// or when this process ends.
type process struct {
	name     string
	cmd      *exec.Cmd
	out, err said
	done     chan struct{}
	failed   error // valid when done is closed
}

// said is what a process has written so far.
type said struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// ownSys mounts a /sys that shows the program its own network namespace. Some programs
// look for interfaces there.
const ownSys = `mount -t sysfs sysfs /sys && exec "$0" "$@"`

// startProcess starts the tool called name, with mounts of its own. env is added to its
// environment.
func startProcess(ctx context.Context, p *pair.Pair, side pair.Side, name string, args []string, env ...string) (*process, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return nil, err
	}
	x := &process{name: name, done: make(chan struct{})}
	x.cmd = exec.CommandContext(ctx, "/bin/sh", append([]string{"-c", ownSys, path}, args...)...)
	x.cmd.Dir = "/"
	x.cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "UCX_TLS=tcp", "UCX_NET_DEVICES=" + p.Ends[side].Name}
	x.cmd.Env = append(x.cmd.Env, env...)
	x.cmd.Stdout, x.cmd.Stderr = &x.out, &x.err
	x.cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	x.cmd.WaitDelay = time.Second
	if err := p.Do(side, x.cmd.Start); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	go func() {
		x.failed = x.cmd.Wait()
		close(x.done)
	}()
	return x, nil
}

// stop kills the process if it still runs, and waits for its end.
func (x *process) stop() {
	x.cmd.Process.Kill()
	<-x.done
}

// end asks the process to end, waits for that, and kills the process if it takes too long.
func (x *process) end() {
	x.cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-x.done:
	case <-time.After(5 * time.Second):
		x.stop()
	}
}

// output waits for the end of the process and returns its output.
func (x *process) output(ctx context.Context) ([]byte, error) {
	<-x.done
	if x.failed != nil || ctx.Err() != nil {
		return nil, x.complaint(ctx)
	}
	return []byte(x.out.String()), nil
}

// complaint says how the process ended, with the last line of its error output.
func (x *process) complaint(ctx context.Context) error {
	err := x.failed
	if ctx.Err() != nil {
		err = context.Cause(ctx)
		if err == context.DeadlineExceeded {
			return fmt.Errorf("%s: has not finished in time and was killed", x.name)
		}
	}
	said := strings.TrimSpace(x.err.String())
	if said == "" {
		said = strings.TrimSpace(x.out.String())
	}
	last := said[strings.LastIndexByte(said, '\n')+1:]
	if err == nil {
		return fmt.Errorf("%s: has ended: %q", x.name, last)
	}
	return fmt.Errorf("%s: %w: %q", x.name, err, last)
}

// awaitListening waits until a server listens at a port on the process's side.
func (x *process) awaitListening(ctx context.Context, p *pair.Pair, port int) error {
	for {
		listens, err := listening(p, port)
		if err != nil || listens {
			return err
		}
		select {
		case <-x.done: // also when ctx has ended
			return x.complaint(ctx)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// listening reports whether a server listens at port on the receiving side.
func listening(p *pair.Pair, port int) (yes bool, err error) {
	err = p.Do(to, func() error {
		for _, table := range []string{"tcp", "tcp6"} {
			text, err := os.ReadFile("/proc/thread-self/net/" + table)
			if err != nil {
				return err
			}
			yes = yes || listensIn(string(text), port)
		}
		return nil
	})
	return yes, err
}

// listensIn looks for a listener at port in list, the contents of /proc/net/tcp.
// Its fields are number, address:port in hexadecimal, the peer's address:port, state,
// and more.
func listensIn(list string, port int) bool {
	for line := range strings.Lines(list) {
		f := strings.Fields(line)
		if len(f) > 3 && f[3] == "0A" && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
			return true
		}
	}
	return false
}
