package loader

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// RepairMoves completes the moves of addresses whose process was killed. A move that had
// not begun is forgotten, and the addresses stay where they are. If the next interface
// is gone, the addresses return to the old one. Moves of running processes are left
// alone. RepairMoves returns a line for each move.
//
// A process calls RepairMoves before it reads or moves addresses. Sweep calls it too.
func RepairMoves() (done []string, err error) {
	paths, err := filepath.Glob(filepath.Join(RuntimeDir, journalPrefix+"*"))
	if err != nil || len(paths) == 0 {
		return nil, err
	}
	f := newFinder()
	defer f.close()
	for _, path := range paths {
		if strings.HasSuffix(path, ".new") {
			continue // the move had not begun when its process was killed
		}
		lines, failed := repair(path, f)
		done, err = append(done, lines...), errors.Join(err, failed)
	}
	return done, err
}

// repair repairs one move. It leaves the journal of a namespace that cannot be found,
// which may be out of sight only.
func repair(path string, f *finder) (done []string, err error) {
	j, err := readJournal(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the move has ended meanwhile
	}
	if err != nil {
		return nil, err
	}
	if boot, err := bootID(); err != nil || boot != j.Boot {
		return nil, errors.Join(err, j.remove())
	}
	c, _, err := claimFile(movesClaim(j.Netns), "the addresses of the network namespace")
	if c == nil || err != nil {
		return nil, err // if c is nil, a process is moving addresses
	}
	defer c.Close()
	space := f.cookie(j.Netns)
	if space == nil {
		return nil, nil
	}
	err = space.Do(func() error {
		if j, err = readJournal(path); err != nil {
			return err
		}
		done, err = j.repair()
		return err
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return done, err
}

// repair ends the move in the network namespace of the calling thread.
func (j *journal) repair() ([]string, error) {
	m, err := NewMover()
	if err != nil {
		return nil, err
	}
	defer m.Close()
	to, err := m.net.LinkAt(j.To.Index)
	if errors.Is(err, ErrNoLink) {
		return m.giveBack(j)
	}
	if err != nil {
		return nil, err
	}
	j.To = to
	begun, err := m.begun(j)
	if err != nil {
		return nil, err
	}
	if !begun {
		return []string{fmt.Sprintf("forgot a move of addresses from %s to %s that had not begun", j.From.Name, j.To.Name)}, j.remove()
	}
	return m.complete(j, fmt.Sprintf("completed the move of %s from %s to %s", list(j.What.IPs()), j.From.Name, j.To.Name))
}

// begun reports whether any address has left its place.
func (m *Mover) begun(j *journal) (bool, error) {
	from, err := m.net.holdings(j.From.Index)
	if err != nil {
		return false, err
	}
	to, err := m.net.holdings(j.To.Index)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(j.What.IPs(), func(a netip.Addr) bool { return to.find(a) != nil || from.find(a) == nil }), nil
}

// giveBack returns the addresses to the old interface.
func (m *Mover) giveBack(j *journal) ([]string, error) {
	from, err := m.net.LinkAt(j.From.Index)
	if errors.Is(err, ErrNoLink) {
		return []string{fmt.Sprintf("%s belong to no interface: %s and %s are gone", list(j.What.IPs()), j.From.Name, j.To.Name)}, j.remove()
	}
	if err != nil {
		return nil, err
	}
	back := *j
	back.To = from // to its own place: everything is added that is missing
	back.From.Index = 0
	return m.complete(&back, fmt.Sprintf("gave %s back to %s: %s is gone", list(j.What.IPs()), from.Name, j.To.Name))
}

// complete does all steps again, and makes all announcements.
func (m *Mover) complete(j *journal, line string) ([]string, error) {
	if err := m.net.upAt(j.To.Index); err != nil {
		return nil, fmt.Errorf("complete a move of addresses: %w", err)
	}
	j.every = true
	moved, err := m.execute(j)
	start := time.Now()
	for _, after := range announceAfter[1:] {
		time.Sleep(time.Until(start.Add(after)))
		err = errors.Join(err, m.announceAll(j.To, moved.Addresses))
	}
	if err != nil {
		return nil, err
	}
	return []string{line}, j.remove()
}

func list(addrs []netip.Addr) string {
	var words []string
	for _, a := range addrs {
		words = append(words, a.String())
	}
	return strings.Join(words, ", ")
}
