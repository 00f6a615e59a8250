package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	common "github.com/stag-rdma/stag/test/rig"
)

// node is a network namespace of a rig, as a host of its own.
type node struct {
	*rig
	side pair.Side
}

// bare makes two nodes without a cable. The interfaces of nodes can have any names.
//
// The two ends of a cable must have different indexes. Otherwise Linux takes a veth for a
// physical interface, and reports that it has lost its carrier only a second after the last
// change of any link. The filler occupies an index.
func bare(r *rig) (a, b node) {
	r.Helper()
	r.ip(ours, "link", "del", r.pair.Ends[ours].Name)
	r.ip(theirs, "link", "add", "filler", "type", "bridge")
	return node{r, ours}, node{r, theirs}
}

// cableTo connects the node with another one, which may be of another rig.
func (n node) cableTo(other node, here, there string) {
	n.Helper()
	var far *os.File
	other.in(other.side, func() (err error) {
		far, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	defer far.Close()
	n.in(n.side, func() error {
		veth := netlink.NewVeth(netlink.NewLinkAttrs())
		veth.Name, veth.PeerName, veth.PeerNamespace = here, there, netlink.NsFd(far.Fd())
		return netlink.LinkAdd(veth)
	})
	n.in(n.side, func() error { return loader.SetTxChecksum(here, false) })
	other.in(other.side, func() error { return loader.SetTxChecksum(there, false) })
	n.run("ip link set " + here + " up")
	other.run("ip link set " + there + " up")
}

// run runs a script in the node. The script ends at its first failure.
func (n node) run(script string) {
	n.Helper()
	need.Tool(n.TB, "bash", "ip", "sysctl")
	n.in(n.side, func() error {
		if out, err := exec.Command("bash", "-euc", script).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", script, err, out)
		}
		return nil
	})
}

// daemons is a tree of processes with namespaces of processes and mounts of its own. When
// its first process ends, the kernel ends the others, and nothing of their files is left.
type daemons struct {
	node
	what   string
	first  *exec.Cmd
	ended  chan struct{}
	output common.Output
}

// furnish gives daemons empty directories for their files.
const furnish = `
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=1777 tmpfs /var/tmp
`

// start runs a script that starts daemons, and waits for them. The daemons run before other
// processes: their protocols must not find the machine dead only because it is busy.
func (n node) start(what, script string, args ...string) *daemons {
	n.Helper()
	need.Tool(n.TB, "bash", "unshare", "mount", "nice")
	d := &daemons{node: n, what: what, ended: make(chan struct{})}
	d.first = exec.Command("nice", append([]string{"-n", "-15", "unshare", "--pid", "--mount", "--propagation", "private", "--fork", "--kill-child", "--mount-proc",
		"bash", "-euc", furnish + script, what}, args...)...)
	d.first.Stdout, d.first.Stderr = &d.output, &d.output
	d.first.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		defer close(d.ended)
		runtime.LockOSThread() // the kernel kills the process when this thread ends
		err := n.pair.Do(n.side, d.first.Start)
		started <- err
		if err == nil {
			d.first.Wait() // its error says only that it was killed
		}
	}()
	n.Must(<-started)
	n.Cleanup(func() {
		d.kill()
		if n.Failed() {
			n.Logf("%s of side %v says: %s", what, n.side, d.output.String())
		}
	})
	return d
}

// kill ends the daemons at once.
func (d *daemons) kill() {
	d.first.Process.Kill()
	<-d.ended
}

// says waits until the output has the words.
func (d *daemons) says(words string) {
	d.Helper()
	d.Eventually(d.what+" says "+words, func() bool {
		select {
		case <-d.ended:
			d.Fatalf("%s has ended: %s", d.what, d.output.String())
		default:
		}
		return strings.Contains(d.output.String(), words)
	})
}

// output returns what a command prints in the node.
func (n node) output(name string, args ...string) (out string) {
	n.Helper()
	n.in(n.side, func() error {
		b, err := exec.Command(name, args...).Output()
		out = string(b)
		return err
	})
	return out
}

// write writes a file that only root can read.
func (n node) write(name, content string) {
	n.Helper()
	n.Must(os.WriteFile(name, []byte(content), 0o600))
}
