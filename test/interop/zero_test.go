//go:build interop

package interop

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	common "github.com/stag-rdma/stag/test/rig"
)

// The guest for zero copy has its own TAP with three pairs of queues, two processors, and
// addresses beside those of the other guest.
const (
	zeroTap        = "zero0"
	zeroQueues     = 3
	zeroV4, zeroV6 = "192.0.2.12", "2001:db8::12"
	drillPort      = "7200"
)

// zeroCopy is what the rows of TestZeroCopy share.
type zeroCopy struct {
	guest *guest
	drill string // path of the program drill
}

// TestZeroCopy runs stag in zero-copy mode in a guest with two queues. Package drill does every
// operation of the verbs, at both ends at the same time, and compares the hashes of all octets.
func TestZeroCopy(t *testing.T) {
	z, err := theStage.zeroCopy(t)
	if err != nil {
		t.Fatal(err)
	}
	defer z.guest.kill()
	z.row(t, "a driver with queues to spare", about{"virtio_net", "load"}, z.spare)
	z.row(t, "every operation, IPv4", about{"kernel port", "8 x 12 rounds"}, func(r *rig) {
		z.serve(r, ourV4, "-kernel-port")
		z.dial(r, ourV4, "-connections", "8", "-rounds", "12")
	})
	z.row(t, "every operation, IPv6", about{"AF_XDP with copies", "8 x 12 rounds"}, func(r *rig) {
		z.serve(r, ourV6, "-port", r.port())
		z.dial(r, ourV6, "-connections", "8", "-rounds", "12")
	})
	z.row(t, "the guest listens; show and doctor", about{"kernel port", "4 x 4 rounds"}, z.listen)
	z.row(t, "100 adapters, one after the other", about{"kernel port", "100 x open, close"}, func(r *rig) {
		z.serve(r, ourV4, "-kernel-port")
		r.inGuest("stag load eth0")
		z.dial(r, ourV4, "-times", "100", "-size", "4096", "-frames", "256")
		r.inGuest("stag unload eth0")
	})
}

// row runs a row with the guest. The guest's kernel must not complain.
func (z *zeroCopy) row(t *testing.T, name string, a about, f func(r *rig)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Attr("row", name)
		t.Attr("peer", a.peer)
		t.Attr("ops", a.ops)
		r := &rig{common.On(t), &theStage, z.guest}
		defer func() {
			if !r.guest.alive() {
				r.Error("the guest has ended")
				return
			}
			said, _, err := r.guest.run("dmesg -c", patience)
			r.Check(err)
			if regexp.MustCompile(`Call Trace|BUG:|blocked for more`).MatchString(said) || r.Failed() {
				r.Errorf("the guest's kernel says\n%s", said)
			}
			r.Check(r.guest.tidy())
		}()
		f(r)
	})
}

// zeroCopy boots the guest that image/zero.sh makes, with the commands stag and drill.
func (s *stage) zeroCopy(t *testing.T) (*zeroCopy, error) {
	prepare := exec.Command("bash", "image/zero.sh")
	prepare.Stderr = os.Stderr
	out, err := prepare.Output()
	if err != nil {
		return nil, fmt.Errorf("image/zero.sh: %w", err)
	}
	image, dir := strings.TrimSpace(string(out)), t.TempDir()
	z := &zeroCopy{drill: filepath.Join(dir, "bin", "drill")}
	build := exec.Command("go", "build", "-o", z.drill, "./drill")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build drill: %w\n%s", err, out)
	}
	if err := copyFile(s.bin, filepath.Join(dir, "bin", "stag")); err != nil {
		return nil, err
	}
	pack := exec.Command("sh", "-c", `cp "$1" initrd && printf 'bin/stag\nbin/drill\n' | cpio -o -H newc --quiet >>initrd`, "sh", filepath.Join(image, "initramfs.cpio"))
	pack.Dir = dir
	if out, err := pack.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("pack the guest: %w\n%s", err, out)
	}
	if err := s.pair.Do(pair.B, zeroBridge); err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "shell")
	z.guest = &guest{octets: &s.sniffer.progress, console: filepath.Join(dir, "console"), gone: make(chan struct{})}
	z.guest.qemu = exec.Command(filepath.Join(image, "qemu", "qemu-system-x86_64"),
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "768",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "none",
		"-kernel", filepath.Join(image, "vmlinuz"), "-initrd", filepath.Join(dir, "initrd"),
		"-append", "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off tsc=unstable no_timer_check stag.v4="+zeroV4+"/24 stag.v6="+zeroV6+"/64",
		"-chardev", "file,id=console,path="+z.guest.console, "-serial", "chardev:console",
		"-chardev", "socket,id=shell,server=on,wait=off,path="+socket,
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=shell",
		"-netdev", fmt.Sprintf("tap,id=nic,ifname=%s,script=no,downscript=no,vnet_hdr=off,queues=%d", zeroTap, zeroQueues),
		// virtio_net has zero copy only if the device uses the addresses of the DMA API
		// (iommu_platform), and if a queue can be reset alone, which QEMU always offers.
		"-device", fmt.Sprintf("virtio-net-pci,netdev=nic,mac=02:67:75:65:73:77,romfile=,mq=on,vectors=%d,iommu_platform=on,disable-legacy=on,%s", 2*zeroQueues+2, nicOffloads))
	if err := z.guest.begin(s, socket); err != nil {
		return nil, err
	}
	return z, nil
}

