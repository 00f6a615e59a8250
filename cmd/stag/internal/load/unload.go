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
	Link     string // an interface
	Instance string // all interfaces of one
	All      bool
}

// Result is what Unload did.
type Result struct {
	Unloaded []Port   `json:"unloaded"`
	Cleaned  []string `json:"cleaned"` // what was left by processes and interfaces that are gone
}

// Port is an interface that was unloaded.
type Port struct {
	Interface string          `json:"interface"` // its name now, "" if it cannot be found
	Where     string          `json:"where"`     // "" in the namespace of the process
	Instance  string          `json:"instance"`
	Program   uint32          `json:"program"` // the kernel's number; 0: there was none
	Stale     string          `json:"stale"`   // why the program was useless, "" if it was in use
	Lost      []Lost          `json:"lost"`    // what was taken from processes
	Left      int             `json:"left"`    // flows of processes that had died
	Settings  []loader.Change `json:"settings"`

	index int
}

// Lost is the flows that a process had.
type Lost struct {
	PID   int `json:"pid"`
	Flows int `json:"flows"`
}

// Unload detaches programs from their interfaces. r says what was done, even with an error: Unload continues with the
// other instances if one cannot be unloaded.
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
		return r, err // the cause would stop the rest as well
	}
	cleaned, failed := loader.Sweep()
	if err != nil && errors.Is(failed, loader.ErrNoBPFFS) {
		return r, err // the error already says so
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

// formerly returns the instance that was loaded for an interface called link which has been
// moved, renamed or removed since, or "". If free is false, another interface has the name
// now, and formerly returns only an instance whose interface is gone.
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

// instead returns a text that names what can be unloaded.
func instead() string {
	all, err := loader.Instances()
	if err != nil {
		return "" // the other error already gives the reason
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
