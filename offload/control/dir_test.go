package control

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// ownDirectory returns the directory of this test's engines: an ordinary user's own, or
// root's /run/stag.
func ownDirectory(t *testing.T) string {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	path, err := Name(Number())
	rig.Must(t, err)
	return filepath.Dir(path)
}

// leaveBehind makes a socket at which no process listens.
func leaveBehind(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	rig.Must(t, err)
	l.SetUnlinkOnClose(false)
	rig.Must(t, l.Close())
	t.Cleanup(func() { os.Remove(path) })
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// deadPID returns the pid of a process that has ended.
func deadPID(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"=report /nowhere")
	cmd.Run()
	return cmd.Process.Pid
}

// TestEngines: Engines returns the engines that run, in order, and nothing else. It
// removes sockets of engines that have ended.
func TestEngines(t *testing.T) {
	dir := ownDirectory(t)
	var want []Endpoint
	for range 3 {
		n := Number()
		path, err := Name(n)
		rig.Must(t, err)
		s, err := Serve(path, saying(plain), rig.Silent())
		rig.Must(t, err)
		defer s.Close()
		want = append(want, Endpoint{path, os.Getpid(), n, os.Geteuid()})
	}
	dead, reused := deadPID(t), 1<<14+Number()
	abandoned := filepath.Join(dir, fmt.Sprintf("engine-%d-1.sock", dead))
	leaveBehind(t, abandoned)
	stranger := filepath.Join(dir, fmt.Sprintf("engine-%d-%d.sock", os.Getpid(), reused))
	leaveBehind(t, stranger)
	precious := filepath.Join(dir, fmt.Sprintf("engine-%d-2.sock", dead))
	rig.Must(t, os.WriteFile(precious, []byte("x"), 0o600))
	defer os.Remove(precious)
	// The name has another pid than the kernel: the kernel's is used.
	misnamed := filepath.Join(dir, fmt.Sprintf("engine-%d-%d.sock", dead, 1<<15))
	s, err := Serve(misnamed, saying(plain), rig.Silent())
	rig.Must(t, err)
	defer s.Close()
	want = append(want, Endpoint{misnamed, os.Getpid(), 1 << 15, os.Geteuid()})
	for _, name := range []string{"engine-.sock", "engine-x-1.sock", "engine-0-1.sock", "engine-5.sock", "engine--5-1.sock"} {
		rig.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
		defer os.Remove(filepath.Join(dir, name))
	}

	got, err := Engines(os.Getpid())
	rig.Must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	all, err := Engines(0)
	rig.Must(t, err)
	if seen := fmt.Sprint(all); strings.Contains(seen, abandoned) || !strings.Contains(seen, misnamed) || !strings.Contains(seen, want[2].Path) {
		t.Errorf("all engines: %v", seen)
	}
	for path, stays := range map[string]bool{abandoned: false, stranger: false, misnamed: true, precious: true} {
		if isThere(path) != stays {
			t.Errorf("%s is there: %v", path, !stays)
		}
	}
	if os.Geteuid() != 0 {
		// An engine that may not be asked does not hide a dead one.
		rig.Must(t, os.Chmod(misnamed, 0))
		all, err = Engines(0)
		rig.Must(t, err)
		if strings.Contains(fmt.Sprint(all), misnamed) || !isThere(misnamed) {
			t.Errorf("one that may not be asked, and whose process is gone: %v", all)
		}
	}

	_, err = Engines(1<<22 - 1)
	rig.Says(t, err, ErrNoEngine, "process 4194303", "stag show devices")
}

