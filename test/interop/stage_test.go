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

// Where our side and the guest are.
const (
	ourV4, ourV6     = "192.0.2.1", "2001:db8::1"
	guestV4, guestV6 = "192.0.2.11", "2001:db8::11"
)

// tapName is the guest's cable in namespace B, which nobody else sees.
const tapName = "guest0"

// stage is what all rows share: namespace A with our end of the cable, namespace
// B with the bridge to the guest, and the guest.
type stage struct {
	dir    string // temporary, see hide: the stag binary, the guest's sockets
	bin    string // the stag binary
	image  string // directory of the guest's kernel and files
	failed string // directory for the captures of rows that fail

	pair    *pair.Pair
	sniffer *sniffer
	guest   *guest // nil until a row needs it
}

var theStage stage

// setUp makes everything but the guest.
func (s *stage) setUp() (err error) {
	s.dir = "/run/interop"
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return err
	}
	if s.failed = os.Getenv("STAG_INTEROP_FAILED"); s.failed == "" {
		s.failed = filepath.Join(os.TempDir(), "stag-interop-failed")
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

// bridge joins side B's end of the cable with a TAP for the guest.
func (s *stage) bridge() error {
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "bridge0"}}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("make a bridge: %w", err)
	}
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: tapName}, Mode: netlink.TUNTAP_MODE_TAP, Queues: 1,
		Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_ONE_QUEUE}
	if err := netlink.LinkAdd(tap); err != nil {
		return fmt.Errorf("make a TAP: %w", err)
	}
	for _, f := range tap.Fds {
		f.Close() // it persists; the guest opens it
	}
	for _, name := range []string{tapName, s.pair.Ends[pair.B].Name} {
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

// launch starts a program on a side, which dies with us: with the thread that
// started it, to be exact, so that one is kept until the program has ended. Then
// ended is called.
func (s *stage) launch(side pair.Side, cmd *exec.Cmd, ended func(error)) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
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

// booted is the guest, booted if there is none that lives.
func (s *stage) booted() (*guest, error) {
	if s.guest != nil && s.guest.alive() {
		return s.guest, nil
	}
	g, err := boot(s)
	s.guest = g
	return g, err
}

// about is what the table says of a row beside its name.
type about struct {
	peer string // program and role at the other end: "rping -s"
	ops  string // how many of what, of which size
}

// rig is a row that runs.
type rig struct {
	common.Stage
	*stage
	guest *guest
}

// row runs one line of the matrix. If it fails the capture of its connections is
// kept, and what the guest's kernel has said is told.
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

// leave clears up behind a row.
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
		r.guest.kill() // the next row gets another: who knows what this one is like now
	}
}

// keep writes what the row's connections were on the wire, and logs what the
// guest has to say.
func (r *rig) keep() error {
	if err := os.MkdirAll(r.failed, 0o755); err != nil {
		return err
	}
	file := filepath.Join(r.failed, strings.NewReplacer("/", "_", " ", "_").Replace(r.Name())+".pcap")
	err := os.WriteFile(file, r.sniffer.pcap(), 0o644)
	r.Logf("capture: %s", file)
	if r.guest.alive() {
		out, _, failed := r.guest.run("dmesg -c | grep -v 'eth0 speed is unknown' | tail -n 20; cat /proc/net/tcp /proc/net/tcp6 /proc/net/sockstat", patience)
		r.Logf("the guest's kernel, and its sockets:\n%s", out)
		err = errors.Join(err, failed)
	}
	return err
}

// port is the name of our interface.
func (r *rig) port() string { return r.pair.Ends[pair.A].Name }

// family is one of the two kinds of addresses.
type family struct {
	name       string
	our, guest netip.Addr
}

var (
	ipv4 = family{"IPv4", netip.MustParseAddr(ourV4), netip.MustParseAddr(guestV4)}
	ipv6 = family{"IPv6", netip.MustParseAddr(ourV6), netip.MustParseAddr(guestV6)}
)
