//go:build interop

package interop

import (
	"crypto/sha256"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// writing is a job that keeps writes to /mnt in flight, and then reads and compares what
// it wrote.
const writing = "fio --name=octets --directory=/mnt --filename=octets --size=24m --rw=randwrite --bs=16k --direct=1 --ioengine=libaio --iodepth=16 " +
	"--verify=crc32c-intel --verify_fatal=1 --end_fsync=1 --fallocate=none"

// TestOpenISCSIRestart kills the target in the middle of writes, and starts it again.
// open-iscsi logs in again and repeats its commands. No octet is wrong.
func TestOpenISCSIRestart(t *testing.T) {
	for _, c := range carriers {
		row(t, c.name, about{"open-iscsi", "24 MiB, target killed"}, func(r *rig) {
			r.crashed(r.serve(c, diskSize), r.login)
		})
	}
}

// crashed kills the target while the guest writes, and starts it again.
func (r *rig) crashed(d *disk, login func(settings ...string) *initiator) {
	r.Helper()
	i := login(append(allDigests[2].settings(), "node.conn[0].timeo.noop_out_interval=1", "node.conn[0].timeo.noop_out_timeout=1")...)
	i.mount()
	j := i.untilWritten(r.startInGuest(writing), 6<<20)
	d.crash()
	i.stillWriting(j)
	d.run()
	i.finished(j)
	if log := r.inGuest("dmesg"); !strings.Contains(log, "detected conn error") || !strings.Contains(i.negotiated(), "Internal iscsid Session State: NO CHANGE") {
		i.Errorf("the guest's kernel has not noticed the end of the target:\n%s\n%s", log, i.negotiated())
	}
	sum := r.inGuest("echo 3 >/proc/sys/vm/drop_caches && sha256sum </mnt/octets")
	i.unmount()
	i.logout()
	d.fsck()
	if medium := d.content("/octets"); !strings.HasPrefix(sum, medium) {
		r.Errorf("the file is %s in the guest, and %s on the medium", sum, medium)
	}
	d.stop()
}

// TestOpenISCSIPower kills the guest in the middle of writes. The next guest logs in, its
// ext4 replays the journal, and what had been made stable is there.
func TestOpenISCSIPower(t *testing.T) {
	for _, c := range carriers {
		row(t, c.name, about{"open-iscsi", "guest loses power"}, func(r *rig) {
			r.powerless(r.serve(c, diskSize), r.login)
		})
	}
}

// powerless kills the guest while it writes, and boots another, which finds the disk.
func (r *rig) powerless(d *disk, login func(settings ...string) *initiator) {
	r.Helper()
	i := login(allDigests[2].settings()...)
	i.mount()
	sum := r.inGuest("dd if=/dev/urandom of=/tmp/octets bs=1M count=4 2>/dev/null && dd if=/tmp/octets of=/mnt/stable bs=1M conv=fsync 2>/dev/null && sha256sum </tmp/octets")
	i.stillWriting(i.untilWritten(r.startInGuest(writing), 6<<20))
	r.guest.kill()
	var err error
	r.guest, err = r.booted()
	r.Must(err)
	again := login(allDigests[2].settings()...)
	again.inGuest("dmesg -c >/dev/null; mkdir -p /mnt && mount -t ext4 " + again.device + " /mnt")
	if log := r.inGuest("dmesg"); !strings.Contains(log, "recovery complete") {
		r.Errorf("ext4 does not replay its journal:\n%s", log)
	}
	if found := r.inGuest("sha256sum </mnt/stable"); found != sum {
		r.Errorf("the file that was stable is %s, want %s", found, sum)
	}
	again.unmount()
	again.logout()
	d.fsck()
	if medium := d.content("/stable"); !strings.HasPrefix(sum, medium) {
		r.Errorf("the file is %s in the guest, and %s on the medium", sum, medium)
	}
	d.stop()
}

// untilWritten waits until the job has written so many octets to the device.
func (i *initiator) untilWritten(j *job, octets int) *job {
	i.Helper()
	stat := "/sys/block/" + strings.TrimPrefix(i.device, "/dev/") + "/stat"
	before := i.written(stat)
	i.Eventually(fmt.Sprintf("the guest writes %d octets", octets), func() bool { return i.written(stat) >= before+octets })
	return j
}

// written returns the octets that were written, from the statistics of a block device.
func (i *initiator) written(stat string) int {
	i.Helper()
	fields := strings.Fields(i.inGuest("cat " + stat))
	sectors, err := strconv.Atoi(fields[6])
	i.Must(err)
	return sectors * 512
}

// stillWriting fails the row if the job ended before the outage.
func (i *initiator) stillWriting(j *job) {
	i.Helper()
	if out, code, err := i.guest.run("! cat "+j.file+".end", patience); err != nil || code != 0 {
		i.Fatalf("the guest wrote everything before the outage: %v\n%s", err, out)
	}
}

// finished waits for the job, which must have written and verified everything.
func (i *initiator) finished(j *job) {
	i.Helper()
	out, code, err := j.end(2 * time.Minute)
	if err != nil || code != 0 || !strings.Contains(out, "err= 0") {
		i.Fatalf("%s: exit code %d, %v\n%s", j.command, code, err, out)
	}
}

// content returns the SHA-256 of a file of the medium's file system.
func (d *disk) content(name string) string {
	d.Helper()
	out, err := exec.Command("debugfs", "-R", "cat "+name, d.file).Output()
	d.Must(err)
	return fmt.Sprintf("%x", sha256.Sum256(out))
}
