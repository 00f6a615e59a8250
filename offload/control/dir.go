package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/loader"
)

// Dir is where this user's engines have their sockets: loader.RuntimeDir for
// root, otherwise $XDG_RUNTIME_DIR/stag or, where that is not the user's (su and
// sudo can leave another's in the environment), a directory of the user's own
// in that for temporary files.
func Dir() string {
	if os.Geteuid() == 0 {
		return loader.RuntimeDir
	}
	var st unix.Stat_t
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && unix.Stat(dir, &st) == nil && int(st.Uid) == os.Geteuid() {
		return filepath.Join(dir, "stag")
	}
	return filepath.Join(os.TempDir(), fmt.Sprintf("stag-%d", os.Geteuid()))
}

// prefix and suffix of a socket's name, around pid and number.
const (
	prefix = "engine-"
	suffix = ".sock"
)

// adapters counts those of this process.
var adapters atomic.Int32

// Number tells the next adapter of this process apart from its others.
func Number() int { return int(adapters.Add(1)) }

// Name is the path of the socket for an adapter of this process. The directory
// is there when it returns, and nobody else's.
func Name(adapter int) (path string, err error) {
	dir, err := ownDir(Dir())
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, fmt.Sprintf("%s%d-%d%s", prefix, os.Getpid(), adapter, suffix))
	if len(path) > maxPath {
		return "", fmt.Errorf("control socket %s: its path has %d octets, and the kernel takes %d: set XDG_RUNTIME_DIR or TMPDIR to a shorter one",
			path, len(path), maxPath)
	}
	return path, nil
}

// maxPath is the length of sockaddr_un.sun_path without the zero at its end.
const maxPath = 107

// ownDir makes dir, and returns it. A directory of another user could hold
// anything; then it returns a substitute. But loader.RuntimeDir may be given to a
// user with the rights for engines, and is good enough for claims.
func ownDir(dir string) (string, error) {
	if dir == loader.RuntimeDir {
		if err := os.MkdirAll(dir, 0o755); err != nil { // the claims in it are for all to read
			return "", fmt.Errorf("make the directory for control sockets: %w: mount a tmpfs there", err)
		}
		return dir, nil
	}
	err := os.MkdirAll(dir, 0o700)
	if own(dir) {
		return dir, nil
	}
	if _, foreign := os.Lstat(dir); foreign == nil {
		dir, err = substitute(dir)
	}
	if err != nil {
		return "", fmt.Errorf("make the directory for control sockets: %w: set XDG_RUNTIME_DIR to a directory of this user's", err)
	}
	return dir, nil
}

// own reports whether dir is a directory, and this user's.
func own(dir string) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && int(st.Uid) == os.Geteuid() && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// substitute is a directory of this user's to use in place of dir, whose name
// somebody else has taken: one that is there, or a new one that nobody can
// foretell the name of.
func substitute(dir string) (string, error) {
	if there := substitutes(dir); len(there) > 0 {
		return there[0], nil
	}
	return os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".*")
}

// substitutes are the directories of this user's that substitute has made.
func substitutes(dir string) []string {
	all, _ := filepath.Glob(dir + ".*") // the pattern is good
	return slices.DeleteFunc(all, func(d string) bool { return !own(d) })
}

// substituted reports whether the socket at path is in a substitute.
func substituted(path string) bool { return strings.HasPrefix(path, Dir()+".") }

// parse reads a socket's name. The number of the process is what it calls
// itself, which is another than it has here if it runs in a pid namespace of its
// own, and can be a lie.
func parse(path string) (pid, adapter int, ok bool) {
	name := filepath.Base(path)
	if !strings.HasPrefix(name, prefix) || !strings.HasSuffix(name, suffix) {
		return 0, 0, false
	}
	p, a, found := strings.Cut(name[len(prefix):len(name)-len(suffix)], "-")
	pid, err1 := strconv.Atoi(p)
	adapter, err2 := strconv.Atoi(a)
	return pid, adapter, found && err1 == nil && err2 == nil && pid > 0
}

// sweep removes a socket that nobody answers at any more. What is no socket
// stays.
func sweep(path string) error {
	err := unlinkSocket(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the control socket of a process that is gone: %w", &os.PathError{Op: "unlink", Path: path, Err: err})
	}
	return nil
}

// unlinkSocket removes path in the directory that is there now: another user's
// could become a link to a better one meanwhile.
func unlinkSocket(path string) error {
	dir, err := openDir(filepath.Dir(path), unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	var st unix.Stat_t
	err = unix.Fstatat(dir, filepath.Base(path), &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return err
	}
	return unix.Unlinkat(dir, filepath.Base(path), 0)
}

// knock reports whether somebody listens at path. ECONNREFUSED: there is a file,
// and who made it is gone, whatever process has its number now.
func knock(path string) error {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return err
}
