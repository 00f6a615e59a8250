//go:build interop

package interop

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// deviceSteps are the steps of guest/device.sh. A row passes if the script says each of them.
var deviceSteps = []string{
	"properties", "a target that died and began again", "octets, fsck and fstrim", "detach", "read only, and an interrupt", "a process that was killed",
	"a device in use that was forced", "a target that does not come back",
}

// deviceOps is what the rows do, for the table.
const deviceOps = "ext4, kills, fstrim"

// TestDevice tests `stag iscsi attach` in guests: a file system on the block device, whose
// target is killed in the middle of writes, and each end that a device can have. Debian 12
// has nbd, and Debian 13 has ublk too.
func TestDevice(t *testing.T) {
	if !brief { // Linux 6.12 has nbd, too
		row(t, "nbd, Linux 6.1", about{"the kernel's nbd", deviceOps}, func(r *rig) {
			r.storage()
			r.Must(copyFile(r.bin, filepath.Join(r.shared, "stag")))
			r.hasDone(r.ended(r.startInGuest("/host/device.sh /host/stag nbd")), "fio")
		})
	}
	var guest sync.Once
	var said string
	var failed error
	for _, driver := range []string{"ublk", "nbd"} {
		name := driver + ", Linux 6.12"
		t.Run(name, func(t *testing.T) {
			t.Attr("row", name)
			t.Attr("peer", "the kernel's "+driver)
			t.Attr("ops", deviceOps)
			guest.Do(func() { said, failed = theStage.trixie("ublk,nbd") })
			if failed != nil {
				t.Fatal(failed)
			}
			m := regexp.MustCompile(`(?s)` + driverBegins[driver] + `(.*?)@@@ ` + driver + ` (\d+) `).FindStringSubmatch(said)
			if m == nil || m[2] != "0" || strings.Contains(said, "@@@ kernel "+driver) {
				t.Fatalf("the guest says\n%s", said)
			}
			missing(t, m[1])
		})
	}
}

// driverBegins is the line before what device.sh says for a driver.
var driverBegins = map[string]string{"ublk": "guest: ready", "nbd": "@@@ ublk "}

// hasDone demands that device.sh has done each step, and more.
func (r *rig) hasDone(out string, more ...string) {
	r.Helper()
	missing(r, out, more...)
}

func missing(t testing.TB, out string, more ...string) {
	t.Helper()
	for _, step := range slices.Concat(deviceSteps, more) {
		if !strings.Contains(out, "device: "+step) {
			t.Errorf("device.sh does not say %q:\n%s", step, out)
		}
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// trixieTime is far longer than the guest needs, which is 10 s for the boot and 15 s for each
// driver.
const trixieTime = 8 * time.Minute

// trixie returns the directory that image/trixie.sh makes.
func trixie() (string, error) {
	prepare := exec.Command("bash", "image/trixie.sh")
	prepare.Stderr = os.Stderr
	out, err := prepare.Output()
	if err != nil {
		return "", fmt.Errorf("image/trixie.sh: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// trixie boots the guest of image/trixie.sh, which runs device.sh for some drivers and ends.
// It returns what the guest says.
func (s *stage) trixie(drivers string) (said string, err error) {
	image, err := trixie()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(s.dir, "trixie")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	console := filepath.Join(dir, "console")
	if err := copyFile(s.bin, filepath.Join(dir, "stag")); err != nil {
		return "", err
	}
	if err := copyFile(filepath.Join(s.shared, "device.sh"), filepath.Join(dir, "device.sh")); err != nil {
		return "", err
	}
	pack := exec.Command("sh", "-c", `cp "$1" initrd && printf 'stag\ndevice.sh\n' | cpio -o -H newc --quiet >>initrd`, "sh", filepath.Join(image, "initramfs.cpio"))
	pack.Dir = dir
	if out, err := pack.CombinedOutput(); err != nil {
		return "", fmt.Errorf("pack the guest: %w\n%s", err, out)
	}
	qemu := exec.Command("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1", "-m", "768",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "none",
		"-kernel", filepath.Join(image, "vmlinuz"), "-initrd", filepath.Join(dir, "initrd"),
		"-append", "console=ttyS0 panic=-1 quiet loglevel=1 mitigations=off tsc=unstable no_timer_check stag.drivers="+drivers,
		"-chardev", "file,id=console,path="+console, "-serial", "chardev:console")
	var complaints bytes.Buffer
	qemu.Stderr = &complaints
	ended := make(chan error, 1)
	if err := s.launch(pair.B, qemu, func(err error) { ended <- err }); err != nil {
		return "", fmt.Errorf("start QEMU: %w", err)
	}
	select {
	case err = <-ended:
	case <-time.After(trixieTime):
		qemu.Process.Kill()
		err = errors.Join(fmt.Errorf("the guest has not ended after %v", trixieTime), <-ended)
	}
	text, failed := os.ReadFile(console)
	if err != nil {
		return "", fmt.Errorf("the guest: %w\n%s%s", err, complaints.String(), text)
	}
	return string(text), failed
}
