package docs

import (
	"bufio"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// installed runs make install with a prefix of the test, and returns the prefix.
func installed(t *testing.T) (prefix string, make func(target string)) {
	t.Helper()
	need.Tool(t, "make")
	dir := t.TempDir()
	prefix = filepath.Join(dir, "prefix")
	make = func(target string) {
		t.Helper()
		cmd := exec.Command("make", "-C", "..", target, "BIN="+filepath.Join(dir, "bin"), "PREFIX="+prefix)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make %s: %v\n%s", target, err, out)
		}
	}
	make("install")
	return prefix, make
}

// TestInstall: make install puts every file into its directory, and the files work
// there. make uninstall removes them.
func TestInstall(t *testing.T) {
	prefix, run := installed(t)
	for _, name := range []string{"bin/stag", "share/man/man8/stag.8", "share/man/man8/stag-metrics.8",
		"share/bash-completion/completions/stag", "share/zsh/site-functions/_stag", "share/fish/vendor_completions.d/stag.fish",
		"lib/systemd/system/stag@.service", "lib/systemd/system/stag-metrics.service", "lib/systemd/system/stag-iscsi-target.service",
		"lib/systemd/system/stagd.service", "lib/systemd/system/stagd.socket",
		"share/stag/grafana/stag.json", "share/doc/stag/README.md", "share/doc/stag/LICENSE", "share/doc/stag/docs/metrics.md", "share/doc/stag/docs/examples/kv/main.go"} {
		info, err := os.Stat(filepath.Join(prefix, name))
		if err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if runs := info.Mode()&0o111 != 0; runs != (name == "bin/stag") || info.Mode()&0o444 != 0o444 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
	}
	if out, err := exec.Command(filepath.Join(prefix, "bin/stag"), "version").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	t.Run("units", func(t *testing.T) { units(t, prefix) })
	t.Run("links", func(t *testing.T) { installedLinks(t, filepath.Join(prefix, "share/doc/stag")) })
	mine := filepath.Join(prefix, "share/man/man8/other.8")
	if err := os.WriteFile(mine, []byte("another's page"), 0o644); err != nil {
		t.Fatal(err)
	}
	run("uninstall")
	if left := filesBelow(t, prefix); !slices.Equal(left, []string{mine}) {
		t.Errorf("left behind: %q, and only another's page should be", left)
	}
}

// inRepository is the beginning of links to files that are not installed.
const inRepository = "https://github.com/stag-rdma/stag/blob/main/"

// installedLinks demands that every target of a link in the installed documents is
// installed, or is in the repository.
func installedLinks(t *testing.T, dir string) {
	links := 0
	for _, page := range filesBelow(t, dir) {
		if filepath.Ext(page) != ".md" {
			continue
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to, _, _ := strings.Cut(m[1], "#")
			at := filepath.Join(filepath.Dir(page), to)
			if source, ok := strings.CutPrefix(to, inRepository); ok {
				at = filepath.Join("..", source)
			} else if to == "" || strings.Contains(to, "://") {
				continue
			}
			links++
			if _, err := os.Stat(at); err != nil {
				t.Errorf("%s refers to %s: %v", strings.TrimPrefix(page, dir), m[1], err)
			}
		}
	}
	if links < 10 {
		t.Errorf("only %d links found", links)
	}
}

func filesBelow(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// units demands that the systemd units start the installed program, with commands and
// flags that exist. If systemd is installed, it must accept the units.
func units(t *testing.T, prefix string) {
	stag := filepath.Join(prefix, "bin/stag")
	for unit, wants := range map[string]string{
		"stag@eth1.service":         "load --tune",
		"stag-metrics.service":      "metrics -v",
		"stag-iscsi-target.service": "iscsi target --chap-file %d/chap",
		"stag-attach@eth1.service":  "iscsi attach",
		"stagd.service":             "daemon",
	} {
		file := filepath.Join(prefix, "lib/systemd/system", strings.Replace(unit, "eth1", "", 1))
		starts := startsOf(t, file)
		if len(starts) == 0 || !strings.HasPrefix(starts[0], stag+" "+wants) {
			t.Errorf("%s starts %q, want %s %s", unit, starts, stag, wants)
		}
		for _, line := range starts {
			words := slices.DeleteFunc(strings.Fields(line), func(w string) bool { return w == "%I" || strings.HasPrefix(w, "$") })
			if out, err := exec.Command(words[0], append(words[1:], "--help")...).CombinedOutput(); err != nil || !strings.Contains(string(out), "Usage:\n  stag "+words[1]) {
				t.Errorf("%s: %q is no command line: %v\n%s", unit, words, err, out)
			}
		}
		verify(t, file, unit)
	}
}

// startsOf returns the command lines of a unit.
func startsOf(t *testing.T, file string) (list []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		for _, key := range []string{"ExecStart=", "ExecStop="} {
			if line, ok := strings.CutPrefix(s.Text(), key); ok {
				list = append(list, line)
			}
		}
	}
	return list
}

// verify runs systemd's check of a unit. It copies the unit under the name of an instance,
// because the check needs such a name.
func verify(t *testing.T, file, unit string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, unit), text, 0o644); err != nil {
		t.Fatal(err)
	}
	sockets, err := filepath.Glob(filepath.Join(filepath.Dir(file), "*.socket")) // a service may require one
	if err != nil {
		t.Fatal(err)
	}
	for _, socket := range sockets {
		if err := os.Symlink(socket, filepath.Join(dir, filepath.Base(socket))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Logf("no systemd-analyze here to look at %s", unit)
		return
	}
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", filepath.Join(dir, unit)).CombinedOutput()
	if err != nil || len(out) != 0 {
		t.Errorf("%s: %v\n%s", unit, err, out)
	}
}
