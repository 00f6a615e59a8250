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

// Dir returns the directory of the sockets of this user's engines. For root it is
// loader.RuntimeDir. For other users it is $XDG_RUNTIME_DIR/stag. If that directory is
// not the user's (su and sudo can leave another user's in the environment), it is a
// directory of the user's own in the directory for temporary files.
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

// adapters counts the adapters of this process.
var adapters atomic.Int32

// Number returns a number for the next adapter of this process, which tells it from the
// others.
func Number() int { return int(adapters.Add(1)) }

// Name returns the path of the socket for an adapter of this process. When Name
// returns, the directory exists and belongs to this user.
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

// ownDir makes dir, and returns it. If dir belongs to another user, who could put
// anything into it, ownDir returns a substitute. But loader.RuntimeDir may be given to
// a user with the rights for engines, and is good enough for claims.
func ownDir(dir string) (string, error) {
	if dir == loader.RuntimeDir {
		if err := os.MkdirAll(dir, 0o755); err != nil { // every user may read the claims in it
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

// own reports whether dir is a directory that belongs to this user.
func own(dir string) bool {
	var st unix.Stat_t
	return unix.Lstat(dir, &st) == nil && int(st.Uid) == os.Geteuid() && st.Mode&unix.S_IFMT == unix.S_IFDIR
}

// substitute returns a directory of this user's to use in place of dir, whose name
// another user has taken. It is an existing one, or a new one with an unpredictable
// name.
func substitute(dir string) (string, error) {
	if there := substitutes(dir); len(there) > 0 {
		return there[0], nil
	}
	return os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".*")
}

// substitutes returns the directories of this user's that substitute has made.
func substitutes(dir string) []string {
	all, _ := filepath.Glob(dir + ".*") // the pattern is good
	return slices.DeleteFunc(all, func(d string) bool { return !own(d) })
}

// substituted reports whether the socket at path is in a substitute.
func substituted(path string) bool { return strings.HasPrefix(path, Dir()+".") }

// parse reads a socket's name. The pid in it is the engine's own claim: an engine in a
// pid namespace has another pid here, and the claim can be false.
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

// sweep removes a socket at which no process listens any more. It leaves a file that is
// no socket.
func sweep(path string) error {
	err := unlinkSocket(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the control socket of a process that is gone: %w", &os.PathError{Op: "unlink", Path: path, Err: err})
	}
	return nil
}

// unlinkSocket removes path from the directory that it has opened: another user's
// directory could be replaced meanwhile by a link to a more important one.
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

// knock reports whether a process listens at path. ECONNREFUSED means that the file
// exists and its maker is gone, whatever process has the maker's pid now.
func knock(path string) error {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return err
}
