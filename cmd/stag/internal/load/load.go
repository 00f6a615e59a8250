// Package load loads the steering program so that it stays on an interface, and unloads
// it: the commands `stag load` and `stag unload`.
package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/stag-rdma/stag/loader"
)

// Options say what to load, and how.
type Options struct {
	Link     string
	Instance string // name of the instance; "": an instance of the interface's own
	Generic  bool
	Tune     loader.Tune
	MaxFlows int // most connections of the instance; 0: the present number if the instance exists, else the loader's default
	Queues   int // number of queues to reserve room for; 0: the present number of the interface

	OrphanWait time.Duration // how long the program keeps packets of a dead engine (see loader.Options); 0: the present value if the interface is loaded, else the loader's default
}

// instanceName matches the names that a directory in a BPF file system can have. A dot is
// not allowed there.
var instanceName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckInstance returns an error if name cannot be the name of an instance.
func CheckInstance(name string) error {
	if !instanceName.MatchString(name) {
		return fmt.Errorf("--instance %q: use up to 64 letters, digits, - and _", name)
	}
	return nil
}

// Loaded is what Load did.
type Loaded struct {
	Interface string `json:"interface"` // name of the port: for a VLAN interface this is its parent
	Driver    string `json:"driver"`
	Mode      string `json:"mode"`
	Instance  string `json:"instance"`
	Directory string `json:"directory"` // directory of the instance's pins
	Program   uint32 `json:"program"`   // number that the kernel gave the program
	Queues    int    `json:"queues"`
	MaxFlows  uint32 `json:"max_flows"`
	// OrphanWait is how long the program drops segments of a dead engine's
	// connections before it passes them to the kernel, in seconds.
	OrphanWait float64         `json:"orphan_wait"`
	Settings   []loader.Change `json:"settings"`
	Cleaned    []string        `json:"cleaned"` // descriptions of what dead processes and removed interfaces had left, and Load has removed
	Already    bool            `json:"already"` // the program was already loaded with these options

	asked string      // the interface that the caller named
	tune  loader.Tune // the tuning that the caller asked for
}

// Load attaches the steering program to an interface of the calling thread's network namespace, and pins the program.
// If the program is already loaded, Load changes only the settings. Even with an error, l.Cleaned describes what Load
// removed that earlier processes had left.
func Load(o Options) (l Loaded, err error) {
	l.Settings, l.Cleaned, l.asked, l.tune = []loader.Change{}, []string{}, o.Link, o.Tune
	link, err := loader.LookupLink(o.Link)
	if err != nil {
		return l, err
	}
	cleaned, err := loader.Sweep()
	l.Cleaned = append(l.Cleaned, cleaned...)
	if err != nil {
		return l, err
	}
	wanted := loader.Options{Link: o.Link, Generic: o.Generic, Tune: o.Tune, MaxFlows: uint32(o.MaxFlows), Queues: o.Queues, OrphanWait: o.OrphanWait}
	if o.Instance != "" {
		wanted.Pin = filepath.Join(loader.Root, o.Instance)
	}
	if err := l.again(link, wanted); !errors.Is(err, loader.ErrNotPinned) {
		return l, err
	}
	if wanted.Pin, err = directory(o.Instance, link); err != nil {
		return l, err
	}
	return l, l.load(link, wanted)
}

// again does the work of Load if the program is already loaded.
func (l *Loaded) again(link loader.Link, wanted loader.Options) error {
	p, changes, err := loader.LoadAgain(wanted)
	l.Settings = append(l.Settings, changes...)
	if err != nil {
		return err
	}
	l.Already = true
	l.Directory = filepath.Dir(p.Dir)
	l.Instance = filepath.Base(l.Directory)
	l.Interface, l.Driver, l.Mode = link.Port, link.Driver, p.Mode.String()
	l.Program, l.Queues, l.MaxFlows, l.OrphanWait = p.ProgID, p.Queues, p.MaxFlows, p.OrphanWait.Seconds()
	return nil
}

// load does the work of Load if the program is not loaded yet.
func (l *Loaded) load(link loader.Link, wanted loader.Options) error {
	l.Directory, l.Instance = wanted.Pin, filepath.Base(wanted.Pin)
	s, err := loader.Load(wanted)
	if err != nil {
		return err
	}
	l.Interface, l.Driver, l.Mode = link.Port, link.Driver, s.Mode().String()
	l.Program, l.Queues, l.MaxFlows, l.OrphanWait = s.ProgID(), s.Queues(), s.MaxFlows(), s.OrphanWait().Seconds()
	l.Settings = append(l.Settings, s.Tuned()...)
	return s.Close()
}

// directory returns the directory with the pinned objects of an instance. If instance is "", this is the own instance
// of link. If another interface had link's name when it was loaded, that interface has the own instance, and
// directory returns an error.
func directory(instance string, link loader.Link) (string, error) {
	if instance != "" {
		return filepath.Join(loader.Root, instance), nil
	}
	dir := filepath.Join(loader.Root, ownName(link.Port, link.Netns))
	i, err := loader.ReadInstance(dir)
	if errors.Is(err, loader.ErrNotPinned) {
		return dir, nil
	}
	if err != nil {
		return "", err
	}
	for _, p := range i.Ports {
		if p.Index != link.PortIndex || p.Netns != link.Netns {
			return "", fmt.Errorf("instance %s belongs to another interface, which was called %s when it was loaded: name another instance with --instance, or unload this one: stag unload --instance %s",
				i.Name, link.Port, i.Name)
		}
	}
	return dir, nil
}

// ownName returns the name of the instance of one interface. The name is unique on the machine.
func ownName(link string, netns uint64) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(link, ".", "_"), netns)
}

// ownInstance returns the directory of the instance that an interface called link gets by default. It returns "" if
// that instance does not exist.
func ownInstance(link string) (string, error) {
	n, err := loader.Open()
	if err != nil {
		return "", err
	}
	defer n.Close()
	dir := filepath.Join(loader.Root, ownName(link, n.Cookie()))
	_, err = os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	return dir, err
}
