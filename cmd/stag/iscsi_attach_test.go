package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/attach"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// exported starts an NBD export of a disk, and returns it with its socket.
func exported(t *testing.T, disk string, args ...string) (x *running, socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "nbd")
	x = launch(t, command(t, append([]string{"iscsi", "nbd", disk, "--socket", socket}, args...)...))
	t.Cleanup(x.killed)
	x.until("until Ctrl-C")
	return x, socket
}

// TestISCSINBD: programs of others read and write a disk through an export.
func TestISCSINBD(t *testing.T) {
	need.Tool(t, "nbdcopy", "nbdinfo", "qemu-io")
	target, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:8M")
	x, socket := exported(t, lun1(portal))
	url := "nbd+unix:///?socket=" + socket
	info, err := os.Stat(socket)
	rig.Must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v", info.Mode())
	}
	file, _ := randomFile(t, 8<<20)
	back := filepath.Join(t.TempDir(), "back")
	for _, args := range [][]string{
		{"nbdcopy", "--flush", file, url}, {"nbdcopy", url, back}, {"nbdinfo", "--can", "trim", url},
		{"qemu-io", "-f", "raw", "-c", "write -f -P 9 1M 1M", "-c", "read -P 9 1M 1M", url},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil || strings.Contains(string(out), "failed") {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	sameFiles(t, file, back)
	failing(t, iscsiRun(t, "nbd "+lun1(portal)+" --socket "+socket), "another process listens")
	failing(t, iscsiRun(t, "nbd "+lun1(portal)+" --socket "+file), "is no socket")
	rig.Must(t, x.cmd.Process.Signal(os.Interrupt))
	golden(t, "iscsi_nbd", strings.ReplaceAll(maskedISCSI(x.all(0)+"\n"), socket, "SOCKET"))
	if _, err := os.Stat(socket); err == nil {
		t.Error("the socket is left")
	}
	rig.Must(t, target.cmd.Process.Signal(os.Interrupt))
	target.all(0)
}

// TestISCSINBDJSON: the export prints what it is as one JSON value. A read-only export takes
// no writes.
func TestISCSINBDJSON(t *testing.T) {
	need.Tool(t, "qemu-io")
	_, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:1M")
	socket := filepath.Join(t.TempDir(), "nbd")
	x := launch(t, command(t, "iscsi", "nbd", lun1(portal), "--socket", socket, "--export", "disk 1", "--read-only", "--json"))
	t.Cleanup(x.killed)
	for len(x.said) == 0 || x.said[len(x.said)-1] != "}" {
		x.until("")
	}
	text := strings.Join(x.said, "\n")
	schema(t, "iscsi_nbd", text)
	contains(t, text, `"read_only": true`, "nbd+unix:///disk%201?socket="+socket)
	out, err := exec.Command("qemu-io", "-f", "raw", "-c", "write 0 512", "nbd+unix:///disk%201?socket="+socket).CombinedOutput()
	if err == nil {
		t.Errorf("a read-only export takes writes: %s", out)
	}
	rig.Must(t, x.cmd.Process.Signal(os.Interrupt))
	x.all(0)
}

// TestISCSINBDTargetEnds: an export whose target does not come back says so, and ends.
func TestISCSINBDTargetEnds(t *testing.T) {
	target, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:1M")
	x, _ := exported(t, lun1(portal), "--recovery", "300ms")
	rig.Must(t, target.cmd.Process.Signal(os.Interrupt))
	target.all(0)
	contains(t, x.all(exitFailed), "requests wait", "the iSCSI session has ended")
}

// TestISCSIAttach: without a driver in the kernel the command says what is missing. With one
// a device comes and goes.
func TestISCSIAttach(t *testing.T) {
	need.Root(t)
	_, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:8M")
	if _, err := attach.Probe(""); err != nil {
		failing(t, iscsiRun(t, "attach "+lun1(portal)), "module ublk_drv", "module nbd", "stag iscsi nbd")
		failing(t, iscsiRun(t, "attach --driver nbd "+lun1(portal)), "CONFIG_BLK_DEV_NBD", "stag iscsi nbd")
		return
	}
	x := launch(t, command(t, "iscsi", "attach", lun1(portal)))
	t.Cleanup(x.killed)
	x.until("until Ctrl-C")
	device := regexp.MustCompile(`^/dev/\S+`).FindString(x.said[len(x.said)-1])
	iscsiRun(t, "detach "+device).ends(t, 0)
	x.all(0)
}

// TestISCSIDetach: what is not attached cannot be detached, and the rest of a process that
// was killed is no obstacle.
func TestISCSIDetach(t *testing.T) {
	need.Root(t)
	failing(t, iscsiRun(t, "detach /dev/nbd77"), "/dev/nbd77 is not attached")
	failing(t, iscsiRun(t, "detach iscsi://192.0.2.1/"+iqn+"/1"), iqn+"/1 is not attached")
	rig.Must(t, os.MkdirAll("/run/stag/attach", 0o700))
	rest := "/run/stag/attach/4194305" // no process has this number
	rig.Must(t, os.WriteFile(rest, []byte(`{"pid":4194305,"device":"/dev/ublkb77","url":"iscsi://192.0.2.1/x/1"}`), 0o600))
	r := iscsiRun(t, "detach --all --json")
	r.ends(t, 0)
	schema(t, "iscsi_detach", r.stdout)
	if _, err := os.Stat(rest); err == nil {
		t.Error("the rest is left")
	}
}
