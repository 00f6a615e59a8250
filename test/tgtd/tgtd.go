// Package tgtd runs tgtd, the SCSI target of user space, for tests of iSCSI. Each Target has
// a process, a control socket and disks of its own, which are gone when the test ends.
package tgtd

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// Name is the iSCSI name of the target.
const Name = "iqn.2026-01.test.stag:t1"

// LUN is a disk of SIZE octets in a file. LUN 0 is a controller.
const LUN = 1

// Config describes a target.
type Config struct {
	Size int64 // octets of the disk; 0 means 64 MiB
	Null bool  // the disk forgets what is written, and reads as zeros; it has 1 TB
	RAM  bool  // the disk's file is in a tmpfs

	// EveryAddress makes the target listen at every address of its namespace.
	EveryAddress bool

	// Keys are text keys of the target, such as HeaderDigest, with their values.
	Keys map[string]string

	// User and Secret are what an initiator must prove by CHAP. "": nothing.
	User, Secret string
	// PeerUser and PeerSecret are what the target proves.
	PeerUser, PeerSecret string
}

// Target is a running tgtd with one target.
type Target struct {
	t       testing.TB
	portal  netip.AddrPort
	dir     string // of the control socket
	disk    string
	host    netns.Host
	side    pair.Side
	config  Config
	process *exec.Cmd
	ended   chan struct{} // closed when the process has ended
	output  rig.Output
}

// control is the number of the control port. Its socket is in the test's own directory.
const control = "1"

// Start runs a target in the namespace of a side, at port 3260.
func Start(t testing.TB, p *pair.Pair, side pair.Side, c Config) *Target {
	t.Helper()
	return StartAt(t, p, side, 3260, c)
}

// StartAt runs a target in the namespace of a side, at a port.
func StartAt(t testing.TB, p *pair.Pair, side pair.Side, port uint16, c Config) *Target {
	t.Helper()
	need.Tool(t, "tgtd", "tgtadm")
	if c.Size == 0 {
		c.Size = 64 << 20
	}
	g := &Target{t: t, portal: netip.AddrPortFrom(p.Ends[side].V4.Addr(), port), dir: t.TempDir(), host: p, side: side, config: c}
	g.disk = filepath.Join(g.dir, "disk")
	if c.RAM {
		g.disk = filepath.Join(memory(t), "disk")
	}
	rig.Must(t, os.WriteFile(g.Disk(), nil, 0o600))
	rig.Must(t, os.Truncate(g.Disk(), c.Size))
	t.Cleanup(g.Kill)
	g.Run()
	return g
}

// Disk is the file with the octets of the disk.
func (g *Target) Disk() string { return g.disk }

// Portal returns the address and port of the target.
func (g *Target) Portal() netip.AddrPort { return g.portal }

// memory makes a directory in a tmpfs, which the end of the test removes.
func memory(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "stag-tgtd-*")
	rig.Must(t, err)
	t.Cleanup(func() { rig.Check(t, os.RemoveAll(dir)) })
	return dir
}

// URL returns the URL of the disk, with arguments: "" or "?name=value".
func (g *Target) URL(arguments string) string {
	user := ""
	if g.config.User != "" {
		user = g.config.User + "%" + g.config.Secret + "@"
	}
	return fmt.Sprintf("iscsi://%s%v/%s/%d%s", user, g.portal, Name, LUN, arguments)
}

// Run starts the process, and makes the target. It is for a target that was killed.
func (g *Target) Run() {
	g.t.Helper()
	g.process = g.command("tgtd", "-f", "-C", control, "--iscsi", "portal="+g.listens())
	g.process.Stdout, g.process.Stderr = &g.output, &g.output
	g.start()
	rig.Eventually(g.t, "tgtd answers", func() bool {
		return g.adm("--mode", "sys", "--op", "show") == nil
	})
	g.must("--mode", "target", "--op", "new", "--tid", "1", "--targetname", Name)
	g.makeDisk()
	for name, value := range g.config.Keys {
		g.must("--mode", "target", "--op", "update", "--tid", "1", "--name", name, "--value", value)
	}
	g.account(g.config.User, g.config.Secret)
	g.account(g.config.PeerUser, g.config.PeerSecret, "--outgoing")
	g.must("--mode", "target", "--op", "bind", "--tid", "1", "--initiator-address", "ALL")
}

// listens returns where the target listens.
func (g *Target) listens() string {
	if g.config.EveryAddress {
		return fmt.Sprintf("0.0.0.0:%d", g.portal.Port())
	}
	return g.portal.String()
}

func (g *Target) makeDisk() {
	lun := []string{"--mode", "logicalunit", "--tid", "1", "--lun", strconv.Itoa(LUN), "--op"}
	if g.config.Null {
		g.must(append(lun, "new", "--backing-store", "/dev/null", "--bstype", "null")...)
		return
	}
	g.must(append(lun, "new", "--backing-store", g.Disk())...)
	g.must(append(lun, "update", "--params", "thin_provisioning=1")...)
}

// account makes a user of CHAP.
func (g *Target) account(user, secret string, how ...string) {
	if user == "" {
		return
	}
	g.must("--mode", "account", "--op", "new", "--user", user, "--password", secret)
	g.must(append([]string{"--mode", "account", "--op", "bind", "--tid", "1", "--user", user}, how...)...)
}

// start starts the process, which the kernel kills if the test program dies. For that
// the thread that starts the process must live as long as the process.
func (g *Target) start() {
	g.t.Helper()
	process := g.process
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	g.ended = make(chan struct{})
	go func(ended chan struct{}) {
		defer close(ended)
		runtime.LockOSThread()
		err := g.host.Do(g.side, process.Start)
		started <- err
		if err == nil {
			process.Wait() // its error says only that it was killed
		}
	}(g.ended)
	if err := <-started; err != nil {
		g.process = nil
		g.t.Fatal(err)
	}
}

// Kill ends the process at once. tgtd ignores SIGTERM while it has targets.
func (g *Target) Kill() {
	if g.process == nil {
		return
	}
	g.process.Process.Kill()
	<-g.ended
	g.process = nil
	if g.t.Failed() {
		g.t.Logf("tgtd says: %s", g.output.String())
	}
}

func (g *Target) command(name string, arg ...string) *exec.Cmd {
	c := exec.Command(name, arg...)
	c.Env = append(os.Environ(), "TGT_IPC_SOCKET="+filepath.Join(g.dir, "socket"))
	return c
}

// adm runs tgtadm.
func (g *Target) adm(arg ...string) error {
	c := g.command("tgtadm", append([]string{"-C", control, "--lld", "iscsi"}, arg...)...)
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("tgtadm %q: %w: %s", arg, err, bytes.TrimSpace(out))
	}
	return nil
}

func (g *Target) must(arg ...string) {
	g.t.Helper()
	rig.Must(g.t, g.adm(arg...))
}
