package main

import (
	"debug/elf"
	octets "encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// fakeLibraries makes a directory with files of the libraries' names. The programs of these
// tests load no such library.
func fakeLibraries(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"libibverbs.so.1", "librdmacm.so.1"} {
		rig.Must(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
	}
	return dir
}

// runs returns `stag run` with its own daemon and fake libraries.
func runs(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := command(t, append([]string{"run", "--kernel-port", "--"}, args...)...)
	cmd.Env = append(os.Environ(), "STAG_VERBS="+fakeLibraries(t), "TMPDIR="+t.TempDir(), "LD_LIBRARY_PATH=/before")
	return cmd
}

// The exit status, the output, the input and the environment are those of the program.
func TestRunBecomesTheProgram(t *testing.T) {
	cmd := runs(t, "sh", "-c", `cat; echo "$LD_LIBRARY_PATH $STAG_DAEMON"; echo bad >&2; test -S "$STAG_DAEMON" && exit 7`)
	cmd.Stdin = strings.NewReader("input\n")
	r := run(t, cmd)
	r.ends(t, 7)
	out := lines(r.stdout)
	if len(out) != 2 || out[0] != "input" || !strings.Contains(out[1], ":/before ") || !strings.HasSuffix(out[1], "/stagd.sock") || r.stderr != "bad\n" {
		t.Errorf("%q, %q", out, r.stderr)
	}
}

// A user without rights has a daemon of its own.
func TestRunAsUser(t *testing.T) {
	need.Root(t)
	dir, err := os.MkdirTemp("", "stag-user-")
	rig.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	rig.Must(t, os.Chown(dir, guest, guest))
	libraries, err := os.MkdirTemp("", "stag-verbs-")
	rig.Must(t, err)
	t.Cleanup(func() { os.RemoveAll(libraries) })
	rig.Must(t, os.Chmod(libraries, 0o755))
	for _, name := range []string{"libibverbs.so.1", "librdmacm.so.1"} {
		rig.Must(t, os.WriteFile(filepath.Join(libraries, name), nil, 0o644))
	}
	cmd := as(command(t, "run", "--", "sh", "-c", "id -u; stat -c %a $STAG_DAEMON"))
	cmd.Env = append(os.Environ(), "STAG_VERBS="+libraries, "TMPDIR="+dir, "XDG_RUNTIME_DIR="+dir)
	r := run(t, cmd)
	r.ends(t, 0)
	if r.stdout != "63271\n600\n" {
		t.Errorf("%q, %q", r.stdout, r.stderr)
	}
	contains(t, r.stderr, "the program gets one over the kernel's TCP")
	rig.Eventually(t, "the daemon's socket is gone", func() bool {
		_, err := os.Stat(filepath.Join(dir, "stag", "stagd.sock"))
		return os.IsNotExist(err)
	})
}

func TestRunEndsBySignal(t *testing.T) {
	r := launch(t, runs(t, "sh", "-c", "echo ready >&2; exec sleep 1000"))
	r.until("ready")
	rig.Must(t, r.cmd.Process.Signal(syscall.SIGTERM))
	r.rest()
	if status := r.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("ended with %v", r.cmd.ProcessState)
	}
}

// The daemon is no child of the program, and ends after it.
func TestRunLeavesNothing(t *testing.T) {
	cmd := runs(t, "sh", "-c", `echo children: $(cat /proc/$$/task/$$/children); dirname "$STAG_DAEMON"`)
	r := run(t, cmd)
	r.ends(t, 0)
	out := lines(r.stdout)
	if len(out) != 2 || strings.Contains(out[0], " ") && len(strings.Fields(out[0])) > 2 { // cat is one
		t.Fatalf("%q", out)
	}
	rig.Eventually(t, "the daemon's directory is gone", func() bool {
		_, err := os.Stat(out[1])
		return os.IsNotExist(err)
	})
}

// A daemon that runs is used, and goes on.
func TestRunUsesTheDaemon(t *testing.T) {
	d, path := aDaemon(t)
	with := func(args ...string) result {
		cmd := command(t, append([]string{"run"}, args...)...)
		cmd.Env = append(os.Environ(), "STAG_VERBS="+fakeLibraries(t), "STAG_DAEMON="+path)
		return run(t, cmd)
	}
	r := with("--", "sh", "-c", "echo $STAG_DAEMON")
	r.ends(t, 0)
	if strings.TrimSpace(r.stdout) != path || r.stderr != "" {
		t.Errorf("%q, %q", r.stdout, r.stderr)
	}
	r = with("--personality", "iwarp", "--", "sh", "-c", "echo $STAG_PERSONALITY")
	if strings.TrimSpace(r.stdout) != "iwarp" {
		t.Errorf("%q, %q", r.stdout, r.stderr)
	}
	r = with("--device", "lo", "--", "true")
	r.ends(t, exitFailed)
	contains(t, r.stderr, "serves the kernel port, and not lo")
	rig.Must(t, d.cmd.Process.Signal(os.Interrupt))
	d.exits(0)
}

