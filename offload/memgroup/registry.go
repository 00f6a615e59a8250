package memgroup

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/tpt"
)

// Ranges is the number of processes that a group can have. Each has a range of the table.
const Ranges = tpt.MaxMembers

// These are the causes of errors, for errors.Is.
var (
	ErrFull = errors.New("the group is full")
	ErrName = errors.New("bad name")
)

// registry is the directory of a group:
//
//	lock       locked while a process changes the directory
//	state      see state
//	member-3   locked by the member with range 3; the text is its number and its pid
//	member-3.sock  where that member answers
//
// Only the user of the group can use the directory.
type registry struct{ name, dir string }

// state is the file state: lines of words.
//
//	entries 65536   entries of each range
//	next 8          number of the next member
//	pd 1 storage    number and name of a protection domain
type state struct {
	entries uint32
	next    uint16
	pds     []string // names; the number of a name is its index and one
}

// maxPDs limits the names of protection domains of a group.
const maxPDs = 4096

func newRegistry(name string) (*registry, error) {
	if err := CheckName(name); err != nil {
		return nil, fmt.Errorf("group %q: %w", name, err)
	}
	return &registry{name, filepath.Join(control.Dir(), "groups", name)}, nil
}

// CheckName returns an error unless name can be the name of a group or of its protection
// domain: 1 to 32 letters, digits and -_. without a dot at the beginning.
func CheckName(name string) error {
	ok := len(name) >= 1 && len(name) <= 32 && name[0] != '.'
	for _, c := range name {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("-_.", c))
	}
	if !ok {
		return fmt.Errorf("%w: choose 1 to 32 letters, digits and -_. with no dot in front", ErrName)
	}
	return nil
}

func (r *registry) makeDir() error {
	base := control.Dir()
	if base != loader.RuntimeDir {
		if err := loader.OwnDir(base); err != nil {
			return err
		}
	}
	if err := loader.OwnDir(filepath.Join(base, "groups")); err != nil {
		return err
	}
	return loader.OwnDir(r.dir)
}

func (r *registry) member(i int) string { return filepath.Join(r.dir, fmt.Sprintf("member-%d", i)) }
func (r *registry) socket(i int) string { return r.member(i) + ".sock" }

// load reads the state. A group without a state has had no member. The caller must hold
// the lock.
func (r *registry) load() (s state, err error) {
	text, err := os.ReadFile(filepath.Join(r.dir, "state"))
	if errors.Is(err, os.ErrNotExist) {
		return state{next: 1}, nil
	}
	if err != nil {
		return state{}, fmt.Errorf("read the state of group %s: %w", r.name, err)
	}
	if s, err = parseState(string(text)); err != nil {
		return state{}, fmt.Errorf("read the state of group %s: %w: end all its processes, and remove %s", r.name, err, r.dir)
	}
	return s, nil
}

func parseState(text string) (s state, err error) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		n := 0
		switch word {
		case "entries":
			n, err = fmt.Sscanf(rest, "%d", &s.entries)
		case "next":
			n, err = fmt.Sscanf(rest, "%d", &s.next)
		case "pd":
			var number int
			var name string
			n, err = fmt.Sscanf(rest, "%d %s", &number, &name)
			if err == nil && (number != len(s.pds)+1 || number > maxPDs || CheckName(name) != nil) {
				err = fmt.Errorf("line %q is out of place", lines.Text())
			}
			s.pds = append(s.pds, name)
		}
		if n == 0 || err != nil {
			return state{}, fmt.Errorf("line %q: %w", lines.Text(), errors.Join(err, errState))
		}
	}
	if s.next == 0 || s.entries == 0 {
		return state{}, errState
	}
	return s, lines.Err()
}

var errState = errors.New("it is not a state of a group")

// save writes the state. A process that ends within save leaves the old state. The caller
// must hold the lock.
func (r *registry) save(s state) error {
	var b strings.Builder
	fmt.Fprintf(&b, "entries %d\nnext %d\n", s.entries, s.next)
	for i, name := range s.pds {
		fmt.Fprintf(&b, "pd %d %s\n", i+1, name)
	}
	path := filepath.Join(r.dir, "state")
	err := os.WriteFile(path+".new", []byte(b.String()), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write the state of group %s: %w", r.name, err)
	}
	return nil
}

// seat is a member's place in the registry.
type seat struct {
	index  int      // of the range
	number uint16   // no other live member has it, and no recent one had it
	file   *os.File // locked while the process is a member
}

