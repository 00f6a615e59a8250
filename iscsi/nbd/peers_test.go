package nbd

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/iscsi/block"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// program runs a client of others, and returns what it prints.
func program(t *testing.T, code int, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		t.Fatalf("%s %q: %v, want exit code %d\n%s", name, args, err, code, out)
	}
	return string(out)
}

func random(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{15}).Read(b)
	return b
}

// TestInfo: nbdinfo prints what a volume is.
func TestInfo(t *testing.T) {
	need.Tool(t, "nbdinfo")
	for name, c := range map[string]struct {
		change func(*block.Shape)
		want   map[string]any
	}{
		"whole": {func(*block.Shape) {}, map[string]any{
			"export-size": 8388608.0, "is_read_only": false, "can_flush": true, "can_fua": true, "can_trim": true, "can_zero": true, "can_multi_conn": true,
			"is_rotational": false, "block_size_minimum": 512.0, "block_size_preferred": 4096.0, "block_size_maximum": 33554432.0,
		}},
		"read only": {func(s *block.Shape) { s.ReadOnly, s.Rotational = true, true }, map[string]any{
			"is_read_only": true, "can_trim": false, "can_zero": false, "can_flush": true, "is_rotational": true,
		}},
		"bare": {func(s *block.Shape) { s.Block, s.Physical, s.Discard, s.WriteZeroes = 4096, 8192, 0, 0 }, map[string]any{
			"can_trim": false, "can_zero": false, "block_size_minimum": 4096.0, "block_size_preferred": 8192.0,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMemory(8<<20, 512)
			c.change(&m.shape)
			_, socket := export(t, m, nil)
			var got struct{ Exports []map[string]any }
			rig.Must(t, json.Unmarshal([]byte(program(t, 0, "nbdinfo", "--json", "--no-content", "--list", "nbd+unix:///?socket="+socket)), &got))
			if len(got.Exports) != 1 || got.Exports[0]["export-name"] != "disk" {
				t.Fatalf("%+v", got)
			}
			for key, want := range c.want {
				if got.Exports[0][key] != want {
					t.Errorf("%s is %v, want %v", key, got.Exports[0][key], want)
				}
			}
		})
	}
}

// TestCopy: nbdcopy moves octets there and back over several connections, directly and
// through nbdkit.
func TestCopy(t *testing.T) {
	need.Tool(t, "nbdcopy", "nbdkit")
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	want := random(16 << 20)
	rig.Must(t, os.WriteFile(from, want, 0o600))
	for _, b := range []int{512, 4096} {
		m := newMemory(16<<20, b)
		_, socket := export(t, m, nil)
		url := "nbd+unix:///disk?socket=" + socket
		relay := filepath.Join(dir, "relay")
		cmd := exec.Command("nbdkit", "--foreground", "--exit-with-parent", "--unix", relay, "nbd", "uri="+url)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		rig.Must(t, cmd.Start())
		rig.Eventually(t, "nbdkit listens", func() bool { _, err := os.Stat(relay); return err == nil })
		for _, url := range []string{url, "nbd+unix:///?socket=" + relay} {
			m.change(func(data []byte) { clear(data) })
			program(t, 0, "nbdcopy", "--flush", from, url)
			m.change(func(data []byte) {
				if !bytes.Equal(data, want) {
					t.Errorf("%s: other octets arrive", url)
				}
			})
			program(t, 0, "nbdcopy", url, to)
			if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: other octets come back: %v", url, err)
			}
		}
		rig.Check(t, cmd.Process.Kill())
		cmd.Wait() // it was killed
		rig.Must(t, os.Remove(relay))
	}
}

// TestQEMU: qemu-io writes and reads patterns, with FUA, zeros and discards, and qemu-img
// converts an image into the export.
func TestQEMU(t *testing.T) {
	need.Tool(t, "qemu-io", "qemu-img")
	m := newMemory(16<<20, 512)
	_, socket := export(t, m, nil)
	url := "nbd+unix:///disk?socket=" + socket
	out := program(t, 0, "qemu-io", "-f", "raw", "-c", "write -P 0xa5 1M 4M", "-c", "write -z 2M 1M", "-c", "write -z -u 3M 64k", "-c", "discard 4M 512k",
		"-c", "write -f -P 7 8M 512", "-c", "read -P 0xa5 1M 1M", "-c", "read -P 0 2M 1M", "-c", "read -P 0 3M 64k", "-c", "read -P 0 4M 512k", "-c", "read -P 7 8M 512", "-c", "flush", url)
	if strings.Contains(out, "failed") {
		t.Error(out)
	}
	log := m.submitted()
	if !slices.ContainsFunc(log, func(r block.Request) bool { return r.Op == block.Write && r.FUA && r.Offset == 8<<20 }) || log[len(log)-1].Op != block.Flush {
		t.Errorf("requests %+v", log)
	}
	image := filepath.Join(t.TempDir(), "image.qcow2")
	program(t, 0, "qemu-img", "create", "-q", "-f", "qcow2", image, "16M")
	program(t, 0, "qemu-io", "-f", "qcow2", "-c", "write -P 0x11 3M 1M", image)
	program(t, 0, "qemu-img", "convert", "-n", "-O", "raw", image, url)
	program(t, 0, "qemu-img", "compare", "-f", "qcow2", "-F", "raw", image, url)
}

// TestQEMUErrors: a client sees the volume's errors, and goes on.
func TestQEMUErrors(t *testing.T) {
	need.Tool(t, "qemu-io")
	m := newMemory(1<<20, 512)
	m.errs[block.Write] = syscall.ENOSPC
	m.errs[block.Discard] = syscall.EHOSTDOWN // the protocol has no such error
	_, socket := export(t, m, nil)
	out := program(t, 1, "qemu-io", "-f", "raw", "-c", "write 0 4k", "-c", "discard 0 64k", "-c", "read -P 0 0 64k", "nbd+unix:///disk?socket="+socket)
	for _, says := range []string{"write failed: No space left on device", "discard failed: Input/output error", "read 65536/65536"} {
		if !strings.Contains(out, says) {
			t.Errorf("no %q in %s", says, out)
		}
	}
}
