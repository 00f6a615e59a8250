package tenant

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/reach"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// Tenant is the process as the test sees it.
type Tenant struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	its []*os.File // mem and maps
}

// Start starts a tenant. It ends with the test.
func Start(t testing.TB) *Tenant { return start(t, nil) }

// StartAs starts a tenant with the rights of another user. That takes root, unless the
// user is the test's own.
func StartAs(t testing.TB, user uint32) *Tenant {
	if uint32(os.Geteuid()) == user {
		return Start(t)
	}
	need.Root(t)
	return start(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}})
}

func start(t testing.TB, as *syscall.SysProcAttr) *Tenant {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	rig.Must(t, err)
	ours, theirs := os.NewFile(uintptr(fds[0]), "tenant"), os.NewFile(uintptr(fds[1]), "test")
	defer ours.Close()
	defer theirs.Close()
	p := &Tenant{t: t, cmd: exec.Command("/proc/self/exe")}
	p.cmd.Env, p.cmd.Dir = append(os.Environ(), variable+"=serve"), "/"
	p.cmd.Stderr, p.cmd.SysProcAttr, p.cmd.ExtraFiles = os.Stderr, as, []*os.File{theirs}
	p.in, err = p.cmd.StdinPipe()
	rig.Must(t, err)
	out, err := p.cmd.StdoutPipe()
	rig.Must(t, err)
	rig.Must(t, p.cmd.Start())
	t.Cleanup(func() {
		p.Kill()
		for _, f := range p.its {
			f.Close()
		}
	})
	p.out = bufio.NewReader(out)
	p.its = receive(t, ours)
	if line := p.line(); line != "ready" {
		t.Fatalf("the tenant says %q", line)
	}
	return p
}

// receive gets the descriptors that the tenant passes.
func receive(t testing.TB, f *os.File) (files []*os.File) {
	t.Helper()
	c, err := net.FileConn(f)
	rig.Must(t, err)
	defer c.Close()
	octet, oob := make([]byte, 1), make([]byte, 64)
	_, n, _, _, err := c.(*net.UnixConn).ReadMsgUnix(octet, oob)
	rig.Must(t, err)
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	rig.Must(t, err)
	fds, err := unix.ParseUnixRights(&messages[0])
	rig.Must(t, err)
	for _, fd := range fds {
		unix.CloseOnExec(fd)
		files = append(files, os.NewFile(uintptr(fd), "of the tenant"))
	}
	return files
}

// Client returns duplicates of the descriptors that the tenant has passed when it started,
// and a pidfd.
func (p *Tenant) Client() reach.Client {
	p.t.Helper()
	fd, err := unix.PidfdOpen(p.Pid(), 0)
	rig.Must(p.t, err)
	return reach.Client{Mem: p.dup(0), Maps: p.dup(1), Process: os.NewFile(uintptr(fd), "pidfd")}
}

func (p *Tenant) dup(i int) *os.File {
	p.t.Helper()
	fd, err := unix.FcntlInt(p.its[i].Fd(), unix.F_DUPFD_CLOEXEC, 3)
	rig.Must(p.t, err)
	return os.NewFile(uintptr(fd), p.its[i].Name())
}

// Space opens the tenant's memory. It closes with the test.
func (p *Tenant) Space() *reach.Space {
	p.t.Helper()
	s, err := reach.Open(p.Client())
	rig.Must(p.t, err)
	p.t.Cleanup(func() { rig.Check(p.t, s.Close()) })
	return s
}

// Pid returns the process id.
func (p *Tenant) Pid() int { return p.cmd.Process.Pid }

func (p *Tenant) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("the tenant says %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// Do sends a command (see Main), and returns the answer.
func (p *Tenant) Do(format string, args ...any) string {
	p.t.Helper()
	fmt.Fprintf(p.in, format+"\n", args...)
	line := p.line()
	if strings.HasPrefix(line, "error") {
		p.t.Fatalf("%s: the tenant says %q", fmt.Sprintf(format, args...), line)
	}
	return line
}

// Number sends a command whose answer is a number.
func (p *Tenant) Number(format string, args ...any) (n uint64) {
	p.t.Helper()
	answer := p.Do(format, args...)
	if _, err := fmt.Sscan(answer, &n); err != nil {
		p.t.Fatalf("the tenant says %q", answer)
	}
	return n
}

// Kill ends the tenant at once.
func (p *Tenant) Kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait() // the error is the signal
}