// TestServe: files that exist at the path already.
func TestServe(t *testing.T) {
	path := t.TempDir() + "/s"
	leaveBehind(t, path)
	s, err := Serve(path, saying(plain), rig.Silent())
	rig.Must(t, err)
	_, err = Endpoint{Path: path, PID: os.Getpid(), UID: os.Geteuid()}.Report(rig.Context(t))
	rig.Must(t, err)
	if info, err := os.Lstat(path); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	_, err = Serve(path, saying(plain), rig.Silent())
	rig.Says(t, err, nil, path, "another process answers there")
	_, err = Endpoint{Path: path, PID: os.Getpid(), UID: os.Geteuid()}.Report(rig.Context(t))
	rig.Must(t, err) // the running server still answers
	rig.Must(t, s.Close())
	if isThere(path) {
		t.Error("the socket stays")
	}

	rig.Must(t, os.WriteFile(path, []byte("x"), 0o600))
	_, err = Serve(path, saying(plain), rig.Silent())
	rig.Says(t, err, nil, path, "no socket", "remove")
	if b, err := os.ReadFile(path); string(b) != "x" {
		t.Errorf("the file in the way: %q, %v", b, err)
	}
	_, err = Serve(t.TempDir()+"/none/s", saying(plain), rig.Silent())
	rig.Says(t, err, os.ErrNotExist, "control socket")
}

// TestModeFromTheBeginning: the socket is never open to others, not even at first,
// whatever the umask.
func TestModeFromTheBeginning(t *testing.T) {
	defer unix.Umask(unix.Umask(0))
	l, err := listen(t.TempDir() + "/s")
	rig.Must(t, err)
	defer l.Close()
	if info, err := os.Lstat(l.Addr().String()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestLongPath: if a directory is too deep for a socket, the error says so, and is not
// EINVAL.
func TestLongPath(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100))
	rig.Must(t, os.Mkdir(dir, 0o777))
	uid := os.Geteuid()
	if uid == 0 { // whose directory is fixed
		open(t, dir)
		rig.Must(t, os.Chown(dir, nobody, nobody))
		uid = nobody
	}
	said := run(t, uid, "name", "XDG_RUNTIME_DIR="+dir).all()
	if !strings.Contains(said, "error:") || !strings.Contains(said, "the kernel takes 107") || !strings.Contains(said, "set XDG_RUNTIME_DIR") {
		t.Errorf("said %q", said)
	}
}

// open lets every user into dir and the directories above it.
func open(t *testing.T, dir string) {
	t.Helper()
	for ; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
		rig.Must(t, os.Chmod(dir, 0o755))
	}
}

