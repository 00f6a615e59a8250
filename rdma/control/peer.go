package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrImpostor is what comes of asking a socket that is called after another
// process than the one that made it.
var ErrImpostor = errors.New("another process answers for the engine")

// peerOf is who is at the other end of c, by the kernel's word: who has
// connected or, seen from there, who has begun to listen.
func peerOf(c net.Conn) (cred *unix.Ucred, err error) {
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(failed, err)
}

// check makes sure that the process after which the socket is called is the one
// that answers, and one that may: anybody could have made the file in a
// directory of theirs, and tell tales of others' engines. Root believes all
// users what they say of themselves; others believe root and themselves.
func (e Endpoint) check(c net.Conn) error {
	cred, err := peerOf(c)
	if err != nil {
		return err
	}
	trusted := os.Geteuid() == 0 || cred.Uid == 0 || int(cred.Uid) == os.Geteuid()
	if !trusted || !isPID(int(cred.Pid), e.PID) {
		return fmt.Errorf("%w: pid %d of user %d, at %s: end it, or remove the file", ErrImpostor, cred.Pid, cred.Uid, e.Path)
	}
	return nil
}

// isPID reports whether the process calls itself by the number name, which is
// another than pid if it runs in a pid namespace of its own. A pid of 0 is a
// process that cannot be seen from this one's, and can be any.
func isPID(pid, name int) bool {
	if pid == name || pid == 0 {
		return true
	}
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if all, ok := strings.CutPrefix(line, "NSpid:"); ok {
			numbers := strings.Fields(all)
			return len(numbers) > 0 && numbers[len(numbers)-1] == strconv.Itoa(name)
		}
	}
	return false
}