// zeroBridge puts the guest's TAP on the bridge.
func zeroBridge() error {
	tap := &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: zeroTap}, Mode: netlink.TUNTAP_MODE_TAP, Queues: zeroQueues,
		Flags: netlink.TUNTAP_MULTI_QUEUE_DEFAULTS}
	if err := netlink.LinkAdd(tap); err != nil {
		return fmt.Errorf("make a TAP: %w", err)
	}
	for _, f := range tap.Fds {
		f.Close() // the TAP is persistent; the guest opens it
	}
	bridge, err := netlink.LinkByName("bridge0")
	if err == nil {
		err = netlink.LinkSetMaster(tap, bridge)
	}
	if err == nil {
		err = netlink.LinkSetUp(tap)
	}
	return err
}

// serve starts drill in namespace A. The program serves until the row ends.
func (z *zeroCopy) serve(r *rig, address string, more ...string) {
	r.Helper()
	r.serves(r.startHere(z.drill, append([]string{"-listen", net.JoinHostPort(address, drillPort)}, more...)...), "drill: listens")
}

// dial runs drill in the guest, in zero-copy mode, and demands that it has verified all octets.
func (z *zeroCopy) dial(r *rig, address string, more ...string) {
	r.Helper()
	out := r.ended(r.startInGuest("drill -dial " + net.JoinHostPort(address, drillPort) + " -port eth0 -zero-copy " + strings.Join(more, " ")))
	verified(r, out)
}

func verified(r *rig, out string) {
	r.Helper()
	if !strings.Contains(out, "all octets verified") {
		r.Errorf("drill says\n%s", out)
	}
}

// listen has the guest listen. Meanwhile the commands of stag in the guest say that both queues
// use zero copy.
func (z *zeroCopy) listen(r *rig) {
	r.Helper()
	const port = 7201
	r.serveInGuest(port, fmt.Sprintf("drill -listen %s:%d -port eth0 -zero-copy", zeroV4, port))
	client := r.startHere(z.drill, "-dial", fmt.Sprintf("%s:%d", zeroV4, port), "-kernel-port", "-connections", "4", "-rounds", "4")
	r.succeeds(client, nil)
	verified(r, client.out.String())
	if said := r.inGuest("stag show devices"); !strings.Contains(said, "mode native,zero-copy queues 2") {
		r.Errorf("stag show devices says\n%s", said)
	}
	queues := r.inGuest("stag show queues")
	if strings.Count(queues, "mode zero-copy") != 2 || !regexp.MustCompile(`xsk: rx:\d+ filled:\d+ tx:\d+ completed:\d+`).MatchString(queues) {
		r.Errorf("stag show queues says\n%s", queues)
	}
	said, _, err := r.guest.run("stag doctor -v eth0", patience) // the exit code says that the interface is in use
	r.Must(err)
	for _, line := range []string{`zero copy +OK +driver virtio_net offers it, for packets of one piece`, `sums to send +OK +computed by stag`, `queue sockets +OK +stag's, on queue 0, 1`} {
		if !regexp.MustCompile(line).MatchString(said) {
			r.Errorf("stag doctor does not say %q:\n%s", line, said)
		}
	}
}

// spare has the driver add queues when the program is attached. The load fails, and names the
// command after which it does not.
func (z *zeroCopy) spare(r *rig) {
	r.Helper()
	r.inGuest("ethtool -L eth0 combined 1")
	said, code, err := r.guest.run("stag load eth0", patience)
	r.Must(err)
	command := regexp.MustCompile(`ethtool -L eth0 combined \d+`).FindString(said)
	if code == 0 || command == "" || !strings.Contains(said, "receives with 3 queues instead of 1") {
		r.Fatalf("stag load: exit code %d\n%s", code, said)
	}
	r.inGuest(command)
	r.inGuest("stag doctor eth0") // with an exit code for every requirement
	r.inGuest("stag load eth0")
	if said := r.inGuest("ethtool -l eth0"); strings.Count(said, "Combined:\t2") != 1 {
		r.Errorf("after %q and the load:\n%s", command, said)
	}
	r.inGuest("stag unload eth0")
}
