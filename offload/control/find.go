package control

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/loader"
)

// Endpoint is the socket of one adapter of one process. PID and UID are those of the
// process that listens there. The kernel reports them (SO_PEERCRED), as seen from this
// process.
type Endpoint struct {
	Path    string
	PID     int
	Adapter int // number that tells the adapters of a process apart
	UID     int // user of the process
}

// Engines returns the sockets of this user's engines, in the order of pid and adapter.
// It removes sockets at which no process listens. pid selects one process. 0 means all
// processes. If pid is not 0 and has no engine, Engines returns ErrNoEngine.
func Engines(pid int) ([]Endpoint, error) { return find(pid, ownPlaces()) }

// AllEngines returns the sockets of all users' engines. Root may send requests to every
// engine. Other users see that root has engines, but may not send requests to them
// (ErrPermission).
func AllEngines(pid int) ([]Endpoint, error) { return find(pid, append(ownPlaces(), otherPlaces()...)) }

func find(pid int, places []place) (list []Endpoint, err error) {
	for _, p := range places {
		found, err := p.engines()
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	if pid != 0 {
		list = slices.DeleteFunc(list, func(e Endpoint) bool { return e.PID != pid })
		if len(list) == 0 {
			return nil, fmt.Errorf("%w: process %d has no adapter open that this user can see: `stag show devices --all-users` lists those that have", ErrNoEngine, pid)
		}
	}
	slices.SortFunc(list, func(x, y Endpoint) int {
		if x.PID != y.PID {
			return x.PID - y.PID
		}
		return x.Adapter - y.Adapter
	})
	return list, nil
}

// place is a directory with sockets. Only engines of the directory's owner count,
// because any user can make files with any name in a directory of their own.
type place struct {
	dir   string
	owner int
	most  int // largest number of names to look at; 0: all
}

// Limits of the search among other users' files. Without these limits, a user could
// keep root's search busy.
const (
	mostPlaces = 16   // largest number of directories of one user
	mostNames  = 1024 // largest number of names in each directory
)

// ownPlaces returns the directories of this user's engines.
func ownPlaces() []place {
	var list []place
	for _, dir := range append([]string{Dir()}, substitutes(Dir())...) {
		list = append(list, place{dir: dir, owner: os.Geteuid()})
	}
	return list
}

// otherPlaces returns the directories of other users' engines.
func otherPlaces() (list []place) {
	if os.Geteuid() != 0 {
		return []place{{dir: loader.RuntimeDir}}
	}
	count := map[int]int{}
	for _, pattern := range []string{"/run/user/*/stag", filepath.Join(os.TempDir(), "stag-*")} {
		dirs, _ := filepath.Glob(pattern) // the pattern is always valid
		for _, dir := range dirs {
			var st unix.Stat_t
			if unix.Lstat(dir, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
				continue
			}
			uid := int(st.Uid)
			if count[uid]++; count[uid] <= mostPlaces {
				list = append(list, place{dir, uid, mostNames})
			}
		}
	}
	return list
}

// engines returns the engines that listen in the directory.
func (p place) engines() (list []Endpoint, err error) {
	var refused []string
	for _, name := range p.names() {
		switch e, err := p.look(name); {
		case err == nil:
			list = append(list, e)
		case errors.Is(err, unix.ECONNREFUSED):
			refused = append(refused, name)
		}
	}
	if len(refused) == 0 {
		return list, nil
	}
	time.Sleep(tries * again) // a process that makes a socket may be between two system calls
	for _, name := range refused {
		e, err := p.look(name)
		if err == nil {
			list = append(list, e)
			continue
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			continue
		}
		if err := sweep(e.Path); err != nil && !errors.Is(err, os.ErrPermission) {
			return nil, err
		}
	}
	return list, nil
}

// names returns the names of the sockets in the directory. names returns none if the
// directory does not exist or this user may not read it.
func (p place) names() (list []string) {
	fd, err := openDir(p.dir, unix.O_RDONLY)
	if err != nil {
		return nil
	}
	dir := os.NewFile(uintptr(fd), p.dir)
	defer dir.Close()
	most := p.most
	if most == 0 {
		most = -1
	}
	all, _ := dir.Readdirnames(most) // if reading stops with an error, the names up to there are used
	for _, name := range all {
		if _, _, ok := parse(name); ok {
			list = append(list, name)
		}
	}
	return list
}

// errNobody is the error for a socket without an engine of the directory's owner.
var errNobody = errors.New("no engine of the place's owner listens there")

// look asks the kernel which process listens at a socket. If the kernel cannot tell,
// look believes the pid in the name. The kernel cannot tell if the process accepts no
// more connections, or none from this process. The kernel also cannot tell if the
// process is outside of this process's pid namespace. In that case look refuses the
// process unless its user is trusted.
func (p place) look(name string) (Endpoint, error) {
	pid, adapter, _ := parse(name)
	e := Endpoint{filepath.Join(p.dir, name), pid, adapter, p.owner}
	c, err := e.connect(context.Background())
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, os.ErrPermission) && alive(pid):
		return e, nil
	case err != nil:
		return e, err
	}
	defer c.Close()
	cred, err := PeerOf(c)
	if err != nil {
		return e, err
	}
	if int(cred.Uid) != p.owner || cred.Pid == 0 && !Trusted(p.owner) {
		return e, errNobody
	}
	if cred.Pid != 0 {
		e.PID = int(cred.Pid)
	}
	return e, nil
}

// alive reports whether a process has the number pid.
func alive(pid int) bool { return syscall.Kill(pid, 0) != syscall.ESRCH }
