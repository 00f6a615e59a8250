package backend

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// nbdkit runs an NBD server at a socket until stop is called.
func nbdkit(t *testing.T, socket string, args ...string) (stop func()) {
	t.Helper()
	need.Tool(t, "nbdkit")
	cmd := exec.Command("nbdkit", append([]string{"--foreground", "--exit-with-parent", "--unix", socket}, args...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	once := sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(once)
	rig.Eventually(t, "nbdkit listens", func() bool {
		m, err := OpenNBD(context.Background(), "nbd+unix:///?socket="+socket)
		if err != nil {
			return false
		}
		return m.Close() == nil
	})
	return once
}

// TestNBD moves patterns to nbdkit and back, with several requests in progress.
func TestNBD(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nbd")
	nbdkit(t, socket, "memory", "size=64M")
	m, err := OpenNBD(context.Background(), "nbd+unix:///?socket="+socket)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Size() != 64<<20 {
		t.Errorf("%d octets", m.Size())
	}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 20 {
				off := int64(g<<23 | i<<18)
				want := bytes.Repeat([]byte{byte(g<<5 + i)}, 512<<(i%9))
				got := make([]byte, len(want))
				if _, err := m.WriteAt(want, off); err != nil {
					t.Error(err)
				}
				if _, err := m.ReadAt(got, off); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d octets at %d: %v", len(want), off, err)
				}
			}
		})
	}
	all.Wait()
	if err := m.Sync(); err != nil {
		t.Error(err)
	}
	if err := m.(unit.Discarder).Discard(0, 1<<20); err != nil {
		t.Error(err)
	}
	got := make([]byte, 1<<20)
	if _, err := m.ReadAt(got, 0); err != nil || !bytes.Equal(got, make([]byte, 1<<20)) {
		t.Errorf("after Discard: %v", err)
	}
	if _, err := m.ReadAt(got, 64<<20-512); err == nil {
		t.Error("reads beyond the end")
	}
}

// TestNBDRestarts: requests fail while the server is away, and work when it is back.
func TestNBDRestarts(t *testing.T) {
	dir := t.TempDir()
	socket, file := filepath.Join(dir, "nbd"), filepath.Join(dir, "disk")
	disk, err := OpenFile(file, FileOptions{Create: true, Size: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	stop := nbdkit(t, socket, "file", file)
	m, err := OpenNBD(context.Background(), "nbd+unix:///?socket="+socket)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	block := bytes.Repeat([]byte{7}, 512)
	if _, err := m.WriteAt(block, 512); err != nil {
		t.Fatal(err)
	}
	stop()
	rig.Eventually(t, "a request fails", func() bool { _, err := m.ReadAt(make([]byte, 512), 0); return err != nil })
	if err := exec.Command("rm", "-f", socket).Run(); err != nil {
		t.Fatal(err)
	}
	nbdkit(t, socket, "file", file)
	got := make([]byte, 512)
	if _, err := m.ReadAt(got, 512); err != nil || !bytes.Equal(got, block) {
		t.Errorf("after the restart: %v", err)
	}
}

// TestNBDSilent: a server that takes the new connection and says nothing keeps neither a
// request nor Close waiting for ever.
func TestNBDSilent(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nbd")
	stop := nbdkit(t, socket, "memory", "size=1M")
	m, err := OpenNBD(context.Background(), "nbd+unix:///?socket="+socket)
	if err != nil {
		t.Fatal(err)
	}
	n := m.(*ThinNBD).NBD
	n.patience = 50 * time.Millisecond
	stop()
	rig.Eventually(t, "the connection is lost", func() bool { return n.link.lost() != nil })
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	done := make(chan error)
	go func() {
		_, err := m.ReadAt(make([]byte, 512), 0)
		done <- err
	}()
	if err := rig.Wait(t, done, "the request"); !errors.Is(err, errSilentNBD) {
		t.Errorf("a request: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// TestNBDErrors: a server's error is an error of the request only, and a wrong export or
// address is an error that says so.
func TestNBDErrors(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "nbd")
	nbdkit(t, socket, "--filter=error", "memory", "size=1M", "error-pread=EIO", "error-pread-rate=100%")
	m, err := OpenNBD(context.Background(), "nbd+unix:///?socket="+socket)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if _, err := m.ReadAt(make([]byte, 512), 0); err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Errorf("read: %v", err)
	}
	if _, err := m.WriteAt(make([]byte, 512), 0); err != nil {
		t.Errorf("a write after a read that failed: %v", err)
	}
	for _, address := range []string{"http://x/", "nbd+unix:///", "nbd://", "nbd+unix:///?socket=" + socket + ".not"} {
		if m, err := OpenNBD(context.Background(), address); err == nil {
			m.Close()
			t.Errorf("%s was opened", address)
		}
	}
	if n, err := parseNBD("nbd://192.0.2.1/disk"); err != nil || n.address != "192.0.2.1:10809" || n.export != "disk" {
		t.Errorf("%+v, %v", n, err)
	}
}
