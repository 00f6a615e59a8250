package measure

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// goPeer is an iSCSI program in Go that is compared with stag. The benchmark builds it in
// a directory of its own, so that stag's module does not depend on it.
type goPeer struct {
	name    string
	module  string
	version string
	pack    string // package of the program; "": the file source
	source  []byte
	mend    mend
}

// mend is a change to a file of the module, without which the program cannot be compared.
type mend struct{ file, before, after string }

//go:embed testdata/peers/uiscsi.go.txt
var uiscsiSource []byte

var (
	uiscsi = goPeer{name: "uiscsi", module: "github.com/uiscsi/uiscsi", version: "v1.4.1", source: uiscsiSource, mend: loginIsImmediate}
	gotgt  = goPeer{name: "gotgt", module: "github.com/gostor/gotgt", version: "v0.2.2", pack: "github.com/gostor/gotgt"}
)

// loginIsImmediate sets the I bit of login requests (RFC 7143 §11.12.1), which tgtd
// demands. A stag target is no peer for this program, which sends commands in another order
// than that of their CmdSN if several are in flight.
var loginIsImmediate = mend{"internal/login/login.go", "Final:          true, // login", "Immediate: true, Final: true, // login"}

// goPeers are all of them.
var goPeers = []goPeer{uiscsi, gotgt}

// build builds the program if the cache does not have it, and returns its path. It needs
// the module proxy only to build.
func (g goPeer) build(ctx context.Context) (path string, err error) {
	dir, err := g.directory()
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, g.name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	module := "module bench.invalid/peer\n\ngo 1.26.0\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o644); err != nil {
		return "", err
	}
	pack := g.pack
	if pack == "" {
		pack = "."
		if err := os.WriteFile(filepath.Join(dir, "main.go"), g.source, 0o644); err != nil {
			return "", err
		}
	}
	if err := g.compile(ctx, dir, pack); err != nil {
		return "", fmt.Errorf("build %s %s: %w", g.name, g.version, err)
	}
	return path, os.Rename(path+".new", path)
}

// compile builds the program in dir.
func (g goPeer) compile(ctx context.Context, dir, pack string) error {
	if _, err := goCommand(ctx, dir, "get", g.module+"@"+g.version); err != nil {
		return err
	}
	if g.mend.file != "" {
		if err := g.change(ctx, dir); err != nil {
			return err
		}
	}
	_, err := goCommand(ctx, dir, "build", "-o", g.name+".new", pack)
	return err
}

// change makes a copy of the module with the change, and builds from it.
func (g goPeer) change(ctx context.Context, dir string) error {
	from, err := goCommand(ctx, dir, "list", "-m", "-f", "{{.Dir}}", g.module)
	if err != nil {
		return err
	}
	copied := filepath.Join(dir, "module")
	if err := errors.Join(os.RemoveAll(copied), os.CopyFS(copied, os.DirFS(from))); err != nil {
		return err
	}
	name := filepath.Join(copied, g.mend.file)
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if bytes.Count(text, []byte(g.mend.before)) != 1 {
		return fmt.Errorf("%s has changed: look at the change that the benchmark makes", g.mend.file)
	}
	text = bytes.ReplaceAll(text, []byte(g.mend.before), []byte(g.mend.after))
	if err := errors.Join(os.Remove(name), os.WriteFile(name, text, 0o644)); err != nil {
		return err
	}
	_, err = goCommand(ctx, dir, "mod", "edit", "-replace", g.module+"=./module")
	return err
}

// directory is where the program is built. The source is part of its name, so that a
// change of the source builds it again.
func (g goPeer) directory() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(cache, "stag-bench", fmt.Sprintf("%s-%s-%d", g.name, g.version, len(g.source))), nil
}

// goCommand runs go in a directory, and returns what it prints.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "CGO_ENABLED=0")
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return "", fmt.Errorf("go %s: %w: %s", args[0], err, bytes.TrimSpace(exit.Stderr))
	}
	return string(bytes.TrimSpace(out)), err
}

// available reports whether the program is in the cache, or can be built.
func (g goPeer) available() bool {
	dir, err := g.directory()
	if err != nil {
		return false
	}
	if _, err := os.Stat(filepath.Join(dir, g.name)); err == nil {
		return true
	}
	_, err = g.build(context.Background())
	return err == nil
}

// peerVersions returns the versions of the programs of the table iscsi.
func peerVersions() (list []string) {
	for _, p := range []struct{ name, pack string }{{"tgtd", "tgt"}, {"iscsi-perf", "libiscsi-bin"}, {"qemu-img", "qemu-utils"}} {
		out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", p.pack).Output()
		if err != nil {
			out = []byte("of an unknown version")
		}
		list = append(list, p.name+" "+string(out))
	}
	for _, g := range goPeers {
		list = append(list, g.name+" "+g.version)
	}
	return list
}

// command is the command stag of this checkout, built once in a run.
var command struct {
	once sync.Once
	dir  string
	err  error
}

// stagCommand returns the path of the command stag. removeCommand removes it.
func stagCommand(ctx context.Context) (string, error) {
	command.once.Do(func() {
		if command.dir, command.err = os.MkdirTemp("", "stag-bench-"); command.err != nil {
			return
		}
		cmd := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(command.dir, "stag"), "github.com/stag-rdma/stag/cmd/stag")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			command.err = errors.Join(fmt.Errorf("build stag (run the benchmark in the checkout): %w: %s", err, bytes.TrimSpace(out)), os.RemoveAll(command.dir))
		}
	})
	return filepath.Join(command.dir, "stag"), command.err
}

func removeCommand() error {
	if command.dir == "" {
		return nil
	}
	return os.RemoveAll(command.dir)
}
