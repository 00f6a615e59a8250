package pair

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// threadSpace names the network namespace of the calling OS thread.
const threadSpace = "/proc/thread-self/ns/net"

// newNamespace makes a network namespace without a name and returns the
// descriptor that keeps it.
func newNamespace() (space *os.File, err error) {
	stay := func() (*os.File, error) { return os.Open(threadSpace) }
	err = within(stay, func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace (needs CAP_SYS_ADMIN): %w", err)
		}
		space, err = os.Open(threadSpace)
		return err
	})
	return space, err
}

// within runs f on the calling goroutine. While f runs, the goroutine's OS thread is in the namespace that open
// returns. within then restores the thread, also if f panics or ends the goroutine. If the thread cannot be restored,
// it stays locked to the goroutine, so that the runtime ends the thread instead of using it for other goroutines.
func within(open func() (*os.File, error), f func() error) (err error) {
	runtime.LockOSThread()
	home, err := os.Open(threadSpace)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	defer func() {
		if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
			err = fmt.Errorf("this thread cannot leave its network namespace: %w", back)
			return
		}
		runtime.UnlockOSThread()
	}()
	if err := enter(open); err != nil {
		return err
	}
	return f()
}

func enter(open func() (*os.File, error)) error {
	space, err := open()
	if err != nil {
		return err
	}
	defer space.Close()
	if err := unix.Setns(int(space.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter a network namespace (needs CAP_SYS_ADMIN): %w", err)
	}
	return nil
}

func dup(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}
