package run

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// program is what runs in the end: the file itself, or the interpreter of a script.
type program struct {
	path   string // file to execute
	binary string // ELF file that the kernel loads
}

// mostInterpreters is how many interpreters of interpreters Linux follows.
const mostInterpreters = 5

// find finds a program as a shell does, and checks that it can load libraries of ours.
func find(name string) (program, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return program{}, err
	}
	p := program{path: path, binary: path}
	for range mostInterpreters {
		next, err := interpreter(p.binary)
		if err != nil {
			return p, err
		}
		if next == "" {
			return p, check(p.binary)
		}
		p.binary = next
	}
	return p, fmt.Errorf("%s: the interpreter of its interpreter is a script, and so on", path)
}

// interpreter returns the interpreter of a script, or "". The program env is followed to
// what it starts.
func interpreter(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrPermission) {
		return "", nil // it can be executed, but not read: check says more
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	rest, ok := strings.CutPrefix(line, "#!")
	words := strings.Fields(rest)
	if !ok || len(words) == 0 {
		return "", nil
	}
	if filepath.Base(words[0]) != "env" {
		return words[0], nil
	}
	for _, w := range words[1:] {
		if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
			return exec.LookPath(w)
		}
	}
	return words[0], nil
}

// check says why a program cannot use the libraries.
func check(path string) error {
	if err := checkRights(path); err != nil {
		return err
	}
	f, err := elf.Open(path)
	if errors.Is(err, os.ErrPermission) {
		return nil // nothing is known about it
	}
	if err != nil {
		return fmt.Errorf("%s is neither a script nor an ELF program: %w", path, err)
	}
	defer f.Close()
	if want := machines[runtime.GOARCH]; f.Machine != want {
		return fmt.Errorf("%s is a program for %v, and stag's libraries are for %v", path, f.Machine, want)
	}
	loader, err := loaderOf(f)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", path, err)
	case loader == "":
		return fmt.Errorf("%s is linked statically, so that it loads no libraries: use a program that is linked dynamically", path)
	case strings.Contains(filepath.Base(loader), "musl"):
		return fmt.Errorf("%s uses musl (%s), and stag's libraries need glibc", path, loader)
	}
	return nil
}

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "riscv64": elf.EM_RISCV, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390, "loong64": elf.EM_LOONGARCH}

// loaderOf returns the dynamic loader that a program asks for, or "".
func loaderOf(f *elf.File) (string, error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			text, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
			return strings.TrimRight(string(text), "\x00"), err
		}
	}
	return "", nil
}

// checkRights says whether the program gets rights from its file. Its loader then ignores
// LD_LIBRARY_PATH.
func checkRights(path string) error {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	const instead = "its loader takes no libraries from the environment: run a copy without that, as a user who has the rights"
	switch {
	case st.Mode&unix.S_ISUID != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s is setuid: %s", path, instead)
	case st.Mode&unix.S_ISGID != 0 && st.Mode&unix.S_IXGRP != 0 && int(st.Gid) != os.Getegid():
		return fmt.Errorf("%s is setgid: %s", path, instead)
	}
	if n, err := unix.Getxattr(path, "security.capability", nil); err == nil && n > 0 && os.Geteuid() != 0 {
		return fmt.Errorf("%s has capabilities (getcap): %s", path, instead)
	}
	return nil
}
