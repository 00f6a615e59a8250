package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/storage"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/libiscsi"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// iqn is the name of the target of these tests.
const iqn = "iqn.2026-01.test.stag:cli"

// portalOf matches the line with which a target says that it is ready.
var portalOf = regexp.MustCompile(`^Target \S+ at (\S+) over `)

// targetAt starts a target, and returns it with the URL of its portal when it serves.
func targetAt(t *testing.T, portal string, args ...string) (x *running, url string) {
	t.Helper()
	x = launch(t, command(t, append([]string{"iscsi", "target", "--name", iqn, "--portal", portal}, args...)...))
	t.Cleanup(x.killed)
	x.until("until Ctrl-C")
	m := portalOf.FindStringSubmatch(x.said[len(x.said)-1])
	if m == nil {
		t.Fatalf("said %q", x.said)
	}
	return x, storage.Scheme + m[1]
}

// killed kills a command that still runs, and waits for its end.
func (x *running) killed() {
	x.cmd.Process.Kill() // the error means that it has ended
	x.rest()
}

// lun1 returns the URL of LUN 1 at a portal.
func lun1(portal string) string { return portal + "/" + iqn + "/1" }

// iscsiRun runs stag iscsi with arguments that are separated by spaces.
func iscsiRun(t *testing.T, args string) result {
	t.Helper()
	return run(t, command(t, append([]string{"iscsi"}, strings.Fields(args)...)...))
}

// iscsiVolatile are the parts that differ between runs.
var iscsiVolatile = []struct {
	volatile *regexp.Regexp
	mask     string
}{
	{regexp.MustCompile(`\d+\.\d+/\d+\.\d+/\d+\.\d+ us`), "A/B/C us"},
	{regexp.MustCompile(`\d+\.\d%`), "P%"},
	{regexp.MustCompile(`iops average \d+ \(\d+ MB/s\)`), "iops average N (N MB/s)"},
	{regexp.MustCompile(`\d+\.\d+ s, \d+\.\d MB/s`), "S s, N MB/s"},
	{regexp.MustCompile(`unit_naa:[0-9a-f]{16}`), "unit_naa:NAA"},
	{regexp.MustCompile(`"(seconds|commands|iops|mib_per_second|mb_per_second|min|avg|max|p50|p99|p99_9|\w+_percent)": [\d.e+-]+`), `"$1": N`},
}

func maskedISCSI(text string) string {
	for _, m := range iscsiVolatile {
		text = m.volatile.ReplaceAllString(text, m.mask)
	}
	return mask(text)
}

// questions are commands for the golden files, with PORTAL and DISK for URLs.
var questions = []struct{ name, args, schema string }{
	{"discover", "discover PORTAL", "iscsi_discover"},
	{"ls", "ls PORTAL", "iscsi_ls"},
	{"ls_target", "ls DISK", "iscsi_ls"},
	{"inq", "inq DISK", "iscsi_answer"},
	{"inq_supported", "inq DISK --vpd supported", "iscsi_answer"},
	{"inq_serial", "inq DISK --vpd 80h", "iscsi_answer"},
	{"inq_id", "inq DISK --vpd 131", "iscsi_answer"},
	{"inq_extended", "inq DISK --vpd 0x86", "iscsi_answer"},
	{"inq_limits", "inq DISK --vpd limits", "iscsi_answer"},
	{"inq_characteristics", "inq DISK --vpd b1h", "iscsi_answer"},
	{"inq_provisioning", "inq DISK --vpd provisioning", "iscsi_answer"},
	{"readcap", "readcap DISK", "iscsi_answer"},
	{"perf", "perf -r -m 4 -b 8 -t 0.1 DISK", "iscsi_perf"},
	{"perf_write", "perf -w -m 4 -b 1 -t 0.1 DISK", "iscsi_perf"},
}

// TestISCSIText: what the commands print of a target, as text and as JSON.
func TestISCSIText(t *testing.T) {
	target, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:16M", "--lun", "7=ram:1M", "--block-size", "4096")
	for _, q := range questions {
		t.Run(q.name, func(t *testing.T) {
			args := strings.NewReplacer("PORTAL", portal, "DISK", lun1(portal)).Replace(q.args)
			r := iscsiRun(t, args)
			r.ends(t, 0)
			if r.stderr != "" {
				t.Errorf("said %q", r.stderr)
			}
			golden(t, "iscsi_"+q.name, maskedISCSI(r.stdout))
			r = iscsiRun(t, args+" --json")
			r.ends(t, 0)
			schema(t, q.schema, r.stdout)
		})
	}
	rig.Must(t, target.cmd.Process.Signal(os.Interrupt))
	golden(t, "iscsi_target", maskedISCSI(target.all(0)+"\n"))
}

// TestISCSITargetJSON: the target prints what it serves as one JSON value.
func TestISCSITargetJSON(t *testing.T) {
	x := launch(t, command(t, "iscsi", "target", "--name", iqn, "--lun", "1=ram:1M", "--read-only", "--portal", "127.0.0.1:0", "--json"))
	t.Cleanup(x.killed)
	for len(x.said) == 0 || x.said[len(x.said)-1] != "}" {
		x.until("")
	}
	text := strings.Join(x.said, "\n")
	schema(t, "iscsi_target", text)
	contains(t, text, `"read_only": true`, `"octets": 1048576`)
	rig.Must(t, x.cmd.Process.Signal(os.Interrupt))
	x.all(0)
}

// iscsiMedia are media for a target, each of 8 MiB.
var iscsiMedia = map[string]func(t *testing.T) (lun string){
	"ram": func(t *testing.T) string { return "1=ram:8M" },
	"file": func(t *testing.T) string {
		name := filepath.Join(t.TempDir(), "disk")
		rig.Must(t, os.WriteFile(name, make([]byte, 8<<20), 0o600))
		return "1=file:" + name
	},
	"nbd": func(t *testing.T) string {
		need.Tool(t, "nbdkit")
		socket := filepath.Join(t.TempDir(), "nbd")
		cmd := exec.Command("nbdkit", "--foreground", "--exit-with-parent", "--unix", socket, "memory", "size=8M")
		rig.Must(t, cmd.Start())
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		rig.Eventually(t, "nbdkit listens", func() bool {
			_, err := os.Stat(socket)
			return err == nil
		})
		return "1=nbd+unix:///?socket=" + socket
	},
}

// randomFile writes n random octets into a file, and returns its name and its SHA-256.
func randomFile(t *testing.T, n int) (name, sum string) {
	t.Helper()
	r := rand.New(rand.NewPCG(15, uint64(n)))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	name = filepath.Join(t.TempDir(), "random")
	rig.Must(t, os.WriteFile(name, b, 0o600))
	h := sha256.Sum256(b)
	return name, hex.EncodeToString(h[:])
}

// TestISCSICopy: octets go to a disk of each medium and come back, through files and
// through pipes, and parts of the disk stay as they are.
func TestISCSICopy(t *testing.T) {
	for name, medium := range iscsiMedia {
		t.Run(name, func(t *testing.T) {
			_, portal := targetAt(t, "127.0.0.1:0", "--lun", medium(t), "--lun", "2=ram:16M")
			disk, other := lun1(portal), portal+"/"+iqn+"/2"
			file, sum := randomFile(t, 8<<20)
			back := filepath.Join(t.TempDir(), "back")
			r := iscsiRun(t, "dd "+file+" "+disk+" --hash --progress")
			r.ends(t, 0)
			contains(t, r.stdout, sum+"  "+file, "8388608 octets copied")
			contains(t, r.stderr, "copy: 50% of 8 MiB")
			r = iscsiRun(t, "dd "+disk+"?header_digest=crc32c&data_digest=crc32c "+back+" --hash --json --bs 12K --depth 3")
			r.ends(t, 0)
			schema(t, "iscsi_dd", r.stdout)
			contains(t, r.stdout, `"sha256": "`+sum+`"`)
			sameFiles(t, file, back)
			iscsiRun(t, "dd "+disk+" "+other+" --skip 1M --seek 4M --length 2M").ends(t, 0)
			r = iscsiRun(t, "dd "+other+" - --skip 3M --length 4M")
			r.ends(t, 0)
			want, err := os.ReadFile(file)
			rig.Must(t, err)
			zeros := make([]byte, 1<<20)
			if got := []byte(r.stdout); !bytes.Equal(got, bytes.Join([][]byte{zeros, want[1<<20 : 3<<20], zeros}, nil)) {
				t.Errorf("%d octets, and not those that were written", len(got))
			}
			contains(t, r.stderr, "4194304 octets copied")
		})
	}
}

