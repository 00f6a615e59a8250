package doctor_test

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/asavie/xdp"
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// claimVariable turns this test program into a process that claims queue 0 of the
// interface that the variable names.
const claimVariable = "STAG_TEST_CLAIM"

// instance is the directory of the tests' pins, in a BPF file system that only these
// tests see.
const instance = "/sys/fs/bpf/stag/test"

func TestMain(m *testing.M) {
	if name := os.Getenv(claimVariable); name != "" {
		claimAndWait(name)
	}
	need.OwnMounts()
	os.Exit(m.Run())
}

// claimAndWait claims queue 0 of an interface and waits until it is killed.
func claimAndWait(name string) {
	l, err := loader.LookupLink(name)
	if err == nil {
		_, err = loader.NewClaim(l, 0)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	bufio.NewReader(os.Stdin).ReadByte() // until this process is killed or its parent ends
	os.Exit(0)
}

// claimElsewhere starts a process that claims queue 0 of side A's interface. It returns
// the function that kills this process.
func claimElsewhere(t *testing.T, p *pair.Pair) (kill func()) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), claimVariable+"="+p.Ends[pair.A].Name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	rig.Must(t, err)
	out, err := cmd.StdoutPipe()
	rig.Must(t, err)
	rig.Must(t, p.Do(pair.A, cmd.Start))
	kill = func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}
	t.Cleanup(kill)
	if said, err := bufio.NewReader(out).ReadString('\n'); err != nil || strings.TrimSpace(said) != "ready" {
		t.Fatalf("the other process said %q: %v", said, err)
	}
	return kill
}

// mustLoad loads the steering program for side A's interface.
func mustLoad(t *testing.T, p *pair.Pair, o loader.Options) *loader.Steering {
	t.Helper()
	need.XDP(t)
	o.Link, o.OrphanWait = p.Ends[pair.A].Name, time.Hour // tests insert flows without an engine
	var s *loader.Steering
	netns.In(t, p, pair.A, func() (err error) { s, err = loader.Load(o); return err })
	t.Cleanup(func() { rig.Check(t, s.Close()) })
	return s
}

// unloadAfter unloads at the end of the test, so that a failed test does not disturb
// the next.
func unloadAfter(t *testing.T) {
	t.Cleanup(func() { loader.Unload(loader.UnloadOptions{Instance: instance, Force: true}) })
}

// mustClaim claims a queue for this process.
func mustClaim(t *testing.T, l loader.Link, queue int) {
	t.Helper()
	c, err := loader.NewClaim(l, queue)
	rig.Must(t, err)
	t.Cleanup(func() { c.Close() })
}

// knock connects from side B's kernel to port on side A. It returns the error after a
// short time at most.
func knock(t *testing.T, p *pair.Pair, port uint16) (err error) {
	t.Helper()
	netns.In(t, p, pair.B, func() error {
		from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.Ends[pair.B].V4.Addr(), 40000))
		d := net.Dialer{Timeout: 150 * time.Millisecond, LocalAddr: from}
		var c net.Conn
		if c, err = d.Dial("tcp", netip.AddrPortFrom(p.Ends[pair.A].V4.Addr(), port).String()); err == nil {
			c.Close()
		}
		return nil
	})
	return err
}

// openSocket opens an AF_XDP socket of another library on a queue of side A.
func openSocket(t *testing.T, p *pair.Pair, queue int) {
	t.Helper()
	var sock *xdp.Socket
	netns.In(t, p, pair.A, func() (err error) {
		sock, err = xdp.NewSocket(p.Ends[pair.A].Index, queue, &xdp.SocketOptions{
			NumFrames: 64, FrameSize: 4096, FillRingNumDescs: 32,
			CompletionRingNumDescs: 32, RxRingNumDescs: 32, TxRingNumDescs: 32,
		})
		return err
	})
	t.Cleanup(func() { sock.Close() })
}

// foreign attaches a program to side A that is not stag's.
func foreign(t *testing.T, p *pair.Pair) {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "somebody", Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()},
	})
	rig.Must(t, err)
	defer prog.Close()
	netns.In(t, p, pair.A, func() error {
		hook, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: p.Ends[pair.A].Index, Flags: link.XDPGenericMode})
		if err == nil {
			t.Cleanup(func() { hook.Close() })
		}
		return err
	})
}
