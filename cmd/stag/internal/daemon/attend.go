package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma/daemon"
)

// AttendantVariable is in the environment of a daemon that `stag run` has started. Its value
// is a directory to remove at the end, or "". The process has two descriptors: a pidfd of
// the program, and a pipe for one line.
const AttendantVariable = "STAG_DAEMON_ATTENDS"

// Ready is what the daemon writes to the pipe when programs can connect. Anything else is
// an error.
const Ready = "ready"

const (
	programFile = 3
	pipeFile    = 4
)

// Attendant is a daemon that ends when the program of `stag run` has ended, and no other
// program uses it.
type Attendant struct {
	program *os.File
	pipe    *os.File
	private string
}

// Attends returns the Attendant that this process is, or nil. The process that `stag run`
// itself has started starts another one and ends, so that the program has no child that it
// does not know.
func Attends() (*Attendant, error) {
	private, ok := os.LookupEnv(AttendantVariable)
	if !ok {
		return nil, nil
	}
	a := &Attendant{os.NewFile(programFile, "program"), os.NewFile(pipeFile, "pipe"), private}
	if os.Getenv(detachedVariable) != "" {
		return a, nil
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), detachedVariable+"=1")
	cmd.ExtraFiles = []*os.File{a.program, a.pipe}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	os.Exit(0)
	return nil, nil
}

const detachedVariable = "STAG_DAEMON_DETACHED"

// say writes the line, once.
func (a *Attendant) say(line string) {
	if a != nil && a.pipe != nil {
		fmt.Fprintln(a.pipe, line)
		a.pipe.Close()
		a.pipe = nil
	}
}

// Failed tells `stag run` why there is no daemon.
func (a *Attendant) Failed(err error) {
	if err != nil {
		a.say(err.Error())
	}
	if a != nil && a.private != "" {
		os.RemoveAll(a.private)
	}
}

// A daemon without its program looks every idleLook whether others use it. It ends when
// nobody has for idleFor: a program that is just starting must find it.
const (
	idleLook = 50 * time.Millisecond
	idleFor  = 10 * idleLook
)

// until returns a context that ends when the program has ended, and then no program uses d.
func (a *Attendant) until(ctx context.Context, d *daemon.Daemon) context.Context {
	if a == nil {
		return ctx
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		a.await()
		for idle := time.Duration(0); idle < idleFor && ctx.Err() == nil; idle += idleLook {
			time.Sleep(idleLook)
			if d.Clients() != 0 {
				idle = 0
			}
		}
	}()
	return ctx
}

// await waits for the end of the program.
func (a *Attendant) await() {
	set := []unix.PollFd{{Fd: int32(a.program.Fd()), Events: unix.POLLIN}}
	for {
		if n, err := unix.Poll(set, -1); n > 0 || err != nil && err != unix.EINTR {
			return
		}
	}
}
