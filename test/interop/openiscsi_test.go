//go:build interop

package interop

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// initiator is a session of open-iscsi in the guest with stag's target.
type initiator struct {
	*rig
	portal string
	device string // the disk, such as /dev/sda
}

// login logs in with settings of iscsid.conf, and returns when the guest's kernel has the
// disk. The end of the row logs out.
func (r *rig) login(settings ...string) *initiator {
	r.Helper()
	return r.loginOver("tcp", portal, settings...)
}

func (r *rig) loginOver(transport, port string, settings ...string) *initiator {
	r.Helper()
	r.storage()
	i := &initiator{rig: r, portal: net.JoinHostPort(ourV4, port)}
	r.inGuest("/host/openiscsi.sh start")
	i.device = "/dev/" + strings.TrimSpace(r.inGuest(fmt.Sprintf("/host/openiscsi.sh login %s %s %s %s", i.portal, iqn, transport, strings.Join(settings, " "))))
	return i
}

// logout logs out. open-iscsi waits for the target's answer.
func (i *initiator) logout() {
	i.Helper()
	if out := i.inGuest(fmt.Sprintf("/host/openiscsi.sh logout %s %s", i.portal, iqn)); !strings.Contains(out, "successful") {
		i.Errorf("open-iscsi logs out:\n%s", out)
	}
}

// negotiated returns what open-iscsi says of its session: digests and other keys.
func (i *initiator) negotiated() string {
	i.Helper()
	return i.inGuest("iscsiadm -m session -P 3")
}

// has fails the row if open-iscsi does not say that the session has these values.
func (i *initiator) has(values ...string) {
	i.Helper()
	said := i.negotiated()
	for _, v := range values {
		if !regexp.MustCompile(`(?m)^\s*` + v + `$`).MatchString(said) {
			i.Errorf("open-iscsi does not say %q:\n%s", v, said)
		}
	}
}

// digests are what the two ends agree on. open-iscsi asks for them.
type digests struct {
	name         string
	header, data string
}

var allDigests = []digests{{"no digest", "None", "None"}, {"header digest", "CRC32C", "None"}, {"both digests", "CRC32C", "CRC32C"}}

func (d digests) settings() []string {
	return []string{"node.conn[0].iscsi.HeaderDigest=" + d.header, "node.conn[0].iscsi.DataDigest=" + d.data}
}

// diskSize is the size of the disks that get a file system.
const diskSize = 64 << 20

// TestOpenISCSI has a file system on stag's disk: made, written and verified by fio,
// checked in the guest through the target, and on this machine.
func TestOpenISCSI(t *testing.T) {
	for _, c := range carriers {
		for _, g := range allDigests {
			row(t, c.name+", "+g.name, about{"open-iscsi", "mkfs, fio, fsck"}, func(r *rig) {
				d := r.serve(c, diskSize)
				i := r.login(g.settings()...)
				i.has("HeaderDigest: "+g.header, "DataDigest: "+g.data, "iSCSI Connection State: LOGGED IN")
				i.fileSystem()
				i.logout()
				d.fsck()
				d.stop()
			})
		}
	}
}

// fio is a job that writes random octets in a random order, reads them and compares them.
const fio = "fio --name=verify --directory=/mnt --size=8m --rw=randwrite --bsrange=4k-64k --direct=1 --ioengine=libaio --iodepth=8 " +
	"--verify=crc32c-intel --verify_fatal=1 --end_fsync=1 --fallocate=none --output-format=normal"

// fileSystem makes a file system, writes to it, and checks it.
func (i *initiator) fileSystem() {
	i.Helper()
	i.mount()
	out := i.inGuest(fio)
	if !strings.Contains(out, "err= 0") || !regexp.MustCompile(`READ: .*io=8192KiB`).MatchString(out) || !regexp.MustCompile(`WRITE: .*io=8192KiB`).MatchString(out) {
		i.Errorf("fio has not written and read 8 MiB without an error:\n%s", out)
	}
	i.unmount()
}

// mount makes a file system and mounts it.
func (i *initiator) mount() {
	i.Helper()
	i.inGuest("mkfs.ext4 -q -F " + i.device + " && mkdir -p /mnt && mount -t ext4 " + i.device + " /mnt")
}

// unmount unmounts the file system and checks it through the target.
func (i *initiator) unmount() {
	i.Helper()
	out := i.inGuest("umount /mnt && fsck.ext4 -f -n " + i.device)
	if !strings.Contains(out, "Pass 5") || !strings.Contains(out, "blocks") {
		i.Errorf("fsck.ext4 in the guest:\n%s", out)
	}
}

// secrets has the secrets of both ends, of 12 octets and more.
const secrets = "initiator alice alice-secret-12\ntarget disks target-secret-1\n"

