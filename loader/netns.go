package loader

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that code can be run in. It is safe for
// concurrent use.
type Namespace struct {
	f        *os.File
	dev, ino uint64
}

// threadSpace names the network namespace of the calling OS thread.
const threadSpace = "/proc/thread-self/ns/net"

// CurrentNamespace is the namespace of the calling OS thread. Any user may ask.
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

// identity is what tells namespaces apart.
func identity(f *os.File) (dev, ino uint64, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, 0, fmt.Errorf("identify a network namespace: %w", err)
	}
	return st.Dev, st.Ino, nil
}

// same reports whether a file of the kernel's stands for this namespace.
func (n *Namespace) same(file os.FileInfo) bool {
	st, ok := file.Sys().(*syscall.Stat_t)
	return ok && st.Dev == n.dev && st.Ino == n.ino
}

// Close lets the namespace go.
func (n *Namespace) Close() error { return n.f.Close() }

// Do runs f on the calling goroutine with its OS thread inside the namespace.
// Sockets that f opens belong to it from then on; goroutines that f starts run
// elsewhere. Where the thread is there already no right is needed, otherwise
// CAP_SYS_ADMIN. It returns f's error.
//
// A thread that cannot be put back stays locked to its goroutine, so that the
// runtime ends it with that instead of using it for others.
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
