package examples

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// programs is the directory of the built examples.
var programs string

func TestMain(m *testing.M) {
	need.OwnMounts()
	os.Exit(build(m))
}

// build builds the examples and then runs the tests.
func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "stag-examples-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	programs = dir
	if out, err := exec.Command("go", "build", "-o", dir+"/", "./kv", "./filecopy", "./stream").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the examples: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// stage has the places in which the two ends of an example run.
type stage struct {
	*testing.T
	host string // address of the server
	flag [2][]string
	in   [2]func(func() error) error // functions that run a function in the namespace of an end, by end
}

// The two ends.
const (
	server = pair.B
	client = pair.A
)

// onBothPaths runs test over the kernel port, as any user, and offloaded over a veth
// pair, as root.
func onBothPaths(t *testing.T, test func(s *stage)) {
	t.Run("kernel port", func(t *testing.T) {
		here := func(f func() error) error { return f() }
		test(&stage{T: t, host: "127.0.0.1", in: [2]func(func() error) error{here, here}})
	})
	t.Run("offloaded", func(t *testing.T) {
		need.Root(t)
		need.XDP(t)
		p, err := pair.New(pair.Config{})
		rig.Must(t, err)
		t.Cleanup(func() { rig.Check(t, p.Close()) })
		s := &stage{T: t, host: p.Ends[server].V4.Addr().String()}
		for _, side := range []pair.Side{server, client} {
			s.flag[side] = []string{"-i", p.Ends[side].Name}
			s.in[side] = func(f func() error) error { return p.Do(side, f) }
		}
		test(s)
	})
}

// program is an example that runs. It is killed when the test ends.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  io.ReadCloser // standard output of the program
	errs io.ReadCloser // standard error
}

// start starts an example at one end.
func (s *stage) start(side pair.Side, name string, stdin io.Reader, args ...string) *program {
	s.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	s.Cleanup(cancel)
	x := &program{t: s.T, cmd: exec.CommandContext(ctx, filepath.Join(programs, name), append(s.flag[side], args...)...)}
	x.cmd.Stdin = stdin
	var err error
	x.out, err = x.cmd.StdoutPipe()
	rig.Must(s, err)
	x.errs, err = x.cmd.StderrPipe()
	rig.Must(s, err)
	rig.Must(s, s.in[side](x.cmd.Start))
	return x
}

// listening returns the address that a server prints when it is ready.
func (x *program) listening(from io.Reader) string {
	x.t.Helper()
	line, err := bufio.NewReader(from).ReadString('\n')
	at, found := strings.CutPrefix(line, "listening on ")
	if err != nil || !found {
		text, _ := io.ReadAll(x.errs)
		x.t.Fatalf("%v: %q, %v: %s", x.cmd, line, err, text)
	}
	return strings.TrimSpace(at)
}

// ends waits for the end of a program, demands an exit code, and returns what it printed.
func (x *program) ends(code int) (out, errs string) {
	x.t.Helper()
	said := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(x.errs)
		said <- text
	}()
	text, err := io.ReadAll(x.out)
	rig.Must(x.t, err)
	errs = string(<-said)
	_ = x.cmd.Wait() // the exit code has the result
	if got := x.cmd.ProcessState.ExitCode(); got != code {
		x.t.Fatalf("%v: exit code %d, want %d: %s", x.cmd, got, code, errs)
	}
	return string(text), errs
}

// run runs a client to its end.
func (s *stage) run(code int, name string, args ...string) (out, errs string) {
	s.Helper()
	return s.start(client, name, nil, args...).ends(code)
}

// interrupt sends the signal of Ctrl-C.
func (x *program) interrupt() {
	x.t.Helper()
	rig.Must(x.t, x.cmd.Process.Signal(os.Interrupt))
}

// TestKV: a get returns the value of the last put, with a version that grows, until the
// server is interrupted.
func TestKV(t *testing.T) {
	onBothPaths(t, func(s *stage) {
		x := s.start(server, "kv", nil, "serve", s.host+":0")
		at := x.listening(x.out)
		for _, c := range []struct {
			args []string
			code int
			want string
		}{
			{[]string{"put", at, "colour", "green"}, 0, "colour is green, version 1\n"},
			{[]string{"put", at, "shape", "round"}, 0, "shape is round, version 1\n"},
			{[]string{"put", at, "colour", "blue"}, 0, "colour is blue, version 2\n"},
			{[]string{"get", at, "colour"}, 0, "colour is blue, version 2\n"},
			{[]string{"get", at, "shape"}, 0, "shape is round, version 1\n"},
			{[]string{"get", at, "size"}, 1, "kv: \"size\": no such key\n"},
			{[]string{"put", at, "", "empty"}, 1, "kv: a key of 0 octets and a value of 5: choose 1 to 64 and 0 to 160\n"},
			{[]string{"get", at}, 1, "kv: usage: kv [-i IFACE,...] serve ADDR | put ADDR KEY VALUE | get ADDR KEY\n"},
		} {
			out, errs := s.run(c.code, "kv", c.args...)
			if out+errs != c.want {
				s.Errorf("%q printed %q and %q, want %q", c.args, out, errs, c.want)
			}
		}
		x.interrupt()
		if _, errs := x.ends(0); errs != "" {
			s.Errorf("the server printed %q", errs)
		}
	})
}

