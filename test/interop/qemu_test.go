//go:build interop

package interop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	common "github.com/stag-rdma/stag/test/rig"
)

// between runs a program in namespace B, and returns its output. Its exit code must be 0.
func (r *rig) between(program string, args ...string) string {
	r.Helper()
	var out common.Output
	cmd := exec.CommandContext(r.context(), program, args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	done := make(chan error, 1)
	r.Must(r.launch(pair.B, cmd, func(err error) { done <- err }))
	if err := <-done; err != nil {
		r.Fatalf("%v: %v\n%s", cmd.Args, err, out.String())
	}
	return out.String()
}

// drive returns the options of QEMU's driver for the disk.
func (d *disk) drive(more string) string {
	return fmt.Sprintf("driver=iscsi,transport=tcp,portal=%s:%s,target=%s,lun=%d%s", ourV4, portal, iqn, lun, more)
}

// qemuLogins are logins of QEMU's driver. It knows MD5 and header digests.
var qemuLogins = []struct {
	name   string
	target []string
	drive  string
}{
	{"no digest", nil, ",header-digest=none"},
	{"CHAP, header digest", []string{"--chap-file"}, ",user=alice,password-secret=secret,header-digest=crc32c"},
}

// TestQEMU has QEMU's own initiator (libiscsi) write a whole disk and compare it.
func TestQEMU(t *testing.T) {
	for _, c := range carriers {
		for _, g := range qemuLogins {
			row(t, c.name+", "+g.name, about{"qemu-img, qemu-io", "64 MiB each way"}, func(r *rig) {
				r.addressBetween()
				more := g.target
				if more != nil {
					more = append(more, r.secrets())
				}
				d := r.serve(c, diskSize, more...)
				octets := random(diskSize)
				file, back := filepath.Join(r.TempDir(), "octets"), filepath.Join(r.TempDir(), "back")
				r.Must(os.WriteFile(file, octets, 0o600))
				secret := "secret,id=secret,data=alice-secret-12"
				drive := d.drive(g.drive)
				r.between("qemu-img", "convert", "--object", secret, "-n", "-f", "raw", "--target-image-opts", file, drive)
				if medium, err := os.ReadFile(d.file); err != nil || !bytes.Equal(medium, octets) {
					r.Errorf("the medium has not the octets that QEMU wrote: %v", err)
				}
				r.between("qemu-img", "convert", "--object", secret, "--image-opts", "-O", "raw", drive, back)
				if found, err := os.ReadFile(back); err != nil || !bytes.Equal(found, octets) {
					r.Errorf("QEMU has not read the octets that it wrote: %v", err)
				}
				out := r.between("qemu-io", "--object", secret, "--image-opts", drive, "-c", "write -P 0xa5 4k 64k", "-c", "read -P 0xa5 4k 64k", "-c", "discard 1M 1M", "-c", "flush")
				if strings.Contains(out, "verification failed") || !strings.Contains(out, "read 65536/65536") {
					r.Errorf("qemu-io:\n%s", out)
				}
				d.stop()
			})
		}
	}
}

// TestQEMURoot starts a machine whose root is a file system on stag's disk. QEMU's driver is
// the initiator. The machine writes a file, and the medium has it.
func TestQEMURoot(t *testing.T) {
	for _, c := range carriers {
		row(t, c.name, about{"QEMU", "a machine boots"}, func(r *rig) {
			r.addressBetween()
			d := r.serve(c, diskSize)
			d.install()
			args := append(machine(r.stage, "256"), "-append", "console=ttyS0 panic=-1 quiet mitigations=off tsc=unstable no_timer_check stag.root=/dev/vda",
				"-serial", "stdio", "-drive", "if=virtio,format=raw,file="+d.url())
			said := r.between("qemu-system-x86_64", args...)
			sum := regexp.MustCompile(`sum: ([0-9a-f]{64})`).FindStringSubmatch(said)
			if !strings.Contains(said, "/dev/vda / ext4 rw") || sum == nil {
				r.Fatalf("the machine says\n%s", said)
			}
			d.fsck()
			if medium := d.content("/octets"); medium != sum[1] {
				r.Errorf("the machine's file is %s, and %s on the medium", sum[1], medium)
			}
			d.stop()
		})
	}
}

// install makes a file system on the medium, with busybox and root.sh.
func (d *disk) install() {
	d.Helper()
	root := filepath.Join(d.TempDir(), "root")
	for _, dir := range []string{"bin", "dev", "proc"} {
		d.Must(os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for from, to := range map[string]string{"/bin/busybox": "bin/busybox", filepath.Join(d.shared, "root.sh"): "init"} {
		octets, err := os.ReadFile(from)
		d.Must(err)
		d.Must(os.WriteFile(filepath.Join(root, to), octets, 0o755))
	}
	d.Must(os.Symlink("busybox", filepath.Join(root, "bin/sh")))
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-F", "-d", root, d.file).CombinedOutput(); err != nil {
		d.Fatalf("mke2fs: %v\n%s", err, out)
	}
}
