package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/rig"
)

// fake is a Source made of functions. With a nil function the request must not come.
type fake struct {
	report  func(context.Context) (report.Engine, error)
	regions []report.MR
	capture func(context.Context, report.Filter, func(report.Batch) error) error
	drain   func(context.Context, string, func(report.Drain)) (report.Drain, error)
	undrain func(string) (report.Drain, error)
	upgrade func(context.Context, func(report.Upgrade)) (report.Upgrade, error)
}

func (f fake) Report(ctx context.Context, _ report.Parts) (report.Engine, error) {
	return f.report(ctx)
}
func (f fake) Regions(yield func(report.MR) bool) {
	for _, mr := range f.regions {
		if !yield(mr) {
			return
		}
	}
}
func (f fake) Capture(ctx context.Context, filter report.Filter, g func(report.Batch) error) error {
	return f.capture(ctx, filter, g)
}

func (f fake) Drain(ctx context.Context, device string, progress func(report.Drain)) (report.Drain, error) {
	return f.drain(ctx, device, progress)
}
func (f fake) Undrain(device string) (report.Drain, error) { return f.undrain(device) }
func (f fake) Upgrade(ctx context.Context, progress func(report.Upgrade)) (report.Upgrade, error) {
	return f.upgrade(ctx, progress)
}

// saying returns a Source that always reports e.
func saying(e report.Engine) fake {
	return fake{report: func(context.Context) (report.Engine, error) { return e, nil }, regions: e.MRs}
}

// plain is a report of the right schema and not much else.
var plain = report.Engine{Schema: report.Schema, Program: "plain"}

// sender captures n packets, then ends with err.
func sender(n int, err error) fake {
	return fake{capture: func(_ context.Context, _ report.Filter, f func(report.Batch) error) error {
		for i := range n {
			if err := f(report.Batch{Packets: []report.Packet{{Device: "eth0", Length: i}}}); err != nil {
				return err
			}
		}
		return err
	}}
}

// endless captures packets of 64 KiB until its context ends.
var endless = fake{capture: func(ctx context.Context, _ report.Filter, f func(report.Batch) error) error {
	b := report.Batch{Packets: []report.Packet{{Length: 64 << 10, Data: make([]byte, 64<<10)}}}
	for ctx.Err() == nil {
		if err := f(b); err != nil {
			return err
		}
	}
	return nil
}}

// serve answers for s at a socket of its own until the test ends. Then it checks that
// neither a goroutine nor a file is left.
func serve(t *testing.T, s Source) (Endpoint, *Server) {
	t.Helper()
	goroutines := runtime.NumGoroutine()
	e := Endpoint{Path: filepath.Join(t.TempDir(), "s"), PID: os.Getpid(), Adapter: 1, UID: os.Geteuid()}
	server, err := Serve(e.Path, s, rig.Silent())
	rig.Must(t, err)
	t.Cleanup(func() {
		rig.Must(t, server.Close())
		rig.Must(t, server.Close())
		if _, err := os.Lstat(e.Path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
		rig.Eventually(t, "goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines })
	})
	return e, server
}

// roles are what this program does as a child of its tests, by the variable of
// roleVariable.
const roleVariable = "STAG_CONTROL_TEST"

var roles = map[string]func(arg string) error{
	// serve answers at a socket until it is killed: it never completes a report, and
	// never ends a capture.
	"serve": func(path string) error {
		stuck := fake{capture: endless.capture, report: func(ctx context.Context) (report.Engine, error) {
			fmt.Println("asked")
			<-ctx.Done()
			return report.Engine{}, ctx.Err()
		}}
		if _, err := Serve(path, stuck, rig.Silent()); err != nil {
			return err
		}
		fmt.Println("serving")
		select {}
	},
	// own serves one report at a socket of this user's own, and prints the socket's
	// path.
	"own": func(string) error {
		path, err := Name(Number())
		if err == nil {
			_, err = Serve(path, saying(plain), rig.Silent())
		}
		if err != nil {
			return err
		}
		fmt.Println(path)
		select {}
	},
	// report asks the engine in the socket's name, or the parent.
	"report": func(path string) error {
		e := Endpoint{Path: path, PID: os.Getppid(), Adapter: 1}
		if pid, _, ok := parse(path); ok {
			e.PID = pid
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err == nil {
			e.UID = int(st.Uid)
		}
		_, err := e.Report(context.Background())
		return err
	},
	// engines prints the engines of a process.
	"engines": func(pid string) error {
		n, err := strconv.Atoi(pid)
		if err != nil {
			return err
		}
		list, err := Engines(n)
		for _, e := range list {
			fmt.Println(e.Path)
		}
		return err
	},
	// called listens at the given path, and prints its own pid.
	"called": func(path string) error {
		if _, err := Serve(path, saying(plain), rig.Silent()); err != nil {
			return err
		}
		fmt.Println(os.Getpid())
		select {}
	},
	"name": func(string) error {
		path, err := Name(1)
		if err == nil {
			fmt.Println(path)
		}
		return err
	},
}

func TestMain(m *testing.M) {
	role, arg, _ := strings.Cut(os.Getenv(roleVariable), " ")
	if f := roles[role]; f != nil {
		if err := f(arg); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child is this program in a role.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

// nobody is a user id that no test runs as.
const nobody = 65534

// run starts the role as the user, with env added to its environment. It is killed when
// the test ends.
func run(t *testing.T, uid int, role string, env ...string) *child {
	t.Helper()
	return start(t, uid, role, &syscall.SysProcAttr{}, env...)
}

// start is run with process attributes.
func start(t *testing.T, uid int, role string, how *syscall.SysProcAttr, env ...string) *child {
	t.Helper()
	c := &child{t: t, cmd: exec.Command("/proc/self/exe")}
	c.cmd.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	c.cmd.SysProcAttr, how.Pdeathsig = how, syscall.SIGKILL
	c.cmd.Dir = "/"
	if uid != os.Geteuid() {
		c.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	out, err := c.cmd.StdoutPipe()
	rig.Must(t, err)
	c.lines = bufio.NewScanner(out)
	rig.Must(t, c.cmd.Start())
	t.Cleanup(c.kill)
	return c
}

// line returns the next line that the child prints, or "" at its end.
func (c *child) line() string {
	c.lines.Scan()
	return c.lines.Text()
}

// all returns everything that the child prints until it ends.
func (c *child) all() string {
	var b strings.Builder
	for c.lines.Scan() {
		b.WriteString(c.lines.Text())
	}
	return b.String()
}

func (c *child) kill() {
	c.cmd.Process.Kill()
	io.Copy(io.Discard, strings.NewReader(c.all()))
	c.cmd.Wait()
}
