package control

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// TestImpostor: a socket with the name of another process is not believed.
func TestImpostor(t *testing.T) {
	other := os.Getppid()
	path := filepath.Join(t.TempDir(), fmt.Sprintf("engine-%d-1.sock", other))
	s, err := Serve(path, saying(plain), rig.Silent())
	rig.Must(t, err)
	defer s.Close()
	e := Endpoint{path, other, 1, os.Geteuid()}
	_, err = e.Report(rig.Context(t))
	rig.Says(t, err, ErrImpostor, fmt.Sprintf("pid %d, adapter 1: another process answers for the engine: pid %d of user %d, at %s: end it",
		other, os.Getpid(), os.Geteuid(), path))
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("an impostor's file has been removed: %v", err)
	}
}

// world returns a directory for temporary files, like /tmp, which has only this test's
// engines.
func world(t *testing.T) (tmp string) {
	t.Helper()
	need.Root(t)
	tmp = t.TempDir()
	open(t, tmp)
	rig.Must(t, os.Chmod(tmp, 0o1777))
	t.Setenv("TMPDIR", tmp)
	return tmp
}

// TestOtherUser: an engine is reported with its own user, whichever user asks, and
// whatever file mode lets others ask.
func TestOtherUser(t *testing.T) {
	tmp := world(t)
	path := run(t, nobody-1, "own", "XDG_RUNTIME_DIR=").line()
	rig.Must(t, os.Chmod(filepath.Dir(path), 0o755))
	rig.Must(t, os.Chmod(path, 0o666))
	if said := run(t, 0, "report "+path).all(); said != "" {
		t.Errorf("root: %q", said)
	}
	said := run(t, nobody, "report "+path, "TMPDIR="+tmp).all()
	if !strings.Contains(said, ErrPermission.Error()) {
		t.Errorf("another user: %q", said)
	}
}

// TestContainer: an engine in a pid namespace has another pid there, which is in its
// socket's name. The kernel gives its pid in this namespace.
func TestContainer(t *testing.T) {
	tmp := world(t)
	c := start(t, nobody, "own", &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "XDG_RUNTIME_DIR=")
	path := filepath.Join(tmp, fmt.Sprintf("stag-%d", nobody), "engine-1-1.sock")
	if said := c.line(); said != path {
		t.Fatalf("it is at %q, want %q", said, path)
	}
	list, err := AllEngines(c.cmd.Process.Pid)
	rig.Must(t, err)
	if len(list) != 1 || list[0] != (Endpoint{path, c.cmd.Process.Pid, 1, nobody}) {
		t.Fatalf("%v", list)
	}
	r, err := list[0].Report(rig.Context(t))
	rig.Must(t, err)
	if r.Program != plain.Program {
		t.Errorf("%+v", r)
	}
	_, err = Endpoint{path, 1, 1, nobody}.Report(rig.Context(t))
	rig.Says(t, err, ErrImpostor)
}

// TestPIDOfAnother: a process may have, in a pid namespace of its own, the pid of
// another user's engine, and name its socket after it. It is not taken for that engine,
// neither in a directory of its own nor by a tool that asks for the pid.
func TestPIDOfAnother(t *testing.T) {
	tmp := world(t)
	victim := os.Getpid()
	dir := filepath.Join(tmp, fmt.Sprintf("stag-%d", nobody))
	rig.Must(t, os.Mkdir(dir, 0o700))
	rig.Must(t, os.Chown(dir, nobody, nobody))
	path := filepath.Join(dir, fmt.Sprintf("engine-%d-1.sock", victim))
	// The shell has pid 1 there. The process that it starts gets the pid that it asks
	// for.
	script := fmt.Sprintf("mount --make-rprivate / && mount -t proc proc /proc && echo %d > /proc/sys/kernel/ns_last_pid && { %s='called %s' setpriv --reuid %d --regid %d --clear-groups %s & wait; }",
		victim-1, roleVariable, path, nobody, nobody, program(t))
	cmd := exec.Command("sh", "-c", script)
	cmd.Dir, cmd.Stderr = "/", os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	rig.Must(t, err)
	rig.Must(t, cmd.Start())
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line := bufio.NewScanner(out)
	if line.Scan(); line.Text() != fmt.Sprint(victim) {
		t.Fatalf("it has the number %q there, want %d", line.Text(), victim)
	}
	if list, err := AllEngines(victim); err == nil && slices.ContainsFunc(list, func(e Endpoint) bool { return e.UID != os.Geteuid() }) {
		t.Errorf("those of pid %d: %v", victim, list)
	}
	for _, uid := range []int{0, nobody} {
		_, err = Endpoint{path, victim, 1, uid}.Report(rig.Context(t))
		rig.Says(t, err, ErrImpostor, "of user "+fmt.Sprint(nobody))
	}
	all, err := AllEngines(0)
	rig.Must(t, err)
	at := slices.IndexFunc(all, func(e Endpoint) bool { return e.Path == path })
	if at < 0 || all[at].PID == victim || all[at].UID != nobody {
		t.Errorf("%v", all)
	}
}

