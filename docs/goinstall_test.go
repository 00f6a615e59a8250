package docs

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// goInstall is the command in the README that installs stag.
const goInstall = "go install github.com/stag-rdma/stag/cmd/stag@latest"

// TestGoInstall: the README's line works without a change. In the test it gets this tree
// from a module proxy of files, and the modules that stag needs from Go's own cache. The
// build has the flags of make build, so that Go has already compiled the dependencies.
func TestGoInstall(t *testing.T) {
	need.Tool(t, "go")
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "    "+goInstall+"\n") {
		t.Errorf("the README does not say %s", goInstall)
	}
	downloads := filepath.Join(strings.TrimSpace(ask(t, "go", "env", "GOMODCACHE")), "cache/download")
	if _, err := os.Stat(downloads); err != nil {
		t.Skipf("SKIPPED, needs the modules that Go has downloaded: %v", err)
	}
	dir := t.TempDir()
	serve(t, filepath.Join(dir, "proxy"), "v0.0.1")
	cmd := exec.Command("sh", "-c", goInstall)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "GOMODCACHE="+filepath.Join(dir, "modules"), "GOSUMDB=off", "GONOPROXY=none", "GOPRIVATE=",
		"GOPROXY=file://"+filepath.Join(dir, "proxy")+",file://"+downloads, "GOFLAGS=-modcacherw -trimpath -buildvcs=false", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", goInstall, err, out)
	}
	if out := ask(t, filepath.Join(dir, "stag"), "version"); !strings.HasPrefix(out, "stag v0.0.1\n") {
		t.Errorf("what it installs says\n%s", out)
	}
}

// ask returns the output of a command.
func ask(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return string(out)
}

// serve makes a module proxy of files that has this tree as a version.
func serve(t *testing.T, proxy, version string) {
	t.Helper()
	mod, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(mod), "\n")
	module := strings.TrimPrefix(first, "module ")
	at := filepath.Join(proxy, filepath.FromSlash(module), "@v")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list":            version + "\n",
		version + ".mod":  string(mod),
		version + ".info": fmt.Sprintf(`{"Version":%q,"Time":"2026-01-01T00:00:00Z"}`, version),
	} {
		if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Create(filepath.Join(at, version+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := pack(f, module+"@"+version); err != nil {
		t.Fatal(err)
	}
}

// pack writes the files of this tree, without files that a module version cannot have.
func pack(f *os.File, prefix string) error {
	z := zip.NewWriter(f)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, "../")
		switch {
		case err != nil || path == "..":
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") || name == "vendor" || name == "bin"):
			return fs.SkipDir
		case !d.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		w, err := z.Create(prefix + "/" + name)
		if err == nil {
			_, err = w.Write(text)
		}
		return err
	})
	if err != nil {
		return err
	}
	return z.Close()
}
