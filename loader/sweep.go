package loader

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Sweep removes what processes and interfaces left that are gone: pins that hold nothing
// any more, settings of loads that were killed, and claims of processes that ended. It
// keeps what is in use or can be adopted. It returns a line for each thing that it did. It
// needs the rights of root (ErrPermission). ErrNoBPFFS if pins cannot be seen: then it
// cannot tell what is left over.
func Sweep() (done []string, err error) {
	if err := CheckBPFFS(Root); err != nil {
		return nil, err
	}
	f := newFinder()
	defer f.close()
	pins, err := sweepPins(f)
	leaveRoot()
	kept, err2 := sweepSettings(f)
	claims, err3 := sweepClaims()
	return slices.Concat(pins, kept, claims), errors.Join(err, err2, err3)
}

func sweepPins(f *finder) (done []string, err error) {
	dirs, err := os.ReadDir(Root)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, os.ErrPermission) {
		return nil, cannotRead(err)
	}
	for _, d := range dirs {
		if !d.IsDir() {
			continue
		}
		lines, failed := sweepInstance(filepath.Join(Root, d.Name()), f)
		done, err = append(done, lines...), errors.Join(err, failed)
	}
	return done, err
}

// sweepInstance first looks without the lock: most of the time there is nothing to do,
// and then no other process has to wait.
func sweepInstance(dir string, f *finder) (done []string, err error) {
	if !readInstance(dir, f).stale() {
		return nil, nil
	}
	lock, err := lockInstance(dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	i := readInstance(dir, f)
	for _, p := range i.Ports {
		if p.Stale == "" {
			continue
		}
		settings, err := p.restore(f, whereabouts{}, false)
		if err != nil {
			return done, err
		}
		if err := p.dropFlows(); err != nil {
			return done, err
		}
		if err := os.RemoveAll(p.Dir); err != nil {
			return done, fmt.Errorf("remove stale pins: %w", err)
		}
		done = append(done, fmt.Sprintf("removed the pins in %s: %s", p.Dir, p.Stale))
		done = append(done, lines(settings)...)
	}
	if i = readInstance(dir, f); !i.stale() {
		return done, nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return done, fmt.Errorf("remove stale pins: %w", err)
	}
	if len(done) == 0 {
		done = append(done, fmt.Sprintf("removed %s: no interface has it", dir))
	}
	return done, nil
}

// stale reports whether something in the instance is of no use: one of its
// interfaces, or all of it as it has none.
func (i Instance) stale() bool {
	if len(i.Ports) == 0 {
		return i.Table == nil || !i.Table.InUse
	}
	return slices.ContainsFunc(i.Ports, func(p PinnedPort) bool { return p.Stale != "" })
}

func lines(changes []Change) (list []string) {
	for _, c := range changes {
		list = append(list, c.String())
	}
	return list
}

// sweepSettings puts back what loads changed that have left no pins.
func sweepSettings(f *finder) (done []string, err error) {
	paths, err := filepath.Glob(filepath.Join(RuntimeDir, settingsPrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		l, ok := parsePort(strings.TrimPrefix(filepath.Base(path), settingsPrefix))
		if !ok {
			continue // another file's successor, of a load that was killed
		}
		lines, failed := sweepSetting(path, l, f)
		done, err = append(done, lines...), errors.Join(err, failed)
	}
	return done, err
}

func sweepSetting(path string, l Link, f *finder) ([]string, error) {
	c, _, err := claimFile(claimPath(l, hookClaim), path)
	if c == nil || err != nil {
		return nil, err // its load goes on just now
	}
	defer c.Close()
	pinned, err := filepath.Glob(filepath.Join(Root, "*", fmt.Sprintf("%d-%d", l.Netns, l.PortIndex), "link"))
	if len(pinned) > 0 || err != nil || f.steers(l) {
		return nil, err
	}
	kept, err := readSettings(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	changes, err := kept.restore(f, whereabouts{}, false)
	return append([]string{fmt.Sprintf("removed %s: no stag is loaded there", path)}, lines(changes)...), err
}

// SweepClaims removes the files of claims whose processes are gone, as far as the caller
// has the rights. Such files keep no process out, but look as if something were in use.
func SweepClaims() {
	_, _ = sweepClaims() // what is another user's stays
}

// claimName is what the files of claims are called, and no other file is.
var claimName = regexp.MustCompile(`^(\d+-\d+-(\d+|` + hookClaim + `)|(program|table)-\d+|instance-.*)$`)

// sweepClaims removes the files of claims that no process holds. Such a file keeps no
// process out: the next owner takes it over.
func sweepClaims() ([]string, error) {
	files, err := os.ReadDir(RuntimeDir)
	if err != nil {
		return nil, nil // there are none
	}
	n := 0
	for _, file := range files {
		if !claimName.MatchString(file.Name()) {
			continue
		}
		removed, err := dropClaim(filepath.Join(RuntimeDir, file.Name()))
		if err != nil {
			return nil, err
		}
		if removed {
			n++
		}
	}
	switch n {
	case 0:
		return nil, nil
	case 1:
		return []string{"removed the claim of a process that is gone"}, nil
	}
	return []string{fmt.Sprintf("removed %d claims of processes that are gone", n)}, nil
}
