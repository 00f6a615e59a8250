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

// Sweep removes what ended processes and deleted interfaces left behind: pins without
// an interface, settings of killed loads, and claims of ended processes. It completes
// moves of addresses, as RepairMoves does. It keeps all
// that is in use or can be adopted. It returns a line for each thing that it did. Sweep
// needs the rights of root (ErrPermission). The error is ErrNoBPFFS if pins cannot be
// seen, because Sweep cannot tell then what is in use.
func Sweep() (done []string, err error) {
	if err := CheckBPFFS(Root); err != nil {
		return nil, err
	}
	f := newFinder()
	defer f.close()
	pins, err := sweepPins(f)
	leaveRoot()
	kept, err2 := sweepSettings(f)
	moves, err3 := RepairMoves()
	claims, err4 := sweepClaims()
	return slices.Concat(pins, kept, moves, claims), errors.Join(err, err2, err3, err4)
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

// sweepInstance removes the stale pins of an instance. It looks without the lock first:
// there is usually nothing to do, and other processes then do not have to wait.
func sweepInstance(dir string, f *finder) (done []string, err error) {
	if !readInstance(dir, f).stale() {
		return nil, nil
	}
	lock, err := lockInstance(dir)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	done, err = readInstance(dir, f).sweepPorts(f)
	loadStep("swept interfaces")
	if i := readInstance(dir, f); len(i.Ports) != 0 || !i.stale() { // an interface that has become stale since is left to the next Sweep
		return done, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return done, fmt.Errorf("remove stale pins: %w", err)
	}
	if len(done) == 0 {
		done = append(done, fmt.Sprintf("removed %s: no interface has it", dir))
	}
	return done, err
}

// sweepPorts removes the pins of stale interfaces. If sweepPorts fails for one
// interface, it continues with the others.
func (i Instance) sweepPorts(f *finder) (done []string, err error) {
	shared := slices.ContainsFunc(i.Ports, func(p PinnedPort) bool { return p.Stale == "" })
	for _, p := range i.Ports {
		if p.Stale == "" {
			continue
		}
		lines, failed := p.sweep(f, shared)
		done, err = append(done, lines...), errors.Join(err, failed)
	}
	return done, err
}

// sweep restores the settings of a stale interface, and removes its pins. shared has
// the same meaning as in forget.
func (p *PinnedPort) sweep(f *finder, shared bool) (done []string, err error) {
	settings, err := p.restore(f, whereabouts{}, false)
	if err != nil {
		return nil, err
	}
	if shared {
		err = p.dropFlows()
	}
	if failed := os.RemoveAll(p.Dir); failed != nil {
		return nil, errors.Join(err, fmt.Errorf("remove stale pins: %w", failed))
	}
	done = append(done, fmt.Sprintf("removed the pins in %s: %s", p.Dir, p.Stale))
	return append(done, lines(settings)...), err
}

// stale reports whether the instance has a stale interface, or has no interface and an
// unused table.
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

// sweepSettings restores the settings of loads that have left no pins.
func sweepSettings(f *finder) (done []string, err error) {
	paths, err := filepath.Glob(filepath.Join(RuntimeDir, settingsPrefix+"*"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		l, ok := parsePort(strings.TrimPrefix(filepath.Base(path), settingsPrefix))
		if !ok {
			continue // a temporary file of a load that was killed
		}
		lines, failed := sweepSetting(path, l, f)
		done, err = append(done, lines...), errors.Join(err, failed)
	}
	return done, err
}

func sweepSetting(path string, l Link, f *finder) ([]string, error) {
	c, _, err := claimFile(claimPath(l, hookClaim), path)
	if c == nil || err != nil {
		return nil, err // if c is nil, a load is running on this port
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

// SweepClaims removes the claim files of ended processes, as far as the caller has the
// rights. Such a file blocks no other process, but makes the interface look used.
func SweepClaims() {
	_, _ = sweepClaims() // files of other users stay
}

// claimName matches the names of claim files, and of no other files.
var claimName = regexp.MustCompile(`^(\d+-\d+-(\d+|` + hookClaim + `)|(program|table|moves)-\d+|instance-.*)$`)

// sweepClaims removes the claim files whose lock no process holds. Such a file blocks
// no other process, because the next owner can lock it.
func sweepClaims() ([]string, error) {
	files, err := os.ReadDir(RuntimeDir)
	if err != nil {
		return nil, nil // the directory does not exist, so there are no claims
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
