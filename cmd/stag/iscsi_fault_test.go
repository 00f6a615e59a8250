package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// TestISCSIUsage: a wrong command line gives one line and exit code 2.
func TestISCSIUsage(t *testing.T) {
	const disk = "iscsi://192.0.2.1/iqn.2026-01.test.stag:t1/1"
	for args, says := range map[string]string{
		"atach":                                      "unknown command",
		"attach":                                     "name the URL",
		"attach iscsi://192.0.2.1":                   "names no target",
		"attach " + disk + " --driver loop":          "ublk or nbd",
		"attach " + disk + " --recovery 0s":          "more than 0",
		"nbd " + disk:                                "--socket PATH",
		"detach":                                     "--all",
		"detach --all " + disk:                       "unexpected argument",
		"ls":                                         "name the URL",
		"ls a b":                                     `"b"`,
		"ls 192.0.2.1":                               "iscsi://",
		"ls iscsi://192.0.2.1/disk":                  "iqn.",
		"ls iscsi://192.0.2.1:0":                     "1 to 65535",
		"inq iscsi://192.0.2.1":                      "names no target",
		"dd - " + disk + " --recovery -1s":           "more than 0",
		"inq " + disk + " --vpd 256":                 "0x00 to 0xff",
		"inq " + disk + " --vpd size":                "serial",
		"inq " + disk + " -i a --kernel-port":        "choose one",
		"inq " + disk + " --generic":                 "--generic",
		"readcap " + disk + "?speed=1":               "speed",
		"dd a":                                       "where to",
		"dd a b":                                     "neither end is a disk",
		"dd a iscsi://192.0.2.1":                     "names no target",
		"dd a " + disk + " --depth 0":                "choose 1 to",
		"dd a " + disk + " --bs 0":                   "--bs 0",
		"dd a " + disk + " --bs 64X":                 "64M",
		"dd a " + disk + " --bs 1G":                  "1 GiB",
		"dd a " + disk + " --length 0":               "--length 0",
		"dd " + disk + " - --json":                   "--json",
		"perf " + disk + " -m 0":                     "-m 0",
		"perf " + disk + " -b 0":                     "-b 0",
		"perf " + disk + " -m 4096 -b 65536":         "4 GiB",
		"perf " + disk + " -t 0":                     "-t 0",
		"target":                                     "--name",
		"target --name " + iqn:                       "--lun",
		"target --name " + iqn + " --lun 1":          "1=ram:64M",
		"target --name " + iqn + " --lun 1=tape:0":   "N=ram:SIZE",
		"target --name " + iqn + " --lun 1=ram:0":    "above 0",
		"target --name " + iqn + " --lun 1=ram:x":    "64M",
		"target --name " + iqn + " --lun 256=ram:1M": "0 to 255",
		"target --name " + iqn + " --lun 1=ram:1M --lun 1=ram:2M":     "there already",
		"target --name " + iqn + " --lun 1=ram:1M --block-size 1024":  "512 or 4096",
		"target --name " + iqn + " --lun 1=ram:1M --portal 1:2:3":     "ADDRESS:PORT",
		"target --name " + iqn + " --lun 1=ram:1M --allow-from 1.2.3": "ADDRESS/BITS",
		"target --name " + iqn + " --lun 1=ram:1M --sessions 0":       "1 to 65535",
		"target --name " + iqn + " --lun 1=ram:1M now":                "unexpected argument",
	} {
		t.Run(args, func(t *testing.T) {
			r := iscsiRun(t, args)
			r.ends(t, exitUsage)
			if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "stag: iscsi") || !strings.Contains(r.stderr, says) {
				t.Errorf("printed %q and %q, want one line of error that says %q", r.stdout, r.stderr, says)
			}
		})
	}
}

// failing demands that a command fails with one line that has these words.
func failing(t *testing.T, r result, words ...string) {
	t.Helper()
	r.ends(t, exitFailed)
	contains(t, r.stderr, words...)
	if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 {
		t.Errorf("printed %q and %q, want one line of error", r.stdout, r.stderr)
	}
}

