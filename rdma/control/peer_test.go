package control

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// TestImpostor: a socket that is called after another process is not believed.
func TestImpostor(t *testing.T) {
	other := os.Getppid()
	path := filepath.Join(t.TempDir(), fmt.Sprintf("engine-%d-1.sock", other))
	s, err := Serve(path, saying(plain), silent)
	must(t, err)
	defer s.Close()
	e := Endpoint{path, other, 1}
	_, err = e.Report(background(t))
	says(t, err, ErrImpostor, fmt.Sprintf("pid %d, adapter 1: another process answers for the engine: pid %d of user %d, at %s: end it",
		other, os.Getpid(), os.Geteuid(), path))
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("an impostor's file has been removed: %v", err)
	}
}

// world is a directory for temporary files as /tmp is, where this test's
// engines and nobody else's are.
func world(t *testing.T) (tmp string) {
	t.Helper()
	need.Root(t)
	tmp = t.TempDir()
	open(t, tmp)
	must(t, os.Chmod(tmp, 0o1777))
	t.Setenv("TMPDIR", tmp)
	return tmp
}

// TestOtherUser: nobody but root believes what another user's process says.
func TestOtherUser(t *testing.T) {
	tmp := world(t)
	path := run(t, nobody-1, "own", "XDG_RUNTIME_DIR=").line()
	must(t, os.Chmod(filepath.Dir(path), 0o755))
	must(t, os.Chmod(path, 0o666))
	if said := run(t, 0, "report "+path).all(); said != "" {
		t.Errorf("root: %q", said)
	}
	said := run(t, nobody, "report "+path, "TMPDIR="+tmp).all()
	if !strings.Contains(said, ErrImpostor.Error()) || !strings.Contains(said, fmt.Sprint("of user ", nobody-1)) {
		t.Errorf("another user: %q", said)
	}
}

// TestContainer: an engine in a pid namespace has another number there, after
// which its socket is called.
func TestContainer(t *testing.T) {
	tmp := world(t)
	c := start(t, nobody, "own", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "XDG_RUNTIME_DIR=")
	path := filepath.Join(tmp, fmt.Sprintf("stag-%d", nobody), "engine-1-1.sock")
	if said := c.line(); said != path {
		t.Fatalf("it is at %q, want %q", said, path)
	}
	r, err := Endpoint{path, 1, 1}.Report(background(t))
	must(t, err)
	if r.Program != plain.Program {
		t.Errorf("%+v", r)
	}
	_, err = Endpoint{path, 2, 1}.Report(background(t))
	says(t, err, ErrImpostor)
}

// TestLinks: a link in place of a directory or a socket leads nobody to what it
// points at, neither to ask there nor to clean up.
func TestLinks(t *testing.T) {
	tmp := world(t)
	c := run(t, nobody, "own", "XDG_RUNTIME_DIR=")
	path, pid := c.line(), c.cmd.Process.Pid
	dir := filepath.Dir(path)
	must(t, os.Symlink(dir, filepath.Join(tmp, "stag-link")))
	must(t, os.Symlink(path, filepath.Join(dir, fmt.Sprintf("engine-%d-2.sock", pid))))
	list, err := Engines(pid)
	must(t, err)
	if len(list) != 1 || list[0].Path != path {
		t.Errorf("%v, want one at %s", list, path)
	}

	dead := fmt.Sprintf("engine-%d-1.sock", deadPID(t))
	leaveBehind(t, filepath.Join(dir, dead))
	if err := sweep(filepath.Join(tmp, "stag-link", dead)); err == nil || !isThere(filepath.Join(dir, dead)) {
		t.Errorf("a socket was removed through a link: %v", err)
	}
	must(t, sweep(filepath.Join(dir, dead)))
	if isThere(filepath.Join(dir, dead)) {
		t.Error("the socket of a dead process stays")
	}
}

// TestPeerOf: whoever listens is told to who connects.
func TestPeerOf(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/s")
	must(t, err)
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	must(t, err)
	defer c.Close()
	cred, err := peerOf(c)
	must(t, err)
	if int(cred.Pid) != os.Getpid() || int(cred.Uid) != os.Geteuid() {
		t.Errorf("%+v", cred)
	}
	c.Close()
	if _, err := peerOf(c); err == nil {
		t.Error("a closed socket has a peer")
	}
}
