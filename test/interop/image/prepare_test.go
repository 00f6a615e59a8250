package image

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// prepared runs prepare.sh with shell scripts in place of some programs, by name. It
// returns the output, the error output, and the exit code.
func prepared(t *testing.T, cache string, programs map[string]string) (out, complaints string, code int) {
	t.Helper()
	bin := t.TempDir()
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("bash", "prepare.sh")
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "STAG_INTEROP_CACHE="+cache)
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// nothing is a dpkg-query that finds no package.
const nothing = "exit 1"

func TestFailures(t *testing.T) {
	need.Root(t)
	need.Tool(t, "bash", "flock")
	const debian = "[ \"$1\" = -m ] && echo x86_64"
	for _, c := range []struct {
		name     string
		programs map[string]string
		code     int
		says     string // text in the last line of the error output, the only one after the first message
	}{
		{"a mirror without a name", map[string]string{"uname": debian, "dpkg-query": nothing,
			"apt-get": "echo \"W: Failed to fetch http://mirror.invalid/x  Could not resolve 'mirror.invalid'\"; echo 'E: Some index files failed to download.'; exit 100"},
			3, "the package mirror cannot be reached, so nothing was tried: apt-get update: E: Some index files failed"},
		{"a mirror that does not answer", map[string]string{"uname": debian, "dpkg-query": nothing,
			"apt-get": "case $* in *update*) exit 0;; esac; echo 'E: Failed to fetch http://mirror.invalid/y.deb  Connection timed out'; exit 100"},
			3, "the package mirror cannot be reached, so nothing was tried: apt-get install: E: Failed to fetch"},
		{"a package that there is not", map[string]string{"uname": debian, "dpkg-query": nothing,
			"apt-get": "case $* in *update*) exit 0;; esac; echo 'E: Unable to locate package busybox-static'; exit 100"},
			1, "apt-get install failed: E: Unable to locate package busybox-static"},
		{"another processor", map[string]string{"uname": "echo riscv64"}, 2, "run this on Debian 12"},
		{"no room", map[string]string{"uname": debian, "flock": "echo 'flock: no' >&2; exit 71", "apt-get": nothing, "dpkg-query": nothing}, 71, "flock: no"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, complaints, code := prepared(t, t.TempDir(), c.programs)
			lines := strings.Split(strings.TrimSpace(complaints), "\n")
			if code != c.code || out != "" || !strings.Contains(lines[len(lines)-1], c.says) {
				t.Errorf("exit code %d, want %d; printed %q; complained:\n%s\nwant %q", code, c.code, out, complaints, c.says)
			}
			if c.code == 3 && len(lines) != 2 { // the announcement and the error
				t.Errorf("it says more than it must:\n%s", complaints)
			}
		})
	}
}

// TestCached checks that a matching image is used without a package manager.
func TestCached(t *testing.T) {
	need.Root(t)
	need.Tool(t, "bash", "flock")
	var scripts []byte
	for _, name := range []string{"prepare.sh", "disk.sh", "init.sh"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, b...)
	}
	cache := t.TempDir()
	sum := fmt.Sprintf("%x", sha256.Sum256(scripts))
	image := filepath.Join(cache, "stag-guest-6.1.0-99-amd64-"+sum[:12])
	if err := os.Mkdir(image, 0o755); err != nil {
		t.Fatal(err)
	}
	programs := map[string]string{
		"uname":      "echo x86_64",
		"apt-get":    "echo 'E: nobody asked for this'; exit 100",
		"dpkg-query": "echo 'install ok installed linux-headers-6.1.0-99-amd64 (= 6.1.999-1)'",
	}
	if _, _, code := prepared(t, cache, programs); code != 1 {
		t.Errorf("an image that is not whole: exit code %d, want 1, from apt-get", code)
	}
	if err := os.WriteFile(filepath.Join(image, "versions"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, complaints, code := prepared(t, cache, programs); code != 0 || out != image+"\n" || complaints != "" {
		t.Errorf("exit code %d, printed %q, want %q; complained %q", code, out, image, complaints)
	}
}

func TestNotRoot(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Log("as root there is nothing to refuse")
		return
	}
	need.Tool(t, "bash")
	_, complaints, code := prepared(t, t.TempDir(), map[string]string{"uname": "echo x86_64", "apt-get": nothing, "dpkg-query": nothing})
	if code != 2 || !strings.Contains(complaints, "run it as root") {
		t.Errorf("exit code %d, complained %q", code, complaints)
	}
}
