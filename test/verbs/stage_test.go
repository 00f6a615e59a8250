//go:build verbs

package verbs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/rig"
)

// user is the user nobody and its group, as which the programs run. The sockets of the daemons
// belong to this group, where a machine of users has the group rdma.
const user, group = 65534, "nogroup"

// stage is what all rows share.
type stage struct {
	dir    string // temporary directory
	bin    string // path of the stag command
	lib    string // directory of the two libraries
	worlds map[string]*world
}

var theStage stage

// world is two namespaces with a daemon each.
type world struct {
	name    string // xdp or kernel
	pair    *pair.Pair
	daemons [2]*process
}

// setUp builds the command and the libraries.
func (s *stage) setUp() error {
	s.dir, s.worlds = "/run/verbs", map[string]*world{}
	s.bin, s.lib = filepath.Join(s.dir, "stag"), filepath.Join(s.dir, "verbs")
	for _, dir := range []string{s.dir, s.lib, s.tmp()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	err := errors.Join(os.Chown(s.tmp(), user, user), os.WriteFile(s.hosts(), []byte(hosts), 0o644))
	if err != nil {
		return err
	}
	build := exec.Command("go", "build", "-o", s.bin, "../../cmd/stag")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	for _, cmd := range []*exec.Cmd{build, exec.Command("make", "-C", "../..", "verbs", "BIN="+s.dir)} {
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
		}
	}
	return nil
}

// hosts is the file /etc/hosts of the programs. Some look the name of their host up, to find the
// address on which they listen.
const hosts = "127.0.0.1 localhost\n" + addrA + " hostA\n" + addrB + " hostB\n"

func (s *stage) hosts() string { return filepath.Join(s.dir, "hosts") }

// as runs a program as the user without rights, with the file hosts and with a name for the host.
const as = `mount --bind "$1" /etc/hosts && hostname "$2" && shift 2 &&
exec setpriv --pdeathsig KILL --reuid "$STAG_TEST_USER" --regid "$STAG_TEST_USER" --clear-groups --no-new-privs "$@"`

// tmp is a directory in which the programs may write.
func (s *stage) tmp() string { return filepath.Join(s.dir, "tmp") }

func (s *stage) tearDown() {
	for _, w := range s.worlds {
		w.close()
	}
}

// socket is the path of a side's daemon.
func (w *world) socket(side pair.Side) string {
	return filepath.Join(theStage.dir, w.name+"-"+side.String()+".sock")
}

// world returns the world with this name. It makes the world if it does not exist.
func (s *stage) world(name string) (*world, error) {
	if w := s.worlds[name]; w != nil {
		return w, nil
	}
	w := &world{name: name}
	s.worlds[name] = w
	var err error
	if w.pair, err = pair.New(pair.Config{}); err != nil {
		return nil, err
	}
	for side := range w.daemons {
		if err := w.serve(pair.Side(side)); err != nil {
			return nil, fmt.Errorf("daemon %v of world %s: %w", pair.Side(side), name, err)
		}
	}
	return w, nil
}

// serve starts the daemon of a side.
func (w *world) serve(side pair.Side) error {
	args := []string{theStage.bin, "daemon", "--socket", w.socket(side), "--group", group}
	if w.name == "xdp" {
		args = append(args, "-i", w.pair.Ends[side].Name)
	} else {
		args = append(args, "--kernel-port")
	}
	d, err := w.start(side, args, nil)
	if err != nil {
		return err
	}
	w.daemons[side] = d
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if strings.Contains(d.out.String(), "serving ") {
			return nil
		}
		if d.ended() || time.Now().After(end) {
			return fmt.Errorf("it does not serve\n%s", d.out.String())
		}
	}
}

// broken reports whether a daemon has ended.
func (w *world) broken() bool { return w.daemons[0].ended() || w.daemons[1].ended() }

// said returns what the daemons printed.
func (w *world) said() string {
	return tail(w.daemons[0].out.String()) + "\n" + tail(w.daemons[1].out.String())
}

// forget closes a world. The next row makes another.
func (s *stage) forget(name string) {
	s.worlds[name].close()
	delete(s.worlds, name)
}

func (w *world) close() {
	for _, d := range w.daemons {
		if d != nil {
			d.kill()
		}
	}
	if w.pair != nil {
		w.pair.Close()
	}
}

// process is a program that runs in a namespace.
type process struct {
	cmd  *exec.Cmd
	out  rig.Output
	mark string        // in the environment of the program and its descendants
	done chan struct{} // closed at the end
	err  error         // of the end
}

// marks counts the programs.
var marks atomic.Int64

// start starts a program on a side. The program is killed when the thread that started it
// ends, so the thread stays until the program has ended.
func (w *world) start(side pair.Side, args, env []string) (*process, error) {
	p := &process{cmd: exec.Command(args[0], args[1:]...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.mark = fmt.Sprint(markVariable, os.Getpid(), ".", marks.Add(1))
	p.cmd.Env = append(append(os.Environ(), env...), p.mark)
	p.cmd.Dir = theStage.tmp()
	p.cmd.WaitDelay = 5 * time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := w.pair.Do(side, p.cmd.Start)
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	return p, <-started
}

// program starts a program of the distribution as the user without rights.
func (w *world) program(side pair.Side, args []string, env ...string) (*process, error) {
	env = append([]string{
		"STAG_DAEMON=" + w.socket(side), "HOME=" + theStage.tmp(), "TMPDIR=" + theStage.tmp(), fmt.Sprint("STAG_TEST_USER=", user),
	}, env...)
	wrapped := []string{"unshare", "--mount", "--uts", "sh", "-c", as, "sh", theStage.hosts(), "host" + side.String(), "env", "LD_LIBRARY_PATH=" + theStage.lib}
	return w.start(side, append(wrapped, args...), env)
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends a program and its descendants. Some of them, such as the jobs of fio, have left its
// process group. All have the mark in their environment.
func (p *process) kill() {
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	for len(p.descendants()) > 0 {
		for _, pid := range p.descendants() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
	<-p.done
}

// markVariable has another value for each program that a row starts.
const markVariable = "STAG_TEST_MARK="

// descendants returns the processes that have the mark of p. A zombie has no environment.
func (p *process) descendants() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+p.mark+"\x00")) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// listens reports whether somebody listens on a TCP port in the namespace of p.
func (p *process) listens(port int) bool {
	return listening(p.cmd.Process.Pid, port)
}

// listens reports whether somebody listens on a TCP port of a side.
func (w *world) listens(side pair.Side, port int) bool {
	return listening(w.daemons[side].cmd.Process.Pid, port)
}

// listening reports whether somebody listens on a TCP port in the namespace of a process.
func listening(pid, port int) bool {
	for _, family := range []string{"tcp", "tcp6"} {
		table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, family))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(table)) {
			f := strings.Fields(line)
			if len(f) > 3 && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) && f[3] == "0A" {
				return true
			}
		}
	}
	return false
}
