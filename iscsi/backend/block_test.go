package backend

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// TestBlockDevice: the size of a block device comes from the kernel.
func TestBlockDevice(t *testing.T) {
	need.Root(t)
	need.Tool(t, "losetup")
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, make([]byte, 3<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		need.Loop(t, fmt.Errorf("%w, %s", err, out))
	}
	device := strings.TrimSpace(string(out))
	defer exec.Command("losetup", "--detach", device).Run()
	m, err := OpenFile(device, FileOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Size() != 3<<20 {
		t.Errorf("%s has %d octets", device, m.Size())
	}
	want := pageAligned(page)
	copy(want, "block device")
	if _, err := m.WriteAt(want, page); err != nil {
		t.Fatal(err)
	}
	if err := m.Sync(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil || string(content[page:][:12]) != "block device" {
		t.Errorf("the file behind the device has %q, %v", content[page:][:12], err)
	}
}
