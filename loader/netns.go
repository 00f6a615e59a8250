package loader

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace in which Do can run code. It is safe for concurrent
// use.
type Namespace struct {
	f        *os.File
	dev, ino uint64
}

// threadSpace is the file of the calling OS thread's network namespace.
const threadSpace = "/proc/thread-self/ns/net"

// CurrentNamespace returns the namespace of the calling OS thread. It needs no
// capability.
func CurrentNamespace() (*Namespace, error) {
	f, err := os.Open(threadSpace)
	if err != nil {
		return nil, fmt.Errorf("identify the thread's network namespace: %w", err)
	}
	n := &Namespace{f: f}
	if n.dev, n.ino, err = identity(f); err != nil {
		f.Close()
		return nil, err
	}
	return n, nil
}

// identity returns the device and inode numbers of a namespace file. The two identify
// the namespace.
func identity(f *os.File) (dev, ino uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, 0, fmt.Errorf("identify a network namespace: %w", err)
	}
	return st.Dev, st.Ino, nil
}

// same reports whether file, which is below /proc or /run/netns, is this namespace.
func (n *Namespace) same(file os.FileInfo) bool {
	st, ok := file.Sys().(*syscall.Stat_t)
	return ok && st.Dev == n.dev && st.Ino == n.ino
}

// Close closes the Namespace's reference to the network namespace.
func (n *Namespace) Close() error { return n.f.Close() }

// Do runs f on the calling goroutine, with the OS thread inside the namespace. It
// returns f's error. Sockets that f opens stay in the namespace. Goroutines that f
// starts run outside it. Do needs CAP_SYS_ADMIN unless the thread is in the namespace
// already.
//
// If the thread cannot return to its own namespace, it stays locked to its goroutine.
// The runtime then ends the thread together with the goroutine, and no other goroutine
// uses it.
func (n *Namespace) Do(f func() error) (err error) {
	runtime.LockOSThread()
	home, err := CurrentNamespace()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if home.dev == n.dev && home.ino == n.ino {
		defer runtime.UnlockOSThread()
		return f()
	}
	if err := unix.Setns(int(n.f.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("enter the network namespace (needs CAP_SYS_ADMIN): %w", err)
	}
	defer func() {
		if back := unix.Setns(int(home.f.Fd()), unix.CLONE_NEWNET); back != nil {
			err = fmt.Errorf("this thread cannot leave the network namespace: %w", back)
			return
		}
		runtime.UnlockOSThread()
	}()
	return f()
}