// TestISCSICopyPipe: a copy reads a pipe up to its end.
func TestISCSICopyPipe(t *testing.T) {
	_, portal := targetAt(t, "127.0.0.1:0", "--lun", "1=ram:8M")
	file, _ := randomFile(t, 3<<20+512)
	b, err := os.ReadFile(file)
	rig.Must(t, err)
	back := filepath.Join(t.TempDir(), "back")
	for n, says := range map[int]string{len(b): "3146240 octets copied", len(b) - 1: "within a block of 512 octets"} {
		cmd := command(t, "iscsi", "dd", "-", lun1(portal))
		cmd.Stdin = bytes.NewReader(b[:n])
		r := run(t, cmd)
		contains(t, r.stdout+r.stderr, says)
		if (r.code == 0) != (n == len(b)) {
			t.Errorf("exit code %d", r.code)
		}
	}
	iscsiRun(t, fmt.Sprintf("dd %s %s --length %d", lun1(portal), back, 3<<20)).ends(t, 0)
	got, err := os.ReadFile(back)
	rig.Must(t, err)
	if !bytes.Equal(got, b[:3<<20]) {
		t.Error("other octets come back")
	}
}

func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	rig.Must(t, err)
	y, err := os.ReadFile(b)
	rig.Must(t, err)
	if !bytes.Equal(x, y) {
		t.Errorf("%s and %s have other octets", a, b)
	}
}

// TestISCSIPair: a target in one namespace, and initiators in the other: this command over
// the kernel's TCP and offloaded, and libiscsi's programs and QEMU's.
func TestISCSIPair(t *testing.T) {
	need.Tool(t, "iscsi-ls", "iscsi-inq", "iscsi-perf", "qemu-io")
	for _, carrier := range []string{"kernel port", "AF_XDP"} {
		t.Run(carrier, func(t *testing.T) {
			p := netns.XDPPair(t, pair.Config{})
			args, over := []string{"--lun", "1=ram:16M"}, []string{"--kernel-port"}
			if carrier == "AF_XDP" {
				args = append(args, "-i", p.Ends[pair.B].Name)
				over = []string{"-i", p.Ends[pair.A].Name}
			}
			var target *running
			var portal string
			netns.In(t, p, pair.B, func() error {
				target, portal = targetAt(t, p.Ends[pair.B].V4.Addr().String(), args...)
				return nil
			})
			here := func(args ...string) result {
				r := inside(t, p, command(t, append([]string{"iscsi"}, append(args, over...)...)...))
				r.ends(t, 0)
				return r
			}
			contains(t, here("ls", portal).stdout, "Target:"+iqn+" Portal:"+strings.TrimPrefix(portal, storage.Scheme), "Size:16777216")
			file, sum := randomFile(t, 16<<20)
			back := filepath.Join(t.TempDir(), "back")
			here("dd", file, lun1(portal)+"?data_digest=crc32c")
			contains(t, here("dd", lun1(portal), back, "--hash").stdout, sum)
			sameFiles(t, file, back)
			contains(t, here("perf", "-r", "-m", "8", "-t", "0.1", lun1(portal)).stdout, "iops average")
			foreign(t, p, portal)
			rig.Must(t, target.cmd.Process.Signal(os.Interrupt))
			target.all(0)
		})
	}
}

// foreign runs programs of others against the target.
func foreign(t *testing.T, p *pair.Pair, portal string) {
	t.Helper()
	h := libiscsi.Host{TB: t, Net: p, Side: pair.A}
	if list := strings.Join(h.List(portal), "\n"); !strings.Contains(list, "Target:"+iqn) || !strings.Contains(list, "Lun:1    Type:DIRECT_ACCESS (Size:15M)") {
		t.Errorf("iscsi-ls prints %s", list)
	}
	if got := h.Inquiry(lun1(portal)); got["Vendor"] != "STAG" {
		t.Errorf("iscsi-inq prints %v", got)
	}
	qemu := exec.Command("qemu-io", "-f", "raw", "-c", "write -P 0xa5 1M 4M", "-c", "read -P 0xa5 1M 4M", "-c", "flush", lun1(portal))
	r := inside(t, p, qemu)
	r.ends(t, 0)
	if !strings.Contains(r.stdout, "read 4194304/4194304") || strings.Contains(r.stdout, "Pattern verification failed") {
		t.Errorf("qemu-io prints %s", r.stdout)
	}
}
