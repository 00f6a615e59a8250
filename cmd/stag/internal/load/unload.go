package load

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/loader"
)

// What selects the programs to unload. Exactly one of the three fields is set.
type What struct {
	Link     string // name of one interface
	Instance string // name of an instance; all its interfaces are unloaded
	All      bool
}

// Result is what Unload did.
type Result struct {
	Unloaded []Port   `json:"unloaded"`
	Cleaned  []string `json:"cleaned"` // descriptions of what dead processes and removed interfaces had left, and Unload has removed
}

// Port is an interface that was unloaded.
type Port struct {
	Interface string          `json:"interface"` // present name of the interface; "" if the interface cannot be found
	Where     string          `json:"where"`     // network namespace of the interface; "" if it is that of the process
	Instance  string          `json:"instance"`
	Program   uint32          `json:"program"` // number that the kernel gave the program; 0: there was no program
	Stale     string          `json:"stale"`   // the reason why no process could use the program; "" if a process could use it
	Lost      []Lost          `json:"lost"`    // flows that running processes have lost
	Left      int             `json:"left"`    // number of flows of dead processes
	Settings  []loader.Change `json:"settings"`

	index int
}

// Lost says how many flows a running process has lost through the unload.
type Lost struct {
	PID   int `json:"pid"`
	Flows int `json:"flows"`
}

// Unload detaches programs from their interfaces. If an instance cannot be unloaded, Unload continues with the other
// instances. r says what was done, even if there is an error.
func Unload(w What, force bool) (r Result, err error) {
	r.Unloaded, r.Cleaned = []Port{}, []string{}
	targets, err := w.targets()
	for _, o := range targets {
		o.Force = force
		done, failed := loader.Unload(o)
		for _, u := range done {
			r.Unloaded = append(r.Unloaded, port(filepath.Base(o.Instance), u))
		}
		err = errors.Join(err, failed)
	}
	if errors.Is(err, loader.ErrPermission) || errors.Is(err, loader.ErrNoBPFFS) {
		return r, err // the cause would also stop the unloading of the other instances
	}
	cleaned, failed := loader.Sweep()
	if err != nil && errors.Is(failed, loader.ErrNoBPFFS) {
		return r, err // the error already says that nothing is loaded
	}
	r.Cleaned = append(r.Cleaned, cleaned...)
	return r, errors.Join(err, failed)
}

func (w What) targets() ([]loader.UnloadOptions, error) {
	switch {
	case w.All:
		return everything()
	case w.Instance != "":
		return []loader.UnloadOptions{{Instance: filepath.Join(loader.Root, w.Instance)}}, nil
	}
	instance, dir, err := loader.Pinned(w.Link)
	if err == nil {
		return []loader.UnloadOptions{{Instance: instance, Port: dir}}, nil
	}
	if !errors.Is(err, loader.ErrNoLink) && !errors.Is(err, loader.ErrNotPinned) {
		return nil, err
	}
	own, failed := formerly(w.Link, errors.Is(err, loader.ErrNoLink))
	switch {
	case own != "":
		return []loader.UnloadOptions{{Instance: own}}, nil
	case failed != nil:
		return nil, failed
	}
	return nil, fmt.Errorf("%w%s", err, instead())
}

// formerly returns the instance of an interface that was called link when it was loaded, and
// that was moved, renamed or removed since. It returns "" if there is none. free reports that
// no interface has the name link now. If free is false, formerly returns only an instance
// whose interface no longer exists.
func formerly(link string, free bool) (string, error) {
	dir, err := ownInstance(link)
	if dir == "" || free {
		return dir, err
	}
	i, err := loader.ReadInstance(dir)
	if slices.ContainsFunc(i.Ports, func(p loader.PinnedPort) bool { return p.Stale == "" }) {
		return "", nil
	}
	return dir, err
}

func everything() (list []loader.UnloadOptions, err error) {
	all, err := loader.Instances()
	for _, i := range all {
		list = append(list, loader.UnloadOptions{Instance: i.Dir})
	}
	return list, err
}

// instead returns a text with the names of the instances that can be unloaded.
func instead() string {
	all, err := loader.Instances()
	if err != nil {
		return "" // the caller's error already gives the reason
	}
	var names []string
	for _, i := range all {
		names = append(names, i.Name)
	}
	if len(names) == 0 {
		return "; nothing is loaded"
	}
	return "; loaded are the instances " + strings.Join(names, ", ") + ": stag unload --instance NAME"
}

func port(instance string, u loader.Unloaded) Port {
	p := Port{
		Interface: u.Port.Name, Where: u.Port.Space, Instance: instance, Program: u.Port.ProgID, Stale: u.Port.Stale,
		Lost: []Lost{}, Left: u.Left, Settings: append([]loader.Change{}, u.Settings...), index: u.Port.Index,
	}
	for pid, n := range u.Port.Users() {
		if n > 0 {
			p.Lost = append(p.Lost, Lost{pid, n})
		}
	}
	slices.SortFunc(p.Lost, func(a, b Lost) int { return a.PID - b.PID })
	return p
}

// Names returns the instances that this process can see.
func Names() (names []string) {
	dirs, _ := filepath.Glob(filepath.Join(loader.Root, "*"))
	for _, d := range dirs {
		names = append(names, filepath.Base(d))
	}
	return names
}
