//go:build interop

package interop

import (
	"fmt"
	"net"
	"strings"
	"testing"
)

// iserPort is where stag's target listens for iSER.
const iserPort = "3261"

// serveISER makes a disk of which the target has a portal for iSER too.
func (r *rig) serveISER(c carrier, more ...string) *disk {
	r.Helper()
	return r.serve(c, diskSize, append([]string{"--iser", net.JoinHostPort(ourV4, iserPort)}, more...)...)
}

// loginISER logs in over iSER and siw, as login does over TCP.
func (r *rig) loginISER(settings ...string) *initiator {
	r.Helper()
	r.storage()
	i := &initiator{rig: r, portal: net.JoinHostPort(ourV4, iserPort)}
	r.inGuest("/host/openiscsi.sh start")
	i.device = "/dev/" + strings.TrimSpace(r.inGuest(fmt.Sprintf("/host/openiscsi.sh login %s %s iser %s", i.portal, iqn, strings.Join(settings, " "))))
	i.has("Iface Transport: iser", "iSCSI Connection State: LOGGED IN", "ImmediateData: No", "InitialR2T: Yes")
	return i
}

// TestOpenISCSIOverISER has a file system on stag's disk, which the guest's kernel uses by
// RDMA: made, written and verified by fio, checked in the guest and on this machine.
func TestOpenISCSIOverISER(t *testing.T) {
	for _, c := range carriers {
		row(t, c.name+", iSER", about{"open-iscsi, siw", "mkfs, fio, fsck"}, func(r *rig) {
			d := r.serveISER(c)
			i := r.loginISER()
			i.fileSystem()
			i.logout()
			d.fsck()
			d.stop()
		})
		row(t, c.name+", iSER, mutual CHAP", about{"open-iscsi, siw", "64 KiB"}, func(r *rig) {
			d := r.serveISER(c, "--chap-file", r.secrets())
			i := r.loginISER(append(chap("alice", "alice-secret-12", "SHA256"),
				"node.session.auth.username_in=disks", "node.session.auth.password_in=target-secret-1")...)
			i.copied(d, 64<<10)
			i.logout()
			d.stop()
		})
	}
}

// TestLibiscsiOverISER asks stag's disk what it is, and reads it, by the user-space verbs of
// libiscsi. It takes no Send with Invalidate.
func TestLibiscsiOverISER(t *testing.T) {
	for _, c := range carriers {
		row(t, c.name+", iSER", about{"libiscsi, siw", "inq, readcapacity, perf"}, func(r *rig) {
			d := r.serveISER(c)
			r.storage()
			url := fmt.Sprintf("iser://%s/%s/%d", net.JoinHostPort(ourV4, iserPort), iqn, lun)
			for command, says := range map[string]string{
				"iscsi-inq " + url:                       "VIRTUAL-DISK",
				"iscsi-readcapacity16 " + url:            "Total size:67108864",
				"iscsi-perf -r -m 16 -b 128 -t 2 " + url: "iops average",
			} {
				if out := r.inGuest(command + " 2>&1"); !strings.Contains(out, says) {
					r.Errorf("%s does not say %q:\n%s", command, says, out)
				}
			}
			d.stop()
		})
	}
}
