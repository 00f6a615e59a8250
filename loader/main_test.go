package loader_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
)

// These variables turn this test program into another program.
const (
	helperVariable = "STAG_TEST_HELPER" // name of the helper to run
	linkVariable   = "STAG_TEST_LINK"   // name of the helper's interface
)

// TestMain gives the tests their own mounts, or runs a helper process for them.
func TestMain(m *testing.M) {
	if what := os.Getenv(helperVariable); what != "" {
		helper(what, os.Getenv(linkVariable))
	}
	need.OwnMounts()
	os.Exit(m.Run())
}

// helper is the main function of a helper process. It prints one line. Then it waits to
// be killed, or ends if there is nothing to wait for.
func helper(what, name string) {
	var err error
	if step, ok := strings.CutPrefix(what, "load until "); ok {
		loader.SetLoadStep(func(done string) {
			if done == step {
				unix.Kill(os.Getpid(), unix.SIGKILL)
			}
		})
		_, err = loader.Load(loader.Options{Link: name, Pin: instance, Generic: true, Tune: loader.TuneThroughput})
		fmt.Println("survived:", err)
		os.Exit(0)
	}
	if steps, ok := strings.CutPrefix(what, "move until step "); ok {
		n, _ := strconv.Atoi(steps)
		loader.SetMoveStep(func(string) {
			if n--; n < 0 {
				unix.Kill(os.Getpid(), unix.SIGKILL)
			}
		})
		fmt.Println("survived:", moveAll(strings.Split(name, " ")))
		os.Exit(0)
	}
	switch what {
	case "stay": // only stay in the namespace
	case "load":
		_, err = loader.Load(loader.Options{Link: name})
	case "load pinned":
		_, err = loader.Load(loader.Options{Link: name, Pin: instance})
	case "sweep without a BPF file system":
		if err = inMounts("sysfs", "/sys"); err == nil {
			_, err = loader.Sweep()
		}
	case "sweep with another BPF file system":
		if err = inMounts("bpf", "/sys/fs/bpf"); err == nil {
			_, err = loader.Sweep()
		}
	case "sweep with another BPF file system, without CAP_SYS_ADMIN":
		if err = inMounts("bpf", "/sys/fs/bpf"); err == nil {
			dropCapabilities(unix.CAP_SYS_ADMIN)
			_, err = loader.Sweep()
		}
	case "adopt in a container":
		if err = unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
			break
		}
		var s *loader.Steering
		if s, err = loader.Adopt(name); err == nil {
			err = s.Insert(bpf.FlowKey{Family: 4}, bpf.Flow{ID: 1, Kind: bpf.KindRDMA, State: bpf.Live})
		}
	case "own a lane in a container":
		if err = unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil {
			break
		}
		err = ownLane(name)
	case "adopt":
		_, err = loader.Adopt(name)
	case "unload as nobody":
		if err = syscall.Setuid(65534); err == nil {
			_, err = loader.Unload(loader.UnloadOptions{Instance: instance})
		}
	case "claim":
		var l loader.Link
		if l, err = loader.LookupLink(name); err == nil {
			_, err = loader.NewClaim(l, 0)
		}
	case "enter another namespace without capabilities":
		var p *pair.Pair
		var there *loader.Namespace
		if p, err = pair.New(pair.Config{}); err != nil {
			break
		}
		p.Do(pair.A, func() error {
			there, err = loader.CurrentNamespace()
			return err
		})
		if err == nil {
			dropCapabilities(forLoading...)
			err = there.Do(func() error { return nil })
		}
	case "load without capabilities":
		dropCapabilities(forLoading...)
		_, err = loader.Load(loader.Options{Link: name})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(0)
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadByte() // until this process is killed or its parent ends
	os.Exit(0)
}

// moveAll moves the addresses of the first of two interfaces to the second.
func moveAll(names []string) error {
	from, err := loader.LookupLink(names[0])
	if err != nil {
		return err
	}
	to, err := loader.LookupLink(names[1])
	if err != nil {
		return err
	}
	m, err := loader.NewMover()
	if err != nil {
		return err
	}
	defer m.Close()
	_, err = m.MoveAddresses(context.Background(), from, to, loader.MoveOptions{})
	return err
}