// TestISCSIFails: each trouble gives one line with a remedy.
func TestISCSIFails(t *testing.T) {
	_, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:1M")
	disk, dir := lun1(portal), t.TempDir()
	small := filepath.Join(dir, "small")
	rig.Must(t, os.WriteFile(small, make([]byte, 1000), 0o600))
	big := filepath.Join(dir, "big")
	rig.Must(t, os.WriteFile(big, make([]byte, 1<<20+512), 0o600))
	for args, says := range map[string]string{
		"discover iscsi://127.0.0.1:1":                 "start the target there",
		"readcap " + portal + "/" + iqn + "/5":         "LOGICAL UNIT NOT SUPPORTED",
		"readcap " + portal + "/" + iqn + "x/1":        "target not found",
		"inq " + disk + " --vpd 0xc0":                  "--vpd supported",
		"dd " + small + " " + disk:                     "blocks of 512 octets",
		"dd " + big + " " + disk:                       "smaller --length",
		"dd " + disk + " " + small + " --skip 2M":      "--skip 2097152",
		"dd " + disk + " " + small + " --length 2M":    "--length 2097152",
		"dd " + disk + " " + small + " --bs 1000":      "a multiple of 512",
		"dd " + disk + " " + dir:                       "is a directory",
		"dd " + dir + "/none " + disk:                  "no such file",
		"perf -b 65536 -m 1 " + disk:                   "up to 2048 blocks",
		"inq -i nonesuch " + disk:                      "nonesuch",
		"inq --chap-file " + dir + "/none " + disk:     "no such file",
		"inq --chap-file " + writeable(t) + " " + disk: "chmod 600",
	} {
		t.Run(says, func(t *testing.T) { failing(t, iscsiRun(t, args), says) })
	}
	for _, c := range [][2]string{{"1=file:" + dir + "/none", "truncate -s"}, {"1=file:" + dir, "is a directory"}, {"1=nbd://127.0.0.1:1/", "LUN 1"}} {
		failing(t, iscsiRun(t, "target --name "+iqn+" --portal 127.0.0.1:0 --lun "+c[0]), c[1])
	}
	failing(t, iscsiRun(t, "target --name disk --portal 127.0.0.1:0 --lun 1=ram:1M"), "iqn.YEAR-MONTH")
	failing(t, iscsiRun(t, "target --name "+iqn+" --lun 1=ram:1M --portal "+strings.TrimPrefix(portal, "iscsi://")), "choose another --portal")
}

// writeable returns a file of secrets that others may read.
func writeable(t *testing.T) string {
	name := filepath.Join(t.TempDir(), "secrets")
	rig.Must(t, os.WriteFile(name, []byte("initiator alice alice-secret-12\n"), 0o644))
	return name
}

// These are the secrets of TestISCSISecrets.
const (
	aliceSecret  = "alice-secret-12"
	bobSecret    = "bob-secret-1234"
	targetSecret = "target-secret-1"
)

