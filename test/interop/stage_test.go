//go:build interop

package interop

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	common "github.com/stag-rdma/stag/test/rig"
)

// These are the addresses of stag's side and of the guest.
const (
	ourV4, ourV6     = "192.0.2.1", "2001:db8::1"
	guestV4, guestV6 = "192.0.2.11", "2001:db8::11"
)

// tapName is the guest's interface in namespace B. bondTaps are two more, which only rows
// with a bond use.
const tapName = "guest0"

var bondTaps = [2]string{"guest1", "guest2"}

// stage is shared by all rows. Namespace A has stag's end of the cable. Namespace B has
// the bridge to the guest. The guest is a part of the stage.
type stage struct {
	dir    string // temporary directory with the stag binary and the guest's sockets: see hide
	bin    string // path of the stag binary
	image  string // directory of the guest's kernel and files
	shared string // directory that the guest sees as /host
	failed string // directory for the captures of rows that fail

	pair    *pair.Pair
	sniffer *sniffer
	guest   *guest // nil until a row needs the guest
}

var theStage stage

// setUp makes everything except the guest.
func (s *stage) setUp() (err error) {
	s.dir = "/run/interop"
	s.shared = filepath.Join(s.dir, "host")
	if err := os.MkdirAll(s.shared, 0o700); err != nil {
		return err
	}
	if s.failed = os.Getenv("STAG_INTEROP_FAILED"); s.failed == "" {
		s.failed = filepath.Join(os.TempDir(), "stag-interop-failed")
	}
	if err := s.share(); err != nil {
		return err
	}
	os.Setenv("TMPDIR", s.dir)
	prepare := exec.Command("bash", "image/prepare.sh")
	prepare.Stderr = os.Stderr
	out, err := prepare.Output()
	if err != nil {
		return fmt.Errorf("image/prepare.sh: %w", err)
	}
	s.image = strings.TrimSpace(string(out))
	s.bin = filepath.Join(s.dir, "stag")
	build := exec.Command("go", "build", "-o", s.bin, "../../cmd/stag")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build stag: %w\n%s", err, out)
	}
	if s.pair, err = pair.New(pair.Config{}); err != nil {
		return err
	}
	if err := s.pair.Do(pair.B, s.bridge); err != nil {
		return err
	}
	s.sniffer, err = newSniffer(s.pair)
	return err
}

// bridge connects side B's end of the cable with TAPs for the guest.
func (s *stage) bridge() error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge0"}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make a bridge: %w", err)
	}
	taps := append([]string{tapName}, bondTaps[:]...)
	for _, name := range taps {
		tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}, Mode: netlink.TUNTAP_MODE_TAP, Queues: 1,
			Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_ONE_QUEUE}
		if err := netlink.LinkAdd(tap); err != nil {
			return fmt.Errorf("make a TAP: %w", err)
		}
		for _, f := range tap.Fds {
			f.Close() // the TAP is persistent; the guest opens it
		}
	}
	for _, name := range append(taps, s.pair.Ends[pair.B].Name) {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetMaster(link, bridge)
		}
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		if err != nil {
			return fmt.Errorf("put %s on the bridge: %w", name, err)
		}
	}
	return netlink.LinkSetUp(bridge)
}

func (s *stage) tearDown() {
	if s.guest != nil {
		s.guest.kill()
	}
	if s.sniffer != nil {
		s.sniffer.close()
	}
	if s.pair != nil {
		s.pair.Close()
	}
}

// launch starts a program on a side and calls ended when the program has ended. The
// program is killed when the thread that started it ends. launch keeps this thread
// until the program has ended.
func (s *stage) launch(side pair.Side, cmd *exec.Cmd, ended func(error)) error {
	return s.launchAs(nil, side, cmd, ended)
}

// launchAs is launch with the credentials of a user. nil means those of the test.
func (s *stage) launchAs(who *syscall.Credential, side pair.Side, cmd *exec.Cmd, ended func(error)) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Credential: who}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.pair.Do(side, cmd.Start)
		started <- err
		if err == nil {
			ended(cmd.Wait())
		}
	}()
	return <-started
}

// booted returns the guest. It boots a guest if none is running.
func (s *stage) booted() (*guest, error) {
	if s.guest != nil && s.guest.alive() {
		return s.guest, nil
	}
	g, err := boot(s)
	s.guest = g
	return g, err
}

// brief reports whether rows are left out whose like is in the matrix once more. CI sets
// STAG_BRIEF=1, because the rows that take longest would double its time.
var brief = os.Getenv("STAG_BRIEF") == "1"

// about describes a row in the table.
type about struct {
	peer string // program and role at the other end: "rping -s"
	ops  string // operations: their number, kind and size
}

// rig is a running row.
type rig struct {
	common.Stage
	*stage
	guest *guest
}

// row runs one line of the matrix. If the row fails, row keeps the capture of its
// connections and prints the guest's kernel log.
func row(t *testing.T, name string, a about, f func(r *rig)) bool {
	t.Helper()
	return t.Run(name, func(t *testing.T) {
		t.Attr("row", name)
		t.Attr("peer", a.peer)
		t.Attr("ops", a.ops)
		g, err := theStage.booted()
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{common.On(t), &theStage, g}
		r.sniffer.begin()
		defer func() {
			if p := recover(); p != nil {
				r.Errorf("panic: %v", p)
			}
			r.leave()
		}()
		f(r)
	})
}

// leave cleans up after a row.
func (r *rig) leave() {
	if r.Failed() {
		if err := r.keep(); err != nil {
			r.Errorf("keep the capture: %v", err)
		}
	}
	if !r.guest.alive() {
		return
	}
	if err := r.guest.tidy(); err != nil {
		r.Errorf("tidy the guest: %v", err)
	}
	if r.Failed() {
		r.guest.kill() // the next row gets a new guest, because this one may be in a bad state
	}
}

// keep writes the capture of the row's connections to a file, and logs the guest's
// kernel log. A guest that hangs has only its console.
func (r *rig) keep() error {
	if err := os.MkdirAll(r.failed, 0o755); err != nil {
		return err
	}
	file := filepath.Join(r.failed, strings.NewReplacer("/", "_", " ", "_").Replace(r.Name())+".pcap")
	err := os.WriteFile(file, r.sniffer.pcap(), 0o644)
	r.Logf("capture: %s", file)
	if console, failed := os.ReadFile(r.guest.console); failed == nil {
		r.Logf("the guest's console:\n%s", console[max(0, len(console)-8192):])
	}
	if r.guest.alive() {
		out, _, failed := r.guest.run("dmesg -c | grep -v 'eth0 speed is unknown' | tail -n 20; cat /proc/net/tcp /proc/net/tcp6 /proc/net/sockstat", patience)
		r.Logf("the guest's kernel, and its sockets:\n%s", out)
		err = errors.Join(err, failed)
	}
	return err
}

// port returns the name of the local interface.
func (r *rig) port() string { return r.pair.Ends[pair.A].Name }

// family is an address family.
type family struct {
	name       string
	our, guest netip.Addr
}

var (
	ipv4 = family{"IPv4", netip.MustParseAddr(ourV4), netip.MustParseAddr(guestV4)}
	ipv6 = family{"IPv6", netip.MustParseAddr(ourV6), netip.MustParseAddr(guestV6)}
)