// A daemon that cannot start says why.
func TestRunWithoutDaemon(t *testing.T) {
	cmd := command(t, "run", "--socket", "/no/such/directory/\x01/s", "--", "true")
	cmd.Env = append(os.Environ(), "STAG_VERBS="+fakeLibraries(t))
	if os.Geteuid() == 0 {
		cmd.Args = []string{binary, "run", "--socket", "/proc/version/s", "--", "true"}
	}
	r := run(t, cmd)
	r.ends(t, exitFailed)
	contains(t, r.stderr, "stag: run: daemon: ")
}

func TestRunWithoutLibraries(t *testing.T) {
	cmd := command(t, "run", "--kernel-port", "--", "true")
	cmd.Env = append(os.Environ(), "STAG_VERBS="+t.TempDir())
	r := run(t, cmd)
	r.ends(t, exitFailed)
	contains(t, r.stderr, "there is no libibverbs.so.1")
}

// elfFile is an ELF program without segments, and so without a loader.
func elfFile(t *testing.T, machine elf.Machine) string {
	t.Helper()
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: 1, Ehsize: 64, Phentsize: 56, Shentsize: 64}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1
	path := filepath.Join(t.TempDir(), "program")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	rig.Must(t, err)
	rig.Must(t, writeHeader(f, h))
	rig.Must(t, f.Close())
	return path
}

func writeHeader(f *os.File, h elf.Header64) error { return octets.Write(f, octets.LittleEndian, h) }

func script(t *testing.T, line string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	rig.Must(t, os.WriteFile(path, []byte(line+"\nexit 5\n"), 0o755))
	return path
}

// A program that cannot use the libraries is not started, and the reason is told.
func TestRunRefuses(t *testing.T) {
	self, err := elf.Open(binaryOfTest(t))
	rig.Must(t, err)
	other := map[bool]elf.Machine{true: elf.EM_AARCH64, false: elf.EM_X86_64}[self.Machine == elf.EM_X86_64]
	machine := self.Machine
	rig.Must(t, self.Close())
	static := elfFile(t, machine)
	text := filepath.Join(t.TempDir(), "text")
	rig.Must(t, os.WriteFile(text, []byte("no program"), 0o755))
	for path, says := range map[string]string{
		static:                                  "is linked statically",
		script(t, "#!"+static):                  "is linked statically",
		script(t, "#!/usr/bin/env "+static):     "is linked statically",
		elfFile(t, other):                       "and stag's libraries are for",
		text:                                    "neither a script nor an ELF program",
		filepath.Join(t.TempDir(), "not-there"): "no such file",
		script(t, "#!/no/such/interpreter"):     "no such file",
	} {
		r := run(t, runs(t, path))
		r.ends(t, exitFailed)
		contains(t, r.stderr, "stag: run: ", says)
	}
	for _, line := range []string{"#!/bin/sh", "#! /bin/sh -e", "#!/usr/bin/env sh", "#!/usr/bin/env -S sh -e"} {
		run(t, runs(t, script(t, line))).ends(t, 5)
	}
}

func binaryOfTest(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	rig.Must(t, err)
	return path
}

// A program that gets rights from its file takes no libraries from the environment.
func TestRunRefusesSetuid(t *testing.T) {
	need.Root(t)
	path := filepath.Join(t.TempDir(), "true")
	from, err := exec.LookPath("true")
	rig.Must(t, err)
	text, err := os.ReadFile(from)
	rig.Must(t, err)
	rig.Must(t, os.WriteFile(path, text, 0o755))
	run(t, runs(t, path)).ends(t, 0)
	rig.Must(t, os.Chown(path, guest, guest))
	for mode, says := range map[uint32]string{0o4755: "is setuid", 0o2755: "is setgid"} {
		rig.Must(t, syscall.Chmod(path, mode))
		r := run(t, runs(t, path))
		r.ends(t, exitFailed)
		contains(t, r.stderr, says)
	}
}

// With the personality roce, root's program sees a character device of our device's name, and
// nobody else does.
func TestRunMakesNode(t *testing.T) {
	need.Root(t)
	const node = "/dev/infiniband/stag0"
	cmd := runs(t, "sh", "-c", "test -c "+node+" && echo there")
	cmd.Args = append([]string{binary, "run", "--personality", "roce"}, cmd.Args[2:]...)
	r := run(t, cmd)
	r.ends(t, 0)
	if r.stdout != "there\n" || r.stderr != "" {
		t.Errorf("%q, %q", r.stdout, r.stderr)
	}
	if _, err := os.Stat(node); !os.IsNotExist(err) {
		t.Errorf("%s is there outside, too: %v", node, err)
	}
}