// noPID is a pid that no process here has.
const noPID = 1<<22 + 1

// ownLane adopts the program, reserves a lane and inserts containerFlows. It stands for an
// engine in a container with its own pids.
func ownLane(name string) error {
	s, err := loader.Adopt(name)
	if err != nil {
		return err
	}
	fd, err := loader.LaneSocket()
	if err != nil {
		return err
	}
	lanes, err := s.ReserveLanes(0, 1)
	if err != nil {
		return err
	}
	if err := lanes.Set(0, fd); err != nil {
		return err
	}
	for pid, k := range containerFlows {
		f := bpf.Flow{ID: bpf.FlowID(pid), Kind: bpf.KindRDMA, State: bpf.Live, Owner: lanes.Slot(0), PID: pid}
		if err := s.Insert(k, f); err != nil {
			return err
		}
	}
	return nil
}

// containerFlows are the flows of an engine in a container by the engine's pid. Outside the
// container, no process has the first pid, and another process has the second.
var containerFlows = map[uint32]bpf.FlowKey{noPID: {Family: 4}, 1: {Family: 4, LocalPort: [2]byte{1}}}

// inMounts mounts a new file system for the calling thread.
func inMounts(kind, at string) error {
	runtime.LockOSThread()
	return errors.Join(unix.Unshare(unix.CLONE_NEWNS|unix.CLONE_FS), unix.Mount(kind, at, kind, 0, ""))
}

// forLoading are the capabilities that a load needs.
var forLoading = []int{unix.CAP_BPF, unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN}

// dropCapabilities removes capabilities from the calling thread, and locks the goroutine
// to that thread.
func dropCapabilities(which ...int) {
	runtime.LockOSThread() // capabilities belong to a thread
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	err := unix.Capget(&header, &data[0])
	for _, bit := range which {
		data[bit/32].Effective &^= 1 << (bit % 32)
	}
	if err == nil {
		err = unix.Capset(&header, &data[0])
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// other is a helper process in side's namespace.
type other struct {
	*exec.Cmd
	said string // first line of the output
}

// dies runs a helper for side A's interface and kills it.
func dies(t *testing.T, p *pair.Pair, what string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperVariable+"="+what, linkVariable+"="+p.Ends[pair.A].Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	var out []byte
	err := p.Do(pair.A, func() (err error) {
		out, err = cmd.CombinedOutput()
		return err
	})
	if failed := new(exec.ExitError); !errors.As(err, &failed) || !failed.Sys().(syscall.WaitStatus).Signaled() {
		t.Fatalf("not killed: %v: %s", err, out)
	}
}

// startOther starts a helper for side's interface and returns when the helper has
// printed its line.
func startOther(t *testing.T, p *pair.Pair, side pair.Side, what string) *other {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperVariable+"="+what, linkVariable+"="+p.Ends[side].Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if strings.HasSuffix(what, "in a container") {
		cmd.SysProcAttr.Cloneflags, cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWPID, unix.CLONE_NEWNS
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Do(side, cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the other process said nothing: %v", err)
	}
	return &other{cmd, strings.TrimSpace(said)}
}

// kill kills the process with SIGKILL.
func (o *other) kill(t *testing.T) {
	t.Helper()
	if err := o.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	o.Wait()
}

// load loads the program for side A's interface.
func load(p *pair.Pair, o loader.Options) (s *loader.Steering, err error) {
	if o.Link == "" {
		o.Link = p.Ends[pair.A].Name
	}
	if o.OrphanWait == 0 {
		o.OrphanWait = time.Hour // tests insert flows without an engine
	}
	err = p.Do(pair.A, func() (err error) {
		s, err = loader.Load(o)
		return err
	})
	return s, err
}

func mustLoad(t *testing.T, p *pair.Pair, o loader.Options) *loader.Steering {
	t.Helper()
	need.XDP(t)
	s, err := load(p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
