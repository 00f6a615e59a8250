package loader

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
)

// This file hands a program and claims to another process, which uses them from then on.
// Nothing on the interface changes, and at each moment at least one process has the claim:
// its lock belongs to the open file, and both processes have a descriptor of that file.

// Handed describes a program for another process. Its descriptors travel beside it.
type Handed struct {
	Port     string // name of the interface
	Instance string // directory of the instance; "" for a private program
	Wait     time.Duration
	Claim    string   // path of the claim's file
	Maps     []string // names of the maps, in the order of their descriptors
}

// Hand returns what another process needs to use the program: Inherit reverses it. The
// files are duplicates, in the order of the link, the maps and the claim. The caller owns
// them. The Steering works as before.
func (s *Steering) Hand() (h Handed, files []*os.File, err error) {
	h = Handed{Port: s.link.Port, Instance: s.instance, Wait: s.wait, Claim: s.claimed.file.Name()}
	fds := []int{-1}
	if l, ok := s.hook.(interface{ FD() int }); ok {
		fds[0] = l.FD()
	}
	all := s.allMaps()
	h.Maps = slices.Sorted(maps.Keys(all))
	for _, name := range h.Maps {
		fds = append(fds, (*all[name]).FD())
	}
	for _, fd := range append(fds, int(s.claimed.file.Fd())) {
		f, err := duplicate(fd, s.link.Port)
		if err != nil {
			closeAll(files)
			return Handed{}, nil, err
		}
		files = append(files, f)
	}
	return h, files, nil
}

// Leave says that another process uses the program from now on. Close then leaves the
// program and the claim to that process.
func (s *Steering) Leave() { s.claimed.Leave() }

// Inherit opens the program that another process has handed over, for the interface called
// name in the network namespace of the calling OS thread. Inherit takes the files over, also
// on error. Both processes have the program until one of them calls Close: a process that
// keeps the program calls Sign, and the other one Leave.
//
// Errors: ErrLayout if the maps have other layouts. ErrNoLink. An error if the program is on
// another interface.
func Inherit(name string, h Handed, files []*os.File) (*Steering, error) {
	s := &Steering{instance: h.Instance, wait: h.Wait}
	err := s.inherit(name, h, files)
	if err != nil {
		closeAll(files)
		s.undo.Run()
		return nil, fmt.Errorf("take over the program on %s: %w", name, err)
	}
	return s, nil
}

func (s *Steering) inherit(name string, h Handed, files []*os.File) error {
	all := s.allMaps()
	if !slices.Equal(h.Maps, slices.Sorted(maps.Keys(all))) || len(files) != len(all)+2 {
		return fail(ErrLayout, nil, "the other process has the maps %s, and this stag has %d", strings.Join(h.Maps, ", "), len(all))
	}
	n, err := Open()
	if err != nil {
		return err
	}
	defer n.Close()
	if s.link, err = n.LookupLink(name); err != nil {
		return err
	}
	if s.hook, err = link.NewFromFD(detachFD(files, 0)); err != nil {
		return err
	}
	s.undo.Add(s.hook.Close)
	for i, name := range h.Maps {
		if *all[name], err = ebpf.NewMapFromFD(detachFD(files, 1+i)); err != nil {
			return fmt.Errorf("open map %s: %w", name, err)
		}
		s.undo.Add((*all[name]).Close)
	}
	if err := s.sameShape(); err != nil {
		return err
	}
	if s.claimed, err = InheritClaim(h.Claim, take(files, len(files)-1)); err != nil {
		return err
	}
	s.claimed.Leave() // until Sign the claim's file is the other process's
	s.undo.Add(s.claimed.Close)
	info, err := s.hook.Info()
	if err != nil {
		return err
	}
	s.id = info.Program
	// The index that the link has is not enough: interfaces of two namespaces may have the same.
	if xdp, err := n.hook(s.link); err != nil || !xdp.Attached || xdp.ProgId != uint32(s.id) {
		return errors.Join(errors.New("the other process's program is not on this interface"), err)
	}
	s.mode, err = n.attachedMode(s.link)
	return err
}

// Sign makes this process the recorded owner of an inherited program.
func (s *Steering) Sign() error { return s.claimed.Sign() }

// sameShape returns ErrLayout unless the maps have the sizes of this build's layouts. It
// skips maps that s does not have.
func (s *Steering) sameShape() error {
	spec, err := bpf.Spec()
	if err != nil {
		return err
	}
	for name, m := range s.allMaps() {
		if *m == nil {
			continue
		}
		want := spec.Maps[name]
		if (*m).Type() != want.Type || (*m).KeySize() != want.KeySize || (*m).ValueSize() != want.ValueSize {
			return fail(ErrLayout, nil, "the map %s has another layout than this stag's", name)
		}
	}
	return nil
}

// File returns a duplicate of the claim's descriptor, and the path of its file, for
// InheritClaim in another process. The caller owns the duplicate.
func (c *Claim) File() (path string, f *os.File, err error) {
	f, err = duplicate(int(c.file.Fd()), c.file.Name())
	return c.file.Name(), f, err
}

// Leave says that another process has the claim from now on. Close then leaves the claim to
// that process.
func (c *Claim) Leave() { c.left.Store(true) }

// InheritClaim returns the claim that another process has handed over. It takes f over, also
// on error. A process that keeps the claim calls Sign.
func InheritClaim(path string, f *os.File) (*Claim, error) {
	defer f.Close()
	if filepath.Dir(path) != RuntimeDir || !stillThere(f, path) {
		return nil, fmt.Errorf("%s is no claim", path)
	}
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	c := &Claim{file: os.NewFile(uintptr(fd), path)}
	if err := lock(c.file); err != nil { // succeeds for the same open file only
		c.file.Close()
		return nil, fmt.Errorf("the claim %s is not the one of the other process: %w", path, err)
	}
	return c, nil
}

// Sign makes this process the recorded owner of an inherited claim, which Close ends.
func (c *Claim) Sign() error {
	c.left.Store(false)
	return sign(c.file)
}

func duplicate(fd int, name string) (*os.File, error) {
	d, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate a descriptor of %s: %w", name, err)
	}
	return os.NewFile(uintptr(d), name), nil
}

// take returns a file, which then no longer belongs to the list.
func take(files []*os.File, i int) *os.File {
	f := files[i]
	files[i] = nil
	return f
}

// detachFD returns a duplicate of the descriptor of a file, and closes the file.
func detachFD(files []*os.File, i int) int {
	f := take(files, i)
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

func closeAll(files []*os.File) (err error) {
	for _, f := range files {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}