// TestOthersDirectory: no user's sockets are made where others could replace them.
// Another user who has taken the directory's name cannot keep a user's programs from
// having sockets: they have another directory, and are found there.
func TestOthersDirectory(t *testing.T) {
	tmp := world(t)
	own := filepath.Join(tmp, fmt.Sprintf("stag-%d", nobody))
	name := func(xdg string) string { return run(t, nobody, "name", "XDG_RUNTIME_DIR="+xdg, "TMPDIR="+tmp).all() }

	rig.Must(t, os.Chmod(tmp, 0o755))
	if said := name(""); !strings.HasPrefix(said, "error: make the directory for control sockets: ") || !strings.Contains(said, "XDG_RUNTIME_DIR") {
		t.Errorf("where nothing can be made: said %q", said)
	}
	rig.Must(t, os.Chmod(tmp, 0o1777))
	for what, prepare := range map[string]func(){
		"root's":    func() { rig.Must(t, os.Mkdir(own, 0o777)) },
		"another's": func() { rig.Must(t, os.Mkdir(own, 0o700)); rig.Must(t, os.Chown(own, nobody-1, nobody-1)) },
		"a link":    func() { rig.Must(t, os.Symlink("/tmp", own)) },
		"a file":    func() { rig.Must(t, os.WriteFile(own, nil, 0o666)) },
		"dangling":  func() { rig.Must(t, os.Symlink("/nowhere", own)) },
	} {
		prepare()
		first, second := name(""), name("")
		info, err := os.Lstat(filepath.Dir(first))
		if !strings.HasPrefix(first, own+".") || filepath.Dir(first) != filepath.Dir(second) || err != nil || info.Mode() != os.ModeDir|0o700 {
			t.Errorf("%s: said %q, then %q; %v, %v", what, first, second, info, err)
		}
		c := run(t, nobody, "own", "XDG_RUNTIME_DIR=", "TMPDIR="+tmp)
		path := c.line()
		if said := run(t, nobody, fmt.Sprint("engines ", c.cmd.Process.Pid), "XDG_RUNTIME_DIR=", "TMPDIR="+tmp).all(); said != path {
			t.Errorf("%s: its user finds %q, want %q", what, said, path)
		}
		if list, err := AllEngines(c.cmd.Process.Pid); err != nil || len(list) != 1 || list[0].Path != path || list[0].UID != nobody {
			t.Errorf("%s: root finds %v, %v", what, list, err)
		}
		c.kill()
		rig.Must(t, os.RemoveAll(own))
		rig.Must(t, os.RemoveAll(filepath.Dir(first)))
	}
	// An XDG_RUNTIME_DIR of another user, as su leaves it there, is not used.
	for _, xdg := range []string{"/root", "/nowhere", ""} {
		if said := name(xdg); !strings.HasPrefix(said, own+"/engine-") {
			t.Errorf("XDG_RUNTIME_DIR=%s: said %q", xdg, said)
		}
	}
	if info, err := os.Stat(own); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestPermission: the file's mode keeps other users out. If the mode has been opened,
// the kernel's credentials keep them out.
func TestPermission(t *testing.T) {
	need.Root(t)
	var log bytes.Buffer
	e := Endpoint{Path: t.TempDir() + "/s", PID: os.Getpid()}
	s, err := Serve(e.Path, saying(plain), slog.New(slog.NewTextHandler(&log, nil)))
	rig.Must(t, err)
	open(t, filepath.Dir(e.Path))
	said := run(t, nobody, "report "+e.Path).all()
	of := fmt.Sprintf("error: %v of pid %d: ", ErrPermission, os.Getpid())
	if want := of + "run as root, or as the user that it runs as"; said != want {
		t.Errorf("said %q, want %q", said, want)
	}
	rig.Must(t, os.Chmod(e.Path, 0o666))
	said = run(t, nobody, "report "+e.Path).all()
	if want := of + "only root and user 0 may look into this engine"; said != want {
		t.Errorf("said %q, want %q", said, want)
	}

	rig.Must(t, s.Close()) // the server writes the log
	if line := log.String(); strings.Count(line, "\n") != 1 || !strings.Contains(line, fmt.Sprint("Uid:", nobody)) || !strings.Contains(line, "refused") {
		t.Errorf("the log says %q", line)
	}

	// Root may ask all users' engines, and finds them when it looks for them.
	tmp := t.TempDir()
	open(t, tmp)
	rig.Must(t, os.Chmod(tmp, 0o1777))
	t.Setenv("TMPDIR", tmp)
	c := run(t, nobody, "own", "XDG_RUNTIME_DIR=")
	path := c.line()
	if list, err := Engines(c.cmd.Process.Pid); err == nil {
		t.Errorf("root finds another user's without asking for those: %v", list)
	}
	list, err := AllEngines(c.cmd.Process.Pid)
	if err != nil || len(list) != 1 || list[0] != (Endpoint{path, c.cmd.Process.Pid, list[0].Adapter, nobody}) {
		t.Fatalf("%v, %v; it is at %s", list, err, path)
	}
	if r, err := list[0].Report(rig.Context(t)); err != nil || r.Program != plain.Program {
		t.Errorf("%+v, %v", r, err)
	}
	if said := run(t, nobody, "report "+path).all(); said != "" {
		t.Errorf("its own user: %q", said)
	}
	if said := run(t, nobody-1, "report "+path).all(); !strings.Contains(said, ErrPermission.Error()) {
		t.Errorf("another user: %q", said)
	}
}
