package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestDumpReaderLeaves: a reader that closes the pipe ends the dump. The dump does not call that a failure.
func TestDumpReaderLeaves(t *testing.T) {
	for _, args := range [][]string{{"-w", "-"}, {"--json"}, nil} {
		u := newDumpUsers(t)
		x, y := u.connect()
		r, w, err := os.Pipe()
		rig.Must(t, err)
		cmd := command(t, append(append([]string{"dump"}, own...), args...)...)
		var says bytes.Buffer
		cmd.Stdout, cmd.Stderr = w, &says
		rig.Must(t, cmd.Start())
		w.Close()
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		var one [1]byte
		go func() {
			r.Read(one[:])
			r.Close()
		}()
		for done := false; !done; {
			u.talk(x, y)
			select {
			case err = <-ended:
				done = true
			default:
			}
		}
		if err != nil || strings.Contains(says.String(), "broken pipe") || !strings.Contains(says.String(), " captured, ") {
			t.Errorf("%q: %v, %q", args, err, says.String())
		}
	}
}

// TestDumpUnread: if the reader of dump's output does not read, packets are lost and counted. The transfer still
// completes. If the reader never reads, dump does not wait for ever.
func TestDumpUnread(t *testing.T) {
	u := newDumpUsers(t)
	x, y := u.connect()
	r, w, err := os.Pipe()
	rig.Must(t, err)
	defer r.Close()
	cmd, notes := piped(t, w, append([]string{"-w", "-", "-i", u.name(pair.A)}, own...)...)
	copy(x.mr.Bytes(), bytes.Repeat([]byte("stag"), dumpMemory/4))
	for range 64 {
		x.do(rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{x.mr.SGE(0, dumpMemory)}, RKey: y.mr.RKey()})
	}
	x.do(rdma.SendWR{Op: rdma.WRRead, SGL: []rdma.SGE{x.mr.SGE(0, 0)}, RKey: y.mr.RKey()})
	if !bytes.Equal(x.mr.Bytes(), y.mr.Bytes()) {
		t.Error("what has arrived is not what was sent")
	}
	rig.Must(t, cmd.Process.Signal(os.Interrupt))
	contains(t, notes.rest(exitFailed), " captured, ", "the reader of the output does not read")
}

// TestDumpSlow: a reader that starts late gets the packets for which the buffers had room, and the number of lost
// packets.
func TestDumpSlow(t *testing.T) {
	need.Tool(t, "tshark")
	u := newDumpUsers(t)
	x, y := u.connect()
	r, w, err := os.Pipe()
	rig.Must(t, err)
	defer r.Close()
	cmd, notes := piped(t, w, append([]string{"-w", "-", "-i", u.name(pair.A)}, own...)...)
	for range 64 {
		x.do(rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{x.mr.SGE(0, dumpMemory)}, RKey: y.mr.RKey()})
	}
	name := filepath.Join(t.TempDir(), "x.pcapng")
	file, err := os.Create(name)
	rig.Must(t, err)
	defer file.Close()
	read := make(chan error, 1)
	go func() {
		_, err := file.ReadFrom(r)
		read <- err
	}()
	quiet(t, name)
	u.talk(x, y) // a later packet reports the loss, if no earlier packet has
	quiet(t, name)
	rig.Must(t, cmd.Process.Signal(os.Interrupt))
	last := notes.rest(0)
	rig.Must(t, <-read)
	var captured, lost int
	if n, err := fmt.Sscanf(last, "%d packets captured, %d lost", &captured, &lost); n != 2 {
		t.Fatalf("%q: %v", last, err)
	}
	rows := fields(t, name, "frame.drop_count", "frame.comment")
	told := 0
	for _, row := range rows {
		if n, err := strconv.Atoi(row[0]); err == nil {
			told += n
		}
	}
	if lost == 0 || captured != len(rows)-2 || told != lost || captured+lost < 64*dumpMemory/1460 {
		t.Errorf("%d captured, %d lost; the file has %d packets and tells of %d lost", captured, lost, len(rows), told)
	}
}

