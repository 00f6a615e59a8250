package loader

import (
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// HandedTable describes the arrays of a table for another process. Its descriptors travel
// beside it.
type HandedTable struct {
	Claim string // path of the claim's file; "" for private arrays
}

// Hand returns what another process needs to use the arrays: InheritTable reverses it. The
// files are duplicates, which the caller owns: the entries, the page lists, and the claim of
// pinned arrays. The Table works as before.
func (t *Table) Hand() (h HandedTable, files []*os.File, err error) {
	for _, fd := range []int{t.entries.FD(), t.pages.FD()} {
		f, err := duplicate(fd, "the table of registered memory")
		if err != nil {
			return h, nil, errors.Join(err, closeAll(files))
		}
		files = append(files, f)
	}
	if t.claimed != nil {
		path, f, err := t.claimed.File()
		if err != nil {
			return h, nil, errors.Join(err, closeAll(files))
		}
		h.Claim, files = path, append(files, f)
	}
	return h, files, nil
}

// Leave says that another process has the arrays from now on. Close then leaves the claim to
// that process.
func (t *Table) Leave() {
	if t.claimed != nil {
		t.claimed.Leave()
	}
}

// Sign makes this process the recorded owner of inherited arrays.
func (t *Table) Sign() error {
	if t.claimed == nil {
		return nil
	}
	return t.claimed.Sign()
}

// InheritTable opens the arrays that another process has handed over, and maps them. Both
// processes have them until one of them calls Close: a process that keeps them calls Sign, and
// the other one Leave. InheritTable takes the files over, also on error. The error is ErrLayout
// for arrays of other layouts.
func InheritTable(h HandedTable, files []*os.File) (*Table, error) {
	t := &Table{}
	if err := t.inherit(h, files); err != nil {
		return nil, errors.Join(fmt.Errorf("take over the table of registered memory: %w", err), closeAll(files), t.undo.Run())
	}
	return t, nil
}

func (t *Table) inherit(h HandedTable, files []*os.File) (err error) {
	want := 2
	if h.Claim != "" {
		want = 3
	}
	if len(files) != want {
		return fmt.Errorf("%d descriptors, want %d", len(files), want)
	}
	for i, a := range []*array{&t.entries, &t.pages} {
		if a.Map, err = ebpf.NewMapFromFD(detachFD(files, i)); err != nil {
			return err
		}
		t.undo.Add(a.Map.Close)
		if !suitsTable(i == 0, a.Map) {
			return fail(ErrLayout, nil, "an array of the other process is no table")
		}
		if a.memory, err = mapArray(a.Map, unix.PROT_READ|unix.PROT_WRITE); err != nil {
			return err
		}
		t.undo.Add(func() error { return unix.Munmap(a.memory) })
	}
	if h.Claim == "" {
		return nil
	}
	if t.claimed, err = InheritClaim(h.Claim, take(files, 2)); err != nil {
		return err
	}
	t.claimed.Leave() // until Sign the claim's file is the other process's
	t.undo.Add(t.claimed.Close)
	return nil
}