// sit gives this process a range and a number. A range whose process has ended counts as
// free. alone says that there is no other member. The caller must hold the lock.
func (r *registry) sit(s *state) (seat, bool, error) {
	mine, numbers, alone := seat{index: -1}, map[uint16]bool{}, true
	for i := range Ranges {
		if mine.file == nil {
			f, err := hold(r.member(i))
			if err != nil {
				return seat{}, false, errors.Join(fmt.Errorf("join group %s: %w", r.name, err))
			}
			if f != nil {
				mine.index, mine.file = i, f
				continue
			}
		}
		if number, _, live := r.read(i); live {
			numbers[number], alone = true, false
		}
	}
	if mine.file == nil {
		return seat{}, false, fmt.Errorf("join group %s: %w: it has %d processes: end one, or use another group", r.name, ErrFull, Ranges)
	}
	for numbers[s.next] || s.next == 0 {
		s.next++
	}
	mine.number = s.next
	if s.next++; s.next == 0 {
		s.next = 1
	}
	_, err := mine.file.WriteAt(fmt.Appendf(nil, "%5d %10d\n", mine.number, os.Getpid()), 0)
	if err != nil {
		return seat{}, false, errors.Join(fmt.Errorf("join group %s: %w", r.name, err), mine.file.Close())
	}
	return mine, alone, nil
}

// read returns the number and the pid of the member with range i. live is false if there is
// none, or if its process has ended.
func (r *registry) read(i int) (number uint16, pid int, live bool) {
	text, err := os.ReadFile(r.member(i))
	if err != nil || !held(r.member(i)) {
		return 0, 0, false
	}
	_, err = fmt.Sscanf(string(text), "%d %d", &number, &pid)
	return number, pid, err == nil && number != 0
}

// domain returns the number of the protection domain with this name.
func (r *registry) domain(name string) (tpt.PD, error) {
	if err := CheckName(name); err != nil {
		return 0, fmt.Errorf("protection domain %q: %w", name, err)
	}
	unlock, err := r.lock()
	if err != nil {
		return 0, err
	}
	defer unlock()
	s, err := r.load()
	if err != nil {
		return 0, err
	}
	for i, known := range s.pds {
		if known == name {
			return tpt.SharedPD | tpt.PD(i+1), nil
		}
	}
	if len(s.pds) == maxPDs {
		return 0, fmt.Errorf("protection domain %s: group %s has %d already: use one of them", name, r.name, maxPDs)
	}
	s.pds = append(s.pds, name)
	return tpt.SharedPD | tpt.PD(len(s.pds)), r.save(s)
}

// bury calls f for each range whose process has ended without leaving, and makes the range
// free. A range that a new process takes is not free any more. bury takes the lock only if there
// is such a range, because a process that is stopped while it holds the lock stops the group.
func (r *registry) bury(self int, f func(i int)) error {
	if len(r.dead(self)) == 0 {
		return nil
	}
	unlock, err := r.lock()
	if err != nil {
		return err
	}
	defer unlock()
	for _, i := range r.dead(self) {
		f(i)
		os.Remove(r.socket(i))
		os.Remove(r.member(i))
	}
	return nil
}

// dead returns the ranges of others whose process has ended without leaving.
func (r *registry) dead(self int) (list []int) {
	for i := range Ranges {
		if i == self {
			continue
		}
		if _, err := os.Stat(r.member(i)); err == nil && !held(r.member(i)) {
			list = append(list, i)
		}
	}
	return list
}

// stand gives the seat back. The last member removes the group.
func (r *registry) stand(s seat) error {
	unlock, err := r.lock()
	if err != nil {
		return errors.Join(err, s.file.Close())
	}
	defer unlock()
	os.Remove(r.socket(s.index))
	return errors.Join(os.Remove(r.member(s.index)), s.file.Close(), r.sweep())
}

// sweep removes the group if it has no member. The caller must hold the lock.
func (r *registry) sweep() error {
	for i := range Ranges {
		if _, _, live := r.read(i); live {
			return nil
		}
	}
	err := loader.RemoveGroupTable(r.name)
	for i := range Ranges {
		os.Remove(r.socket(i))
		os.Remove(r.member(i))
	}
	for _, name := range []string{"state", "state.new", "lock"} {
		os.Remove(filepath.Join(r.dir, name))
	}
	os.Remove(r.dir)
	return err
}

// entriesFor returns an error unless a range can have n entries.
func entriesFor(n uint32) error {
	if uint64(n)*Ranges > math.MaxUint32>>8+1 {
		return fmt.Errorf("%d regions for each of %d processes: set MaxRegions to at most %d", n-1, Ranges, (1<<24)/Ranges-1)
	}
	return nil
}