// program makes a copy of this program that any user may run, and returns its path.
func program(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/exe")
	rig.Must(t, err)
	path := filepath.Join(t.TempDir(), "program")
	rig.Must(t, os.WriteFile(path, text, 0o755))
	open(t, filepath.Dir(path))
	return path
}

// TestPlaceOfAnother: an engine in a directory of another user does not count, even if
// it is root's.
func TestPlaceOfAnother(t *testing.T) {
	tmp := world(t)
	dir := filepath.Join(tmp, fmt.Sprintf("stag-%d", nobody))
	rig.Must(t, os.Mkdir(dir, 0o777))
	rig.Must(t, os.Chmod(dir, 0o777))
	rig.Must(t, os.Chown(dir, nobody, nobody))
	for i, uid := range []int{0, nobody - 1, nobody} {
		path := filepath.Join(dir, fmt.Sprintf("engine-%d-%d.sock", os.Getpid(), i))
		c := run(t, uid, "called "+path)
		c.line()
		rig.Must(t, os.Chmod(path, 0o666))
		list, err := AllEngines(c.cmd.Process.Pid)
		if counts := uid == nobody; counts != (err == nil) || counts && (len(list) != 1 || list[0].UID != uid) {
			t.Errorf("user %d: %v, %v", uid, list, err)
		}
	}
}

// TestSwapped: a socket is replaced by a link after it was found. No tool connects to
// the target of the link.
func TestSwapped(t *testing.T) {
	tmp := world(t)
	c := run(t, nobody, "own", "XDG_RUNTIME_DIR=")
	path := c.line()
	list, err := AllEngines(c.cmd.Process.Pid)
	rig.Must(t, err)
	target := filepath.Join(tmp, "target")
	l, err := net.Listen("unix", target)
	rig.Must(t, err)
	defer l.Close()
	accepted := make(chan struct{})
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
			close(accepted)
		}
	}()
	rig.Must(t, os.Remove(path))
	rig.Must(t, os.Symlink(target, path))
	if _, err := list[0].Report(rig.Context(t)); err == nil {
		t.Error("a link was asked")
	}
	rig.Must(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+"-was"))
	rig.Must(t, os.Mkdir(filepath.Join(tmp, "elsewhere"), 0o755))
	rig.Must(t, os.Rename(target, filepath.Join(tmp, "elsewhere", filepath.Base(path))))
	rig.Must(t, os.Symlink(filepath.Join(tmp, "elsewhere"), filepath.Dir(path)))
	if _, err := list[0].Report(rig.Context(t)); err == nil {
		t.Error("the directory behind a link was asked")
	}
	select {
	case <-accepted:
		t.Error("somebody has connected to what the links point at")
	default:
	}
}

// TestLinks: a link in place of a directory or a socket leads no tool to the target of
// the link, neither to ask there nor to remove files.
func TestLinks(t *testing.T) {
	tmp := world(t)
	c := run(t, nobody, "own", "XDG_RUNTIME_DIR=")
	path, pid := c.line(), c.cmd.Process.Pid
	dir := filepath.Dir(path)
	rig.Must(t, os.Symlink(dir, filepath.Join(tmp, "stag-link")))
	rig.Must(t, os.Symlink(path, filepath.Join(dir, fmt.Sprintf("engine-%d-2.sock", pid))))
	list, err := AllEngines(pid)
	rig.Must(t, err)
	if len(list) != 1 || list[0].Path != path {
		t.Errorf("%v, want one at %s", list, path)
	}

	dead := fmt.Sprintf("engine-%d-1.sock", deadPID(t))
	leaveBehind(t, filepath.Join(dir, dead))
	if err := sweep(filepath.Join(tmp, "stag-link", dead)); err == nil || !isThere(filepath.Join(dir, dead)) {
		t.Errorf("a socket was removed through a link: %v", err)
	}
	rig.Must(t, sweep(filepath.Join(dir, dead)))
	if isThere(filepath.Join(dir, dead)) {
		t.Error("the socket of a dead process stays")
	}
}

// TestPeerOf: each end gets the credentials of the process at the other end.
func TestPeerOf(t *testing.T) {
	l, err := net.Listen("unix", t.TempDir()+"/s")
	rig.Must(t, err)
	defer l.Close()
	c, err := net.Dial("unix", l.Addr().String())
	rig.Must(t, err)
	defer c.Close()
	cred, err := PeerOf(c)
	rig.Must(t, err)
	if int(cred.Pid) != os.Getpid() || int(cred.Uid) != os.Geteuid() {
		t.Errorf("%+v", cred)
	}
	c.Close()
	if _, err := PeerOf(c); err == nil {
		t.Error("a closed socket has a peer")
	}
}
