package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/test/rig"
)

// newTerminal returns both ends of a terminal: user sees and types, program is what a command opens.
func newTerminal(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	rig.Must(t, err)
	t.Cleanup(func() { user.Close() })
	rig.Must(t, unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	rig.Must(t, err)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	rig.Must(t, err)
	t.Cleanup(func() { program.Close() })
	return user, program
}

// TestDemoOnTerminal: progress is a bar. Ctrl-C on the keyboard erases it and ends the demonstration.
func TestDemoOnTerminal(t *testing.T) {
	user, program := newTerminal(t)
	cmd := anyone(t, "--size", long)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	rig.Must(t, cmd.Start())
	program.Close()

	var shown bytes.Buffer
	typed := false
	for buf := make([]byte, 4096); ; {
		n, err := user.Read(buf)
		shown.Write(buf[:n])
		if !typed && strings.Contains(shown.String(), "iB/s") {
			typed = true
			_, err := user.Write([]byte{3}) // the octet of Ctrl-C
			rig.Must(t, err)
		}
		if errors.Is(err, unix.EIO) { // the program has closed the terminal
			break
		}
		rig.Must(t, err)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != exitFailed || !typed {
		t.Errorf("exit code %d, Ctrl-C typed %v", code, typed)
	}
	// The terminal shows the text written last to each line.
	lines := strings.Split(strings.TrimRight(shown.String(), "\r\n"), "\n")
	last := lines[len(lines)-1]
	if !strings.Contains(shown.String(), "RDMA Write") || !strings.HasSuffix(last, "stag: demo: interrupted") {
		t.Errorf("shown: %q", shown.String())
	}
	// demo uses no colours and no other escape sequences, so NO_COLOR needs no check.
	if strings.Contains(shown.String(), "\x1b") {
		t.Errorf("an escape sequence: %q", shown.String())
	}
	if bar := strings.LastIndex(last, "RDMA Write"); !strings.Contains(last[max(bar, 0):], "\r") {
		t.Errorf("the bar was not taken away: %q", last)
	}
}
