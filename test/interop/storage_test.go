//go:build interop

package interop

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// scripts run in the guest, which sees them in /host.
//
//go:embed guest
var scripts embed.FS

// share puts the scripts into the directory that the guest sees.
func (s *stage) share() error {
	files, err := fs.Glob(scripts, "guest/*.sh")
	for _, name := range files {
		var text []byte
		if text, err = scripts.ReadFile(name); err == nil {
			err = os.WriteFile(filepath.Join(s.shared, filepath.Base(name)), text, 0o755)
		}
		if err != nil {
			break
		}
	}
	return err
}

// storage mounts the guest's disk with the programs and modules for storage, and /host.
// It does so once for each boot.
func (r *rig) storage() {
	r.Helper()
	if r.guest.storage {
		return
	}
	r.inGuest("storage")
	r.guest.storage = true
}

// iqn is the name of stag's target, and lun is its disk.
const (
	iqn = "iqn.2026-01.test.stag:disk"
	lun = 1
)

// portal is where targets of both sides listen.
const portal = "3260"

// carrier is a way of stag's connections.
type carrier struct {
	name      string
	takesOver bool
}

// carriers are all ways.
var carriers = []carrier{{"kernel port", false}, {"AF_XDP", true}}

// args returns the flags of stag's commands for this way.
func (c carrier) args(r *rig) []string {
	if c.takesOver {
		return []string{"-i", r.port()}
	}
	return []string{"--kernel-port"}
}

// disk is a disk that stag serves. Its medium is a file, so that the test sees the octets
// without a peer.
type disk struct {
	*rig
	file string
	args []string
	cmd  *command
}

// serve makes a disk of size octets, and a target for it.
func (r *rig) serve(c carrier, size int64, more ...string) *disk {
	r.Helper()
	d := &disk{rig: r, file: filepath.Join(r.TempDir(), "disk")}
	f, err := os.Create(d.file)
	r.Must(err)
	r.Must(f.Truncate(size))
	r.Must(f.Close())
	d.args = append([]string{"iscsi", "target", "--name", iqn, "--lun", fmt.Sprintf("%d=file:%s", lun, d.file), "--portal", ourV4 + ":" + portal}, c.args(r)...)
	d.args = append(d.args, more...)
	d.run()
	if said := d.cmd.out.String(); strings.Contains(said, "over kernel port") == c.takesOver {
		r.Fatalf("a target over %s says\n%s", c.name, said)
	}
	return d
}

// run starts the target's process.
func (d *disk) run() { d.cmd = d.serves(d.stag(d.args...), "until Ctrl-C") }

// crash kills the target's process.
func (d *disk) crash() {
	d.cmd.cmd.Process.Kill()
	<-d.cmd.done
}

// stop ends the target's process, which makes the medium stable.
func (d *disk) stop() {
	d.Helper()
	d.cmd.cmd.Process.Signal(os.Interrupt)
	d.succeeds(d.cmd, nil)
}

// url returns the disk's URL.
func (d *disk) url() string { return fmt.Sprintf("iscsi://%s:%s/%s/%d", ourV4, portal, iqn, lun) }

// hash returns the SHA-256 of n octets of the medium from off on.
func (d *disk) hash(off, n int64) string {
	d.Helper()
	f, err := os.Open(d.file)
	d.Must(err)
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, io.NewSectionReader(f, off, n))
	d.Must(err)
	return fmt.Sprintf("%x", h.Sum(nil))
}

// fsck checks the medium's file system on this machine.
func (d *disk) fsck() {
	d.Helper()
	if out, err := exec.Command("e2fsck", "-f", "-n", d.file).CombinedOutput(); err != nil {
		d.Errorf("e2fsck of the medium: %v\n%s", err, out)
	}
}