// TestISCSISecrets: secrets come from the environment, a file and the URL, both ends prove
// theirs, and no output has one.
func TestISCSISecrets(t *testing.T) {
	write := func(text string) string {
		name := filepath.Join(t.TempDir(), "secrets")
		rig.Must(t, os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	both := write("# both ends\ninitiator alice " + aliceSecret + "\ninitiator bob " + bobSecret + "\ntarget disks " + targetSecret + "\n")
	alice := write("initiator alice " + aliceSecret + "\n")
	target, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:1M", "--chap-file", both, "-v")
	disk := lun1(portal)
	as := func(user string) string { return strings.Replace(disk, "iscsi://", "iscsi://"+user+"@", 1) }
	for _, c := range []struct {
		url, file string
		env       []string
		code      int
		says      string
	}{
		{disk, alice, nil, 0, "Total Size:1048576"},
		{as("bob"), both, nil, 0, "Total Size:1048576"},
		{disk, "", []string{"LIBISCSI_CHAP_USERNAME=bob", "LIBISCSI_CHAP_PASSWORD=" + bobSecret}, 0, "Total Size:1048576"},
		{as("alice%" + aliceSecret), "", nil, 0, "warning: every user can read the secret"},
		{as("alice%" + aliceSecret), both, nil, exitFailed, "leave out the one in the URL"},
		{disk, both, nil, exitFailed, "has 2 initiators"},
		{as("carol"), both, nil, exitFailed, "has no initiator carol"},
		{disk, "", nil, exitFailed, "status 0201"},
		{disk, write("initiator alice " + bobSecret + "\n"), nil, exitFailed, "status 0201"},
		{disk, write("initiator alice " + aliceSecret + "\ntarget disks not-this-secret\n"), nil, exitFailed, "the CHAP response is wrong"},
		{disk, write("initiator alice short\n"), nil, exitFailed, "line 1: the secret has less than 12 octets"},
		{disk, write("alice " + aliceSecret + "\n"), nil, exitFailed, "write initiator USER SECRET"},
	} {
		cmd := command(t, "iscsi", "readcap", c.url)
		if c.file != "" {
			cmd.Args = append(cmd.Args, "--chap-file", c.file)
		}
		cmd.Env = append(os.Environ(), c.env...)
		r := run(t, cmd)
		r.ends(t, c.code)
		contains(t, r.stdout+r.stderr, c.says)
		secretless(t, r.stdout+r.stderr)
	}
	rig.Must(t, target.cmd.Process.Signal(os.Interrupt))
	secretless(t, target.all(0))
}

func secretless(t *testing.T, text string) {
	t.Helper()
	for _, s := range []string{aliceSecret, bobSecret, targetSecret, "not-this-secret", "short\n"} {
		if strings.Contains(text, s) {
			t.Errorf("a secret is printed: %s", text)
		}
	}
}

// TestISCSIAllow: a target admits only the initiators that it names.
func TestISCSIAllow(t *testing.T) {
	_, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:1M", "--allow", "iqn.2026-01.test.stag:*", "--allow-from", "127.0.0.0/8")
	r := iscsiRun(t, "readcap --initiator-name iqn.2026-01.test.stag:i1 "+lun1(portal))
	r.ends(t, 0)
	failing(t, iscsiRun(t, "readcap --initiator-name iqn.2026-01.test.other:i1 "+lun1(portal)), "status 0202")
}

// TestISCSIDigests: a target with --digests refuses an initiator that wants none.
func TestISCSIDigests(t *testing.T) {
	_, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:1M", "--digests")
	iscsiRun(t, "readcap "+lun1(portal)+"?header_digest=crc32c&data_digest=crc32c").ends(t, 0)
	failing(t, iscsiRun(t, "readcap "+lun1(portal)), "status 0200")
}

// TestISCSIKeeps: a copy that cannot begin leaves its file as it is.
func TestISCSIKeeps(t *testing.T) {
	_, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:1M")
	file := filepath.Join(t.TempDir(), "file")
	rig.Must(t, os.WriteFile(file, []byte("keep this"), 0o600))
	failing(t, iscsiRun(t, "dd "+lun1(portal)+" "+file+" --skip 2M"), "--skip")
	if b, err := os.ReadFile(file); err != nil || string(b) != "keep this" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestISCSIReadOnly: a target with --read-only refuses writes, and its file stays as it is.
func TestISCSIReadOnly(t *testing.T) {
	file, _ := randomFile(t, 1<<20)
	_, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=file:"+file, "--read-only")
	failing(t, iscsiRun(t, "dd /dev/zero "+lun1(portal)+" --length 1M"), "DATA PROTECT")
	back := filepath.Join(t.TempDir(), "back")
	iscsiRun(t, "dd "+lun1(portal)+" "+back).ends(t, 0)
	sameFiles(t, file, back)
}

// TestISCSIInterrupted: Ctrl-C ends each command, which says so, and leaves nothing behind.
func TestISCSIInterrupted(t *testing.T) {
	need.Root(t)
	before := tracesOf(t)
	target, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:1T")
	for _, c := range []struct {
		args  string
		until string // the line behind which Ctrl-C comes
		code  int
		says  string
	}{
		{"dd /dev/zero " + lun1(portal) + " --seek 1G --progress --length 1G", "copy: 10%", exitFailed, "interrupted, after "},
		{"dd " + lun1(portal) + " /dev/null --progress --length 4G", "copy: 10%", exitFailed, "/dev/null is not complete"},
		{"perf -r -m 4 -t 1000 " + lun1(portal), "will run for", exitFailed, "interrupted after "},
		{"perf -m 4 " + lun1(portal), "FIXED transfer", 0, "iops average"},
	} {
		x := launch(t, command(t, append([]string{"iscsi"}, strings.Fields(c.args)...)...))
		x.until(c.until)
		rig.Must(t, x.cmd.Process.Signal(os.Interrupt))
		contains(t, x.all(c.code), c.says)
	}
	rig.Must(t, target.cmd.Process.Signal(os.Interrupt))
	target.all(0)
	before.gone(t)
}

// TestISCSITargetEnds: Ctrl-C at the target ends a session in use, which the initiator says.
func TestISCSITargetEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "disk")
	rig.Must(t, os.WriteFile(file, nil, 0o600))
	rig.Must(t, os.Truncate(file, 8<<30))
	for _, args := range []string{"perf -r -m 4 -t 1000 DISK", "dd DISK /dev/null --progress"} {
		target, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:8G", "--lun", "2=file:"+file)
		x := launch(t, command(t, append([]string{"iscsi"}, strings.Fields(strings.ReplaceAll(args, "DISK", lun1(portal)))...)...))
		x.until(map[string]string{"p": "will run for", "d": "copy: 10%"}[args[:1]])
		rig.Must(t, target.cmd.Process.Signal(os.Interrupt))
		target.all(0)
		contains(t, x.all(exitFailed), "the iSCSI session has ended")
	}
}

// TestISCSIPipeInterrupted: Ctrl-C ends a copy whose input does not come.
func TestISCSIPipeInterrupted(t *testing.T) {
	_, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:1M")
	cmd := command(t, "iscsi", "dd", "-", lun1(portal))
	r, w, err := os.Pipe()
	rig.Must(t, err)
	defer w.Close()
	cmd.Stdin = r
	x := launch(t, cmd)
	rig.Must(t, r.Close())
	_, err = w.Write(make([]byte, 256<<10+1)) // the second read of the copy waits for more
	rig.Must(t, err)
	rig.Eventually(t, "the pipe is empty", func() bool {
		n, err := unix.IoctlGetInt(int(w.Fd()), unix.TIOCINQ)
		return err == nil && n == 0
	})
	rig.Must(t, cmd.Process.Signal(os.Interrupt))
	contains(t, x.all(exitFailed), "interrupted")
}
