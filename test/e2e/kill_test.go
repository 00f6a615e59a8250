package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	common "github.com/stag-rdma/stag/test/rig"
)

// These variables of a victim are its interface and the address to connect to. The descriptor victimSpace is the
// network namespace in which it runs.
const (
	victimLink  = "STAG_E2E_VICTIM_LINK"
	victimPeer  = "STAG_E2E_VICTIM_PEER"
	victimSpace = 3
	victimReady = "taken over"
)

// victim opens an interface, takes over two connections, reports that, and runs until it is killed. The first
// connection transfers octets in both directions, and the other is idle.
func victim(link, peer string) error {
	runtime.LockOSThread()
	if err := unix.Setns(victimSpace, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the namespace: %w", err)
	}
	n, err := nic.Open(nic.Config{Link: link})
	if err != nil {
		return err
	}
	for _, send := range []uint64{1 << 40, 0} {
		c, err := net.Dial("tcp", peer)
		if err != nil {
			return err
		}
		plan := octets.Plan{Send: send, Seed: seedOurs, Expect: 1 << 40, PeerSeed: seedTheirs, Hold: true}
		if _, err := n.Take(context.Background(), c.(*net.TCPConn), octets.NewTransfer(plan), nic.DefaultOptions); err != nil {
			return err
		}
	}
	fmt.Println(victimReady)
	_, err = io.Copy(io.Discard, os.Stdin) // until this process is killed or its parent ends
	return err
}

// TestKilled kills a process that runs connections, so that it cannot clean up. A peer that sends is reset at its next
// segment, nothing stays attached, and the interface can be opened again at once.
func TestKilled(t *testing.T) {
	r := newStage(t, setup{})
	v, k, silent := r.startBusyVictim()
	link := r.lookup()
	if x := r.link(ours).Attrs().Xdp; x == nil || !x.Attached {
		t.Fatal("no program is on the interface while the process runs")
	}
	v.kill()

	r.isReset(<-k.wrote)
	<-k.read
	r.Eventually("the program is gone", func() bool {
		x := r.link(ours).Attrs().Xdp
		return x == nil || !x.Attached
	})
	if n := r.pins(fmt.Sprintf("%d-%d", link.Netns, link.PortIndex)); n != 0 {
		t.Errorf("%d directories of pins are left", n)
	}
	r.open(nic.Config{}) // the claim is stale, and the queue may still be closing

	r.isResetAtLast(silent)

	our, peer := r.connect(way{})
	r.take(our, octets.NewEcho())
	r.pingPong(peer)
}

// startBusyVictim starts a victim and waits until octets flow in both directions between the victim and k. The victim's
// other connection, to silent, is idle.
func (r *rig) startBusyVictim() (v *process, k *talk, silent *net.TCPConn) {
	r.Helper()
	l := r.listen(theirs, false)
	v = r.startVictim(l.Addr().String())
	k = (&talk{conn: r.accept(l), out: seedTheirs, in: seedOurs, send: 1 << 40}).start()
	silent = r.accept(l)
	v.ready()
	r.Eventually("octets flow both ways", func() bool { return k.received.Load() > 1<<20 && k.sent.Load() > 1<<20 })
	return v, k, silent
}

// isResetAtLast checks that an idle peer is reset when it sends.
func (r *rig) isResetAtLast(silent *net.TCPConn) {
	r.Helper()
	_, err := silent.Write([]byte("x"))
	r.Must(err)
	r.Must(silent.SetReadDeadline(common.Deadline()))
	_, err = silent.Read(make([]byte, 1))
	r.isReset(err)
}

// accept accepts a connection.
func (r *rig) accept(l *net.TCPListener) *net.TCPConn {
	r.Helper()
	r.Must(l.SetDeadline(common.Deadline()))
	c, err := l.AcceptTCP()
	r.Must(err)
	r.Cleanup(func() { c.Close() })
	return c
}

// lookup returns the local side's interface as the loader describes it.
func (r *rig) lookup() (l loader.Link) {
	r.Helper()
	r.in(ours, func() error {
		n, err := loader.Open()
		if err != nil {
			return err
		}
		defer n.Close()
		l, err = n.LookupLink(r.pair.Ends[ours].Name)
		return err
	})
	return l
}

// process is a victim.
type process struct {
	*rig
	cmd *exec.Cmd
	out *bufio.Reader
}

// startVictim starts a victim in the local side's namespace.
func (r *rig) startVictim(peer string) *process {
	r.Helper()
	var space *os.File
	r.in(ours, func() (err error) {
		space, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	defer space.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), victimLink+"="+r.pair.Ends[ours].Name, victimPeer+"="+peer)
	cmd.ExtraFiles = []*os.File{space}
	cmd.Stderr = os.Stderr
	_, err := cmd.StdinPipe() // closed when this process ends, in whatever way
	r.Must(err)
	out, err := cmd.StdoutPipe()
	r.Must(err)
	r.Must(cmd.Start())
	r.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &process{r, cmd, bufio.NewReader(out)}
}

// ready waits until the victim runs its connections.
func (p *process) ready() {
	p.Helper()
	line, err := p.out.ReadString('\n')
	if strings.TrimSpace(line) != victimReady {
		p.Fatalf("the process says %q, %v", line, err)
	}
}

// kill kills the victim with SIGKILL and waits for its end.
func (p *process) kill() {
	p.Helper()
	p.Must(p.cmd.Process.Kill())
	p.cmd.Wait() // the error is the signal
}
