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
	Instance string // name; "" for one of the interface's own
	Generic  bool
	Tune     loader.Tune
	MaxFlows int // 0: the loader's default, or what is there
	Queues   int // 0: as many as the interface has

	OrphanWait time.Duration // 0: the loader's default, or what is there; see loader.Options
}

// instanceName matches the names that a directory in a BPF file system can have. A dot is
// not allowed there.
var instanceName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// CheckInstance says what is wrong with the name of an instance.
func CheckInstance(name string) error {
	if !instanceName.MatchString(name) {
		return fmt.Errorf("--instance %q: use up to 64 letters, digits, - and _", name)
	}
	return nil
}

// Loaded is what Load did.
type Loaded struct {
	Interface string `json:"interface"` // the port: of a VLAN interface, its parent
	Driver    string `json:"driver"`
	Mode      string `json:"mode"`
	Instance  string `json:"instance"`
	Directory string `json:"directory"` // of the instance's pins
	Program   uint32 `json:"program"`   // the kernel's number
	Queues    int    `json:"queues"`
	MaxFlows  uint32 `json:"max_flows"`
	// OrphanWait is how many seconds connections of an engine that has died are kept
	// from the kernel.
	OrphanWait float64         `json:"orphan_wait"`
	Settings   []loader.Change `json:"settings"`
	Cleaned    []string        `json:"cleaned"` // what was left by processes and interfaces that are gone
	Already    bool            `json:"already"` // it was already loaded with these options

	asked string      // the interface that was asked for
	tune  loader.Tune // what was asked for
}

// Load puts the steering program on an interface of the calling thread's network namespace, to stay. If such a
// program is there already, Load changes only its settings. l also says, even with an error, what Load removed that
// earlier processes had left.
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

// again does Load's work if the program is already loaded.
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

// load does Load's work if the program is not loaded yet.
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

// directory returns where the pins of an instance are. An instance that is named after its
// interface is not shared: the name may belong to another interface by now.
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
			return "", fmt.Errorf("instance %s is another interface's, which was called %s when it was loaded: name one with --instance, or unload that: stag unload --instance %s",
				i.Name, link.Port, i.Name)
		}
	}
	return dir, nil
}

// ownName returns the name of the instance of one interface. It is unique on the machine.
func ownName(link string, netns uint64) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(link, ".", "_"), netns)
}

// ownInstance returns the directory of the instance that an interface called link gets by default, "" if there is
// none.
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