// randomFile makes a file of n random octets.
func randomFile(t *testing.T, n int) (name string, content []byte) {
	t.Helper()
	content = make([]byte, n)
	rand.Read(content)
	name = filepath.Join(t.TempDir(), "original")
	rig.Must(t, os.WriteFile(name, content, 0o644))
	return name, content
}

// TestFileCopy: files of any length arrive unchanged, also a file with more chunks than the
// memory has.
func TestFileCopy(t *testing.T) {
	onBothPaths(t, func(s *stage) {
		for _, n := range []int{0, 1, 1 << 20, 8 << 20, 20<<20 + 12345} {
			name, content := randomFile(s.T, n)
			copied := filepath.Join(s.TempDir(), "copy")
			x := s.start(server, "filecopy", nil, "receive", s.host+":0", copied)
			at := x.listening(x.out)
			s.run(0, "filecopy", "send", at, name)
			x.ends(0)
			if got, err := os.ReadFile(copied); err != nil || !bytes.Equal(got, content) {
				s.Errorf("%d octets: %d are there, the right ones: %v; %v", n, len(got), bytes.Equal(got, content), err)
			}
			noPart(s.T, copied)
		}
	})
}

// noPart demands that no unfinished file is left.
func noPart(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat(name + ".part"); !os.IsNotExist(err) {
		t.Errorf("%s.part is left: %v", name, err)
	}
}

// TestFileCopyCut: if Ctrl-C ends a sender in the middle, the receiver reports that the
// connection was reset, and leaves no file.
func TestFileCopyCut(t *testing.T) {
	onBothPaths(t, func(s *stage) {
		dir := s.TempDir()
		pipe := filepath.Join(dir, "pipe") // a file without an end
		rig.Must(s, exec.Command("mkfifo", pipe).Run())
		copied := filepath.Join(dir, "copy")
		x := s.start(server, "filecopy", nil, "receive", s.host+":0", copied)
		y := s.start(client, "filecopy", nil, "send", x.listening(x.out), pipe)
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // returns when the sender has opened the pipe
		rig.Must(s, err)
		defer w.Close()
		_, err = w.Write(make([]byte, 3<<20)) // returns when the sender is connected and has read nearly everything
		rig.Must(s, err)
		rig.Must(s, x.cmd.Process.Signal(syscall.SIGSTOP)) // the sender will soon wait for a free chunk
		fed := make(chan bool)
		go func() {
			for err == nil { // fails when the sender has ended
				_, err = w.Write(make([]byte, 1<<20))
			}
			close(fed)
		}()
		y.interrupt()
		if _, errs := y.ends(1); !strings.Contains(errs, "interrupt") {
			s.Errorf("the sender printed %q", errs)
		}
		rig.Wait(s.T, fed, "the pipe is broken")
		rig.Must(s, x.cmd.Process.Signal(syscall.SIGCONT))
		if _, errs := x.ends(1); !strings.Contains(errs, "reset") {
			s.Errorf("the receiver printed %q", errs)
		}
		if _, err := os.Stat(copied); !os.IsNotExist(err) {
			s.Errorf("the file is there: %v", err)
		}
		noPart(s.T, copied)
	})
}

// TestStream: each end writes to its standard output what the other end reads from its
// standard input, whichever end dials. An end whose input has ended still gets all data of
// the other end.
func TestStream(t *testing.T) {
	onBothPaths(t, func(s *stage) {
		for _, lengths := range [][2]int{{client: 5<<20 + 77, server: 0}, {client: 0, server: 5<<20 + 77}, {client: 3 << 20, server: 1}} {
			_, fromClient := randomFile(s.T, lengths[client])
			_, fromServer := randomFile(s.T, lengths[server])
			x := s.start(server, "stream", bytes.NewReader(fromServer), "listen", s.host+":0")
			y := s.start(client, "stream", bytes.NewReader(fromClient), "dial", x.listening(x.errs))
			atClient := make(chan []byte, 1)
			go func() {
				text, _ := io.ReadAll(y.out) // the exit code of y reports an error
				atClient <- text
			}()
			atServer, _ := x.ends(0)
			if got := rig.Wait(s.T, atClient, "all is at the client"); !bytes.Equal(got, fromServer) || atServer != string(fromClient) {
				s.Errorf("%d octets came from the client and %d from the server, want %v", len(atServer), len(got), lengths)
			}
			y.ends(0)
		}
	})
}

// endless returns a file that has the text hello and no end.
func endless(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	rig.Must(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	_, err = w.WriteString("hello")
	rig.Must(t, err)
	return r
}

// TestStreamCut: Ctrl-C at one end also ends the other end. The other end reports that the
// peer has left before the end of the data.
func TestStreamCut(t *testing.T) {
	onBothPaths(t, func(s *stage) {
		for _, side := range []pair.Side{server, client} {
			x := s.start(server, "stream", endless(s.T), "listen", s.host+":0")
			y := s.start(client, "stream", endless(s.T), "dial", x.listening(x.errs))
			ends := [2]*program{server: x, client: y}
			for _, p := range ends { // waits until both are connected
				_, err := io.ReadFull(p.out, make([]byte, len("hello")))
				rig.Must(s, err)
			}
			ends[side].interrupt()
			ends[side].ends(0)
			if _, errs := ends[1-side].ends(1); !strings.Contains(errs, "the peer has closed the connection") {
				s.Errorf("the other end printed %q", errs)
			}
		}
	})
}
