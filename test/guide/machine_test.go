package guide

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/rig"
)

// machine looks like a host of its own to stag. It has a network namespace, a host
// name, and a mount namespace with its own /sys, BPF file system and /run. A sleeping
// process, the holder, keeps the namespaces.
type machine struct {
	name string
	bin  string // directory with the stag binary, the first in the search path
	hold *exec.Cmd
}

// starter starts the holder on a thread that lives as long as the holder. The kernel
// kills the holder when this thread ends. Threads that have been inside a machine end
// early.
func (m *machine) starter(started chan<- error, ended chan<- struct{}) {
	runtime.LockOSThread()
	err := m.hold.Start()
	started <- err
	if err == nil {
		m.hold.Wait()
	}
	close(ended)
}

// furnish makes the namespaces look like a machine. They are private: nothing is
// visible outside, and everything ends with the holder.
const furnish = `
mount -t sysfs sysfs /sys
mount -t bpf bpf /sys/fs/bpf
mount -t tmpfs tmpfs /run
hostname "$1"
ip link set lo up
echo ready
exec sleep infinity
`

func newMachine(t *testing.T, name, bin string) *machine {
	t.Helper()
	m := &machine{name: name, bin: bin}
	m.hold = exec.Command("unshare", "--net", "--mount", "--uts", "--propagation", "private", "bash", "-euc", furnish, "bash", name)
	m.hold.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var complaints bytes.Buffer
	m.hold.Stderr = &complaints
	out, err := m.hold.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	started, ended := make(chan error, 1), make(chan struct{})
	go m.starter(started, ended)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.hold.Process.Kill()
		<-ended
	})
	line := make([]byte, len("ready\n"))
	if n, _ := out.Read(line); string(line[:n]) != "ready\n" {
		t.Fatalf("machine %s: %s", name, complaints.String())
	}
	return m
}

// cable connects the two machines by interfaces called eth1. Sent packets have complete
// checksums, as on a NIC.
func cable(t *testing.T, left, right *machine) {
	t.Helper()
	err := left.inside(func() error {
		veth := &netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "eth1", NumTxQueues: 1, NumRxQueues: 1}, PeerName: "eth1",
			PeerNumTxQueues: 1, PeerNumRxQueues: 1, PeerNamespace: netlink.NsPid(right.hold.Process.Pid),
		}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("make the cable: %w", err)
		}
		return loader.SetTxChecksum("eth1", false)
	})
	if err == nil {
		err = right.inside(func() error { return loader.SetTxChecksum("eth1", false) })
	}
	if err != nil {
		t.Fatal(err)
	}
}

// inside runs f on a thread in the machine's network namespace.
func (m *machine) inside(f func() error) error {
	there, err := netns.GetFromPid(m.hold.Process.Pid)
	if err != nil {
		return err
	}
	defer there.Close()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := netns.Set(there); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// command returns a script for this machine. It runs line by line, as in a shell that
// stops at the first failure. The only file of stag on the machine is the binary.
func (m *machine) command(script string) *exec.Cmd {
	cmd := exec.Command("nsenter", "--target", strconv.Itoa(m.hold.Process.Pid), "--net", "--mount", "--uts",
		"bash", "-e", "-o", "pipefail", "-c", script)
	cmd.Env = []string{"PATH=" + m.bin + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	cmd.Dir = "/"
	// The process group is new, as for a job of a shell, so that Ctrl-C reaches all
	// processes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// job is a command that runs in the background.
type job struct {
	m    *machine
	text string
	cmd  *exec.Cmd
	out  rig.Output
	done chan error
}

func (m *machine) start(t *testing.T, script string) *job {
	t.Helper()
	j := &job{m: m, text: script, cmd: m.command(script), done: make(chan error, 1)}
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.out
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { j.done <- j.cmd.Wait() }()
	t.Cleanup(func() { syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL) })
	return j
}

// limit is far longer than any step needs. It ends a step that hangs.
const limit = 2 * time.Minute

// end waits for the job. Its exit code must be 0.
func (j *job) end(t *testing.T) string {
	t.Helper()
	select {
	case err := <-j.done:
		if err != nil {
			t.Fatalf("%s: %s\n%v\n%s", j.m.name, j.text, err, j.out.String())
		}
	case <-time.After(limit):
		t.Fatalf("%s: %s\ndoes not end\n%s", j.m.name, j.text, j.out.String())
	}
	return j.out.String()
}

// interrupt sends Ctrl-C to the job.
func (j *job) interrupt(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-j.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// build builds the stag binary in an empty directory.
func build(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "stag"), "../../cmd/stag")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build stag: %v\n%s", err, strings.TrimSpace(string(out)))
	}
	return dir
}
