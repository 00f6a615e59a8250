package handoff

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// inNamespace runs f on a thread in the network namespace of s. If the running thread is
// in another namespace, a new thread enters the namespace, which needs CAP_SYS_ADMIN. The
// new thread ends with f.
func (s *Socket) inNamespace(f func() error) error {
	space, err := unix.IoctlRetInt(s.fd, unix.SIOCGSKNS)
	if err != nil {
		return fmt.Errorf("find the socket's network namespace: %w", err)
	}
	defer unix.Close(space)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if isHere(space) {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // no unlock follows, so that the thread ends with the goroutine
		if err := unix.Setns(space, unix.CLONE_NEWNET); err != nil {
			done <- fmt.Errorf("enter the socket's network namespace: %w", err)
			return
		}
		done <- f()
	}()
	return <-done
}

// isHere reports whether the running thread is in a network namespace.
func isHere(space int) bool {
	var there, here unix.Stat_t
	return unix.Fstat(space, &there) == nil && unix.Stat("/proc/thread-self/ns/net", &here) == nil &&
		there.Dev == here.Dev && there.Ino == here.Ino
}
