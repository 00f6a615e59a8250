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
// loader.RuntimeDir. For other users it is $XDG_RUNTIME_DIR/stag. After su or sudo,
// that variable can name another user's directory. Dir then returns a directory of the
// user's own below the directory for temporary files.
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

// prefix and suffix of a socket's name. The pid and the number stand between them.
const (
	prefix = "engine-"
	suffix = ".sock"
)

// adapters counts the adapters of this process.
var adapters atomic.Int32

// Number returns a number for the next adapter of this process. No two adapters of the
// process have the same number.
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

// maxPath is the longest path in sockaddr_un.sun_path, without the zero at the end.
const maxPath = 107

// ownDir makes dir and returns its path. If dir belongs to another user, that user
// could put anything into dir. ownDir then returns a substitute. loader.RuntimeDir is
// an exception: a user with the rights for engines may own it. ownDir returns it all
// the same, because package loader keeps its claims there too.
func ownDir(dir string) (string, error) {
	if dir == loader.RuntimeDir {
		if err := os.MkdirAll(dir, 0o755); err != nil { // mode 0755: every user may read the claims in the directory
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

// substitute returns a directory of this user to use in place of dir, because another
// user has taken the name of dir. substitute returns an existing substitute, or makes
// one with an unpredictable name.
func substitute(dir string) (string, error) {
	if there := substitutes(dir); len(there) > 0 {
		return there[0], nil
	}
	return os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".*")
}

// substitutes returns the directories of this user that substitute has made.
func substitutes(dir string) []string {
	all, _ := filepath.Glob(dir + ".*") // the pattern is always valid
	return slices.DeleteFunc(all, func(d string) bool { return !own(d) })
}

// substituted reports whether the socket at path is in a substitute directory.
func substituted(path string) bool { return strings.HasPrefix(path, Dir()+".") }

// parse reads a socket's name. The pid in the name is only a claim of the engine. The
// claim can be false, and an engine in another pid namespace has another pid here.
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

// sweep removes a socket at which no process listens any more. sweep does not remove a
// file that is no socket.
func sweep(path string) error {
	err := unlinkSocket(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the control socket of a process that is gone: %w", &os.PathError{Op: "unlink", Path: path, Err: err})
	}
	return nil
}

// unlinkSocket removes the socket at path. unlinkSocket opens the directory first, and
// then removes the socket from the opened directory. Otherwise another user could
// replace the directory by a link to a more important one.
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

// knock returns nil if a process listens at path. ECONNREFUSED means that the socket
// exists and its maker is gone. Another process may have the maker's pid now.
func knock(path string) error {
	c, err := net.Dial("unix", path)
	if err == nil {
		c.Close()
	}
	return err
}
