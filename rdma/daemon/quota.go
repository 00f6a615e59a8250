package daemon

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Quota limits what one client can have. A zero means the default.
type Quota struct {
	PDs, Channels, CQs, QPs, SRQs, Regions, Windows int // numbers of objects

	IDs      int   // identifiers of the connection manager, with requests that wait for an answer
	Streams  int   // connections for events
	CQSlots  int   // completions that all CQs together hold
	Rings    int64 // octets of all rings
	Mapped   int64 // octets of regions
	InFlight int   // attempts to connect, to accept or to disconnect at a time
	Frames   int   // transmit frames that the QPs hold, for each queue of a port; more wait
}

// resource is something that a Quota limits.
type resource uint8

const (
	ofPDs resource = iota
	ofChannels
	ofCQs
	ofQPs
	ofSRQs
	ofRegions
	ofWindows
	ofIDs
	ofStreams
	ofCQSlots
	ofRings
	ofMapped
	ofInFlight
	ofFrames
	resources
)

// limits has a row for each resource: its name for people, its preset, and the error of a
// client that wants more.
var limits = [resources]struct {
	name   string
	preset int64
	errno  unix.Errno
}{
	ofPDs:      {"pds", 256, unix.EDQUOT},
	ofChannels: {"channels", 256, unix.EDQUOT},
	ofCQs:      {"cqs", 4096, unix.EDQUOT},
	ofQPs:      {"qps", 4096, unix.EDQUOT},
	ofSRQs:     {"srqs", 256, unix.EDQUOT},
	ofRegions:  {"regions", 65536, unix.EDQUOT},
	ofWindows:  {"windows", 4096, unix.EDQUOT},
	ofIDs:      {"ids", 8192, unix.EDQUOT},
	ofStreams:  {"streams", 256, unix.EDQUOT},
	ofCQSlots:  {"cqslots", 1 << 22, unix.ENOMEM},
	ofRings:    {"rings", 1 << 30, unix.ENOMEM},
	ofMapped:   {"mapped", 1 << 40, unix.ENOMEM},
	ofInFlight: {"inflight", 1024, unix.EAGAIN},
	ofFrames:   {"frames", 4096, 0}, // the engine enforces it: the QPs wait
}

// fields returns the limits of q in the order of resources.
func (q *Quota) fields() [resources]func(int64) int64 {
	number := func(p *int) func(int64) int64 {
		return func(v int64) int64 {
			if v != 0 {
				*p = int(v)
			}
			return int64(*p)
		}
	}
	octets := func(p *int64) func(int64) int64 {
		return func(v int64) int64 {
			if v != 0 {
				*p = v
			}
			return *p
		}
	}
	return [resources]func(int64) int64{
		ofPDs: number(&q.PDs), ofChannels: number(&q.Channels), ofCQs: number(&q.CQs), ofQPs: number(&q.QPs), ofSRQs: number(&q.SRQs),
		ofRegions: number(&q.Regions), ofWindows: number(&q.Windows), ofIDs: number(&q.IDs), ofStreams: number(&q.Streams),
		ofCQSlots: number(&q.CQSlots), ofRings: octets(&q.Rings), ofMapped: octets(&q.Mapped), ofInFlight: number(&q.InFlight), ofFrames: number(&q.Frames),
	}
}

// fill returns q with its defaults.
func (q Quota) fill() Quota {
	for i, field := range q.fields() {
		if field(0) == 0 {
			field(limits[i].preset)
		}
	}
	return q
}

// ParseQuota reads limits such as "qps=64,rings=16M". The names are those of QuotaNames.
// The letters K, M and G multiply by 2^10, 2^20 and 2^30. What is not named has its default.
func ParseQuota(text string) (Quota, error) {
	var q Quota
	fields := q.fields()
	for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' }) {
		name, value, _ := strings.Cut(part, "=")
		i := slices.Index(QuotaNames(), name)
		if i < 0 {
			return q, fmt.Errorf("quota %q: choose one of %s", name, strings.Join(QuotaNames(), ", "))
		}
		n, err := parseSize(value)
		if err != nil || n < 1 {
			return q, fmt.Errorf("quota %q: want %s=NUMBER, such as %s=64", part, name, name)
		}
		fields[i](n)
	}
	return q, nil
}

// QuotaNames returns the names of the limits.
func QuotaNames() (names []string) {
	for _, l := range limits {
		names = append(names, l.name)
	}
	return names
}

// QuotaDefaults returns a line for each limit: its name, its default, and the errno of a client
// that wants more. The errno is none if the client only waits.
func QuotaDefaults() (list []string) {
	for _, l := range limits {
		name := unix.ErrnoName(l.errno)
		if l.errno == 0 {
			name = "none"
		}
		list = append(list, fmt.Sprintf("%s %d %s", l.name, l.preset, name))
	}
	return list
}

func parseSize(text string) (int64, error) {
	shift := 0
	for i, letter := range []string{"K", "M", "G"} {
		if rest, ok := strings.CutSuffix(text, letter); ok {
			text, shift = rest, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(text, 10, 32)
	return n << shift, err
}

// account counts what a client has. It is safe for concurrent use.
type account struct {
	limit [resources]int64

	mu      sync.Mutex // guards the fields below; held briefly
	used    [resources]int64
	refused uint64
	last    resource // that was refused last, if refused is not 0
}

func newAccount(q Quota) *account {
	a := &account{}
	for i, field := range q.fields() {
		a.limit[i] = field(0)
	}
	return a
}

// quotaError says which limit a client has met.
type quotaError struct {
	what       resource
	limit, had int64
	wants      int64
}

func (e *quotaError) Error() string {
	return fmt.Sprintf("the client has %d of %d %s, and wants %d more: raise the quota with --quota %s=NUMBER", e.had, e.limit, limits[e.what].name, e.wants, limits[e.what].name)
}

func (e *quotaError) Unwrap() error { return limits[e.what].errno }

// take takes n of a resource, or returns a *quotaError.
func (a *account) take(r resource, n int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n < 0 || n > a.limit[r]-a.used[r] {
		a.refused, a.last = a.refused+1, r
		return &quotaError{r, a.limit[r], a.used[r], n}
	}
	a.used[r] += n
	return nil
}

// give gives n of a resource back.
func (a *account) give(r resource, n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used[r] -= n
}

// count returns what is in use.
func (a *account) count() [resources]int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.used
}

// refusals returns how often something was refused, and what was refused last.
func (a *account) refusals() (n uint64, last string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.refused != 0 {
		last = limits[a.last].name
	}
	return a.refused, last
}

// charge is what an object takes of an account.
type charge []struct {
	what resource
	n    int64
}

// takeAll takes all of c, or nothing.
func (a *account) takeAll(c charge) error {
	for i, part := range c {
		if err := a.take(part.what, part.n); err != nil {
			a.giveAll(c[:i])
			return err
		}
	}
	return nil
}

func (a *account) giveAll(c charge) {
	for _, part := range c {
		a.give(part.what, part.n)
	}
}