// TestOpenISCSICHAP logs in with CHAP: with each algorithm of open-iscsi, in one direction
// without digests, and in both with both digests. The capture tells which algorithm the target has chosen.
func TestOpenISCSICHAP(t *testing.T) {
	for _, a := range []struct {
		name   string
		number int
	}{{"MD5", 5}, {"SHA1", 6}, {"SHA256", 7}, {"SHA3-256", 8}} {
		for _, mutual := range []bool{false, true} {
			name, c := "one-way", carriers[0]
			if mutual {
				name, c = "mutual", carriers[1]
			}
			row(t, fmt.Sprintf("CHAP %s, %s, %s", a.name, name, c.name), about{"open-iscsi", "64 KiB"}, func(r *rig) {
				d := r.serve(c, diskSize, "--chap-file", r.secrets())
				settings := chap("alice", "alice-secret-12", a.name)
				g := allDigests[0]
				if mutual {
					g = allDigests[len(allDigests)-1]
					settings = append(settings, "node.session.auth.username_in=disks", "node.session.auth.password_in=target-secret-1")
				}
				i := r.login(append(settings, g.settings()...)...)
				i.has("username: alice", "HeaderDigest: "+g.header, "DataDigest: "+g.data)
				want := fmt.Sprintf("CHAP_A=%d\x00CHAP_I=", a.number)
				r.Eventually("the capture has the target's choice of an algorithm", func() bool { return bytes.Contains(r.sniffer.pcap(), []byte(want)) })
				if got := bytes.Contains(r.sniffer.pcap(), []byte("CHAP_N=disks\x00")); got != mutual {
					r.Errorf("the target proves who it is: %v, want %v", got, mutual)
				}
				i.copied(d, 64<<10)
				i.logout()
				d.stop()
			})
		}
	}
}

// secrets writes a file with secrets for the target.
func (r *rig) secrets() string {
	r.Helper()
	file := filepath.Join(r.TempDir(), "chap")
	r.Must(os.WriteFile(file, []byte(secrets), 0o600))
	return file
}

// chap returns the settings with which open-iscsi proves who it is.
func chap(user, secret, algorithm string) []string {
	return []string{"node.session.auth.authmethod=CHAP", "node.session.auth.username=" + user,
		"node.session.auth.password=" + secret, "node.session.auth.chap_algs=" + algorithm}
}

// copied writes n random octets to the device. The medium must have the same octets, and
// the guest must read them back.
func (i *initiator) copied(d *disk, n int) {
	i.Helper()
	out := i.inGuest(fmt.Sprintf("dd if=/dev/urandom of=/tmp/octets bs=%d count=1 2>/dev/null && sha256sum </tmp/octets && "+
		"dd if=/tmp/octets of=%s bs=%d oflag=direct conv=fsync 2>/dev/null && dd if=%s bs=%d count=1 iflag=direct 2>/dev/null | sha256sum", n, i.device, n, i.device, n))
	sums := strings.Fields(strings.ReplaceAll(out, "-", ""))
	if medium := d.hash(0, int64(n)); len(sums) != 2 || sums[0] != sums[1] || sums[0] != medium {
		i.Errorf("%d octets written and read: %s\nthe medium: %s", n, out, medium)
	}
}

// TestOpenISCSIRefused logs in with a wrong secret, and without one: the target refuses.
// If the target does not have the secret that open-iscsi expects, open-iscsi refuses.
func TestOpenISCSIRefused(t *testing.T) {
	for _, c := range []struct {
		name     string
		settings []string
		says     string
	}{
		{"a wrong secret", chap("alice", "not-the-secret", "SHA256"), "authorization failure"},
		{"no secret", nil, "authorization failure"},
		{"a target with another secret", append(chap("alice", "alice-secret-12", "SHA256"),
			"node.session.auth.username_in=disks", "node.session.auth.password_in=another-secret"), "non-retryable iSCSI login failure"},
	} {
		row(t, c.name, about{"open-iscsi", "1 login"}, func(r *rig) {
			r.storage()
			d := r.serve(carriers[0], diskSize, "--chap-file", r.secrets())
			r.inGuest("/host/openiscsi.sh start")
			where := net.JoinHostPort(ourV4, portal)
			out, code, err := r.guest.run(fmt.Sprintf("/host/openiscsi.sh login %s %s tcp %s", where, iqn, strings.Join(c.settings, " ")), patience)
			r.Must(err)
			if code == 0 || !strings.Contains(out, c.says) {
				r.Errorf("open-iscsi logs in with exit code %d, and says\n%s", code, out)
			}
			r.inGuest(fmt.Sprintf("iscsiadm -m node -T %s -p %s -o delete", iqn, where))
			d.stop()
		})
	}
}
