package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/rig"
)

// watchedOn runs the command on a terminal with this number of rows. It types Ctrl-C when enough accepts the text on the
// terminal. It returns that text and the exit code.
func watchedOn(t *testing.T, rows int, enough func(shown string) bool, args []string, env ...string) (string, int) {
	t.Helper()
	user, program := newTerminal(t)
	rig.Must(t, unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: 80}))
	cmd := command(t, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	rig.Must(t, cmd.Start())
	program.Close()
	var shown bytes.Buffer
	typed := false
	for buf := make([]byte, 4096); ; {
		n, err := user.Read(buf)
		shown.Write(buf[:n])
		if !typed && enough(shown.String()) {
			typed = true
			_, err := user.Write([]byte{3}) // the octet of Ctrl-C
			rig.Must(t, err)
		}
		if errors.Is(err, unix.EIO) { // the program has closed the terminal
			break
		}
		rig.Must(t, err)
	}
	cmd.Wait() // the error only has the exit code
	if !typed {
		t.Errorf("ended by itself: %q", shown.String())
	}
	return shown.String(), cmd.ProcessState.ExitCode()
}

// TestShowWatchOnTerminal: each answer overwrites the previous one, and lines that do not fit are left out. A terminal
// that cannot move its cursor gets the same text as a file.
func TestShowWatchOnTerminal(t *testing.T) {
	h := newHost(t)
	for range 9 {
		h.act("well")
	}
	const home, clearRest = "\x1b[H", "\x1b[J"
	where := []string{"TMPDIR=" + h.dir, "XDG_RUNTIME_DIR="}
	args := []string{"show", "devices", "-w", "0.1"}
	twice := func(word string) func(string) bool {
		return func(s string) bool { return strings.Count(s, word) >= 2 }
	}

	shown, code := watchedOn(t, 40, twice(clearRest), args, append(where, "TERM=xterm")...)
	first, _, _ := strings.Cut(shown, clearRest)
	if code != 0 || !strings.HasPrefix(shown, home+"Every 100ms: stag show devices   20") || strings.Count(first, "link act0") != 9 {
		t.Errorf("exit code %d, shown %q", code, shown)
	}

	shown, code = watchedOn(t, 8, twice(clearRest), args, append(where, "TERM=xterm")...)
	first, _, _ = strings.Cut(shown, clearRest)
	if code != 0 || strings.Count(first, "link act0") != 4 || !strings.Contains(first, "... and 5 lines for which the terminal is too small") {
		t.Errorf("exit code %d, shown %q", code, shown)
	}
	if n := strings.Count(first, "\n"); n > 8 {
		t.Errorf("%d lines on a terminal of 8", n)
	}

	// A note below takes two rows, so that two fewer are shown above it.
	lying := h.act("lie")
	shown, code = watchedOn(t, 8, twice("it is left out"), args, append(where, "TERM=xterm")...)
	first, note, _ := strings.Cut(shown, clearRest)
	if code != 0 || strings.Count(first, "link act0") != 2 || !strings.HasPrefix(note, "stag: show: the process at") {
		t.Errorf("exit code %d, shown %q", code, shown)
	}
	rig.Must(t, lying.cmd.Process.Kill())

	shown, code = watchedOn(t, 40, twice("--- 20"), args, append(where, "TERM=dumb")...)
	if before, _, _ := strings.Cut(shown, "^C"); code != 0 || strings.Contains(before, "\x1b") {
		t.Errorf("exit code %d, shown %q", code, shown)
	}
}

// TestShowWatchNotes: a note is printed once, as long as it stays the same.
func TestShowWatchNotes(t *testing.T) {
	h := newHost(t)
	h.act("well")
	h.act("schema")
	x := launch(t, h.at(command(t, "show", "devices", "-w", "0.1")))
	for range 4 {
		x.until("link act0")
	}
	rig.Must(t, x.cmd.Process.Signal(os.Interrupt))
	if said := x.all(0); strings.Count(said, "speaks another version") != 1 {
		t.Errorf("said %s", said)
	}
	// Without any engine, show continues, because an engine may start.
	x = launch(t, newHost(t).at(command(t, "show", "devices", "-w", "0.1", "--json", "-i", "none")))
	x.until(`"rows":[]`)
	x.until(`"rows":[]`)
	rig.Must(t, x.cmd.Process.Signal(os.Interrupt))
	x.all(0)
}