// TestDumpFullDisk: the file ends with a whole packet, and dump reports the reason.
func TestDumpFullDisk(t *testing.T) {
	need.Tool(t, "tshark")
	u := newDumpUsers(t)
	x, y := u.connect()
	dir := t.TempDir()
	rig.Must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"))
	defer func() { rig.Must(t, unix.Unmount(dir, 0)) }()
	for _, c := range []struct {
		name string
		args []string
	}{{"x.pcapng", []string{"-w", "FILE"}}, {"lines", []string{"--json"}}} {
		file := filepath.Join(dir, c.name)
		args := append(append([]string{"dump", "-i", u.name(pair.A)}, own...), c.args...)
		if c.args[0] == "-w" {
			args[len(args)-1] = file
		}
		cmd := command(t, args...)
		out, err := os.Create(filepath.Join(dir, "lines"))
		rig.Must(t, err)
		var says bytes.Buffer
		cmd.Stdout, cmd.Stderr = out, &says
		rig.Must(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for done := false; !done; {
			u.talk(x, y)
			select {
			case <-ended:
				done = true
			default:
			}
		}
		out.Close()
		lines := strings.Split(strings.TrimSpace(says.String()), "\n")
		if code := cmd.ProcessState.ExitCode(); code != exitFailed || len(lines) != 3 || !strings.Contains(lines[2], "no space left on device") {
			t.Errorf("exit code %d, %q", code, lines)
		}
		var captured int
		fmt.Sscanf(lines[1], "%d", &captured)
		var found int
		if c.args[0] == "-w" {
			found = len(fields(t, file, "frame.number")) - 2
		} else {
			text, err := os.ReadFile(file)
			rig.Must(t, err)
			found = strings.Count(string(text), "}\n")
			if len(text) > 0 && !bytes.HasSuffix(text, []byte("}\n")) {
				t.Errorf("the last line is cut: %q", text[max(0, len(text)-100):])
			}
		}
		if captured != found || found < 100 {
			t.Errorf("%s: %d packets said to be captured, %d found", c.name, captured, found)
		}
		rig.Must(t, os.Remove(file))
	}
}

// TestDumpEngineEnds: dump reports an engine that is killed and one that closes, and continues with the others until
// none is left.
func TestDumpEngineEnds(t *testing.T) {
	need.Tool(t, "tshark")
	u := newDumpUsers(t)
	h := host{t, t.TempDir()}
	p := netns.XDPPair(t, pair.Config{})
	x := h.ping(p) // the two ends are two processes
	defer clearClaims(t)
	file := filepath.Join(t.TempDir(), "x.pcapng")
	d := launch(t, h.at(command(t, "dump", "-w", file)))
	for range 4 {
		d.until("capturing on ")
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) { // wait for packets of both processes
		if info, err := os.Stat(file); err == nil && info.Size() > 256<<10 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("no packets are written")
		}
	}
	rig.Must(t, x.server.cmd.Process.Kill())
	// The client ends too, now or earlier, because its peer is gone.
	x.client.cmd.Process.Signal(os.Interrupt)
	d.until(" of pid "+x.pid()+" (stag) ends: the engine is gone",
		fmt.Sprintf(" of pid %d (stag) ends: its adapter has been closed", x.client.cmd.Process.Pid))
	x.client.cmd.Wait()
	x.server.cmd.Wait()
	a, b := u.connect()
	u.talk(a, b)
	quiet(t, file)
	u.close(pair.B)
	d.until("its adapter has been closed")
	u.close(pair.A)
	if code := d.rest(); code != exitFailed {
		t.Errorf("exit code %d: %q", code, d.said)
	}
	contains(t, strings.Join(d.said, "\n"), " captured, ")
	names := map[string]int{}
	for _, row := range fields(t, file, "frame.interface_name") {
		names[row[0]]++
	}
	for _, name := range []string{u.name(pair.A), u.name(pair.B), p.Ends[pair.A].Name, p.Ends[pair.B].Name} {
		if names[name] == 0 {
			t.Errorf("no packets of %s: %v", name, names)
		}
	}
}

// TestDumpEnds: the dump ends when the last engine has closed normally.
func TestDumpEnds(t *testing.T) {
	u := newDumpUsers(t)
	x, y := u.connect()
	d := dumping(t, 1, append(own, "-i", u.name(pair.A))...)
	u.talk(x, y)
	u.close(pair.A)
	said := d.all(0)
	contains(t, said, "Flags [R", "ends: its adapter has been closed", " captured, 0 lost")
}

// TestDumpInterruptedEarly: dump exits with 0 if Ctrl-C ends it while it waits for an engine that does not answer. It
// prints one line about an engine that gives a wrong answer.
func TestDumpInterruptedEarly(t *testing.T) {
	h := newHost(t)
	a := h.act("hang")
	d := launch(t, h.at(command(t, "dump", "-p", a.pid())))
	a.says(t, "asked")
	if said := d.interrupt(); said != "" {
		t.Errorf("printed %q", said)
	}
	r := run(t, h.at(command(t, "dump", "-p", a.pid())))
	r.ends(t, exitFailed)
	contains(t, r.stderr, "stag: dump: no answer from pid "+a.pid())
	b := h.act("well")
	r = run(t, h.at(command(t, "dump", "-p", b.pid())))
	r.ends(t, exitFailed)
	contains(t, r.stderr, "stag: dump: pid "+b.pid()+": an actor has no packets")
	c := h.act("escapes")
	r = run(t, h.at(command(t, "dump", "-p", c.pid(), "-i", "eth1")))
	r.ends(t, exitFailed)
	if strings.ContainsAny(r.stderr, "\x1b\u202e") || strings.Count(r.stderr, "\n") != 1 || !strings.Contains(r.stderr, "no engine has device eth1") {
		t.Errorf("printed %q", r.stderr)
	}
}
