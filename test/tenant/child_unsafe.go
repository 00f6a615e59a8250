package tenant

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// variable says that the process is a tenant.
const variable = "STAG_TEST_TENANT"

// Main runs a tenant and ends the process, if the process is one. Call it in TestMain. A
// tenant passes its /proc/self/mem and its /proc/self/maps by descriptor 3. Then it obeys one
// command for each line of its input, and answers with one line:
//
//	heap N               the address of N octets of Go's heap
//	private N, shared N  of N octets of anonymous memory
//	memfd N              of N octets of a memfd, shared
//	copied N             of N octets of a memfd, private
//	viewed N             of N octets of a memfd, shared, which may only be read
//	huge N               of N octets of huge pages, shared
//	stack N              of N octets at the end of the first thread's stack
//	at A N               of N octets of anonymous memory at address A
//	fill A N SEED        fills N octets at address A
//	sum A N              their checksum
//	add A N              adds 1 to the word at address A, N times, atomically
//	word A               the word at address A
//	protect A N R        gives the octets the rights R (PROT_READ 1, PROT_WRITE 2)
//	unmap A N            unmaps the octets
//	fork                 starts a copy of the process that sleeps: its pid
//	exec FILE A N        begins the program FILE, which is this one, with "at A N" and a "fill A N 1"
//	who                  the effective user
func Main() {
	what := os.Getenv(variable)
	if what == "" {
		return
	}
	if err := run(what); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(what string) error {
	if what == "serve" {
		if err := pass(3); err != nil {
			return err
		}
	} else { // begun by exec
		var at, n uint64
		if _, err := fmt.Sscan(what, &at, &n); err != nil {
			return err
		}
		if _, err := mapped(uintptr(at), n, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED_NOREPLACE, -1, 3); err != nil {
			return err
		}
		Fill(octets(at, n), 1)
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		answer, err := obey(strings.Fields(lines.Text()))
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Println(answer)
	}
	return nil
}

// pass passes the descriptors, which the process itself opens.
func pass(fd uintptr) error {
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer maps.Close()
	f := os.NewFile(fd, "test")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return err
	}
	defer c.Close()
	_, _, err = c.(*net.UnixConn).WriteMsgUnix([]byte{0}, unix.UnixRights(int(mem.Fd()), int(maps.Fd())), nil)
	return err
}

// held keeps memory of the heap.
var held [][]byte

func obey(words []string) (string, error) {
	var a, b, c uint64
	verb, rest := words[0], words[1:]
	file := ""
	if verb == "exec" || verb == "named" {
		file, rest = rest[0], rest[1:]
	}
	for i, to := range []*uint64{&a, &b, &c} {
		if i < len(rest) {
			if _, err := fmt.Sscan(rest[i], to); err != nil {
				return "", err
			}
		}
	}
	const private, shared = unix.MAP_PRIVATE | unix.MAP_ANONYMOUS, unix.MAP_SHARED | unix.MAP_ANONYMOUS
	switch verb {
	case "heap":
		held = append(held, make([]byte, a))
		return number(uint64(uintptr(unsafe.Pointer(&held[len(held)-1][0]))), nil)
	case "private":
		return number(mapped(0, a, private, -1, 3))
	case "shared":
		return number(mapped(0, a, shared, -1, 3))
	case "huge":
		return number(mapped(0, a, shared|unix.MAP_HUGETLB, -1, 3))
	case "named":
		return number(named(file, a))
	case "memfd":
		return number(ofFile(a, unix.MAP_SHARED, 3))
	case "copied":
		return number(ofFile(a, unix.MAP_PRIVATE, 3))
	case "viewed":
		return number(ofFile(a, unix.MAP_SHARED, 1))
	case "stack":
		return number(stack(a))
	case "at":
		return number(mapped(uintptr(a), b, private|unix.MAP_FIXED_NOREPLACE, -1, 3))
	case "fill":
		Fill(octets(a, b), int(c))
		return "filled", nil
	case "sum":
		return Sum(octets(a, b)), nil
	case "add":
		for range b {
			word(a).Add(1)
		}
		return "added", nil
	case "word":
		return number(word(a).Load(), nil)
	case "protect":
		return "protected", unix.Mprotect(octets(a, b), int(c))
	case "unmap":
		return "unmapped", unix.MunmapPtr(pointer(a), uintptr(b))
	case "fork":
		return number(fork())
	case "exec":
		os.Setenv(variable, fmt.Sprint(a, " ", b))
		return "", syscall.Exec(file, []string{file}, os.Environ())
	case "who":
		return fmt.Sprint(os.Geteuid()), nil
	}
	return "", fmt.Errorf("%q is no command", verb)
}

func number(n uint64, err error) (string, error) { return fmt.Sprint(n), err }

func mapped(at uintptr, n uint64, flags, fd, prot int) (uint64, error) {
	p, err := unix.MmapPtr(fd, 0, pointer(uint64(at)), uintptr(n), prot, flags)
	return uint64(uintptr(p)), err
}

// named makes a file with n octets and maps it.
func named(path string, n uint64) (uint64, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := f.Truncate(int64(n)); err != nil {
		return 0, err
	}
	return mapped(0, n, unix.MAP_SHARED, int(f.Fd()), 3)
}

func ofFile(n uint64, flags, prot int) (uint64, error) {
	fd, err := unix.MemfdCreate("tenant", unix.MFD_CLOEXEC)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		return 0, err
	}
	return mapped(0, n, flags, fd, prot)
}

// stack returns the far end of the first thread's stack, which nothing uses.
func stack(n uint64) (uint64, error) {
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		var from, to uint64
		if !strings.Contains(line, "[stack]") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%x-%x", &from, &to); err != nil {
			return 0, err
		}
		if to-from < n+16<<10 {
			return 0, fmt.Errorf("the stack has %d octets", to-from)
		}
		return from, nil
	}
	return 0, fmt.Errorf("no stack in %s", text)
}

// fork starts a child that only sleeps. It shares no memory with the process, but the same
// pages until one of the two writes.
func fork() (uint64, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pid, _, err := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if pid == 0 && err == 0 {
		syscall.RawSyscall(syscall.SYS_PRCTL, unix.PR_SET_PDEATHSIG, uintptr(syscall.SIGKILL), 0)
		for {
			syscall.RawSyscall6(syscall.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	if err != 0 {
		return 0, err
	}
	return uint64(pid), nil
}

// Fill fills b with octets that seed decides.
func Fill(b []byte, seed int) {
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
}

// Sum returns the checksum of b.
func Sum(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }
