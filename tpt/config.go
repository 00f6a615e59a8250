package tpt

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// Config describes a table. The zero value selects the defaults.
type Config struct {
	// Entries is the number of entries: a power of two, 2 to 16777216. 0 means as many
	// as Memory has or, without Memory, 65536. Entry 0 is never used.
	Entries uint32

	// Memory is the memory of the table: a mapped BPF array, page aligned, of exactly
	// Entries * EntryLen octets. It must stay mapped as long as the table is used. New
	// frees the entries that an earlier owner left there, and does not reuse their
	// STags soon. If Memory is nil, New allocates memory.
	Memory []byte

	// Keep says that Memory belongs to a running process, which this one continues. New then
	// leaves the entries as they are. Nothing can be registered before Restore and Continue.
	Keep bool

	// Pages is how many pages all page lists together can have, about: 1 to 268435456. A
	// list of more than 512 pages takes one more place for each 512 pages. 0 means as
	// many as PageMemory has or, without PageMemory, as many as there are entries, and
	// at least 1024.
	Pages uint32

	// PageMemory is the memory of the page lists: a mapped BPF array, page aligned, of
	// exactly Pages * PageEntryLen octets. If it is nil, New allocates memory.
	PageMemory []byte

	// Heap is the region heap, or nil. Regions in the heap need no side table. Their
	// offsets are the same in every process that maps the heap.
	Heap []byte

	// MaxPiece limits the pieces that Check and Next return, in octets. It is for tests
	// of callers. 0 means that a piece contains all contiguous octets.
	MaxPiece uint32

	PerPD      uint32 // limit of entries of one protection domain; 0 means no limit
	PagesPerPD uint32 // limit of places for pages of one protection domain; 0 means no limit

	Owner uint16 // number of the process that writes the table; entries record it

	// Group says which part of Memory belongs to this process, if several processes share
	// the table. nil: all of it.
	Group *Group

	// Seed determines the keys and the order of the entries, for tests. If Seed is all
	// zero, New takes random octets from the system, as it must in production.
	Seed [32]byte
}

const (
	defaultEntries = 1 << 16
	maxEntries     = 1 << 24 // an STag has 24 bits of index
	minPages       = 1024
	maxPages       = 1 << 28
)

func (c Config) fill() (Config, error) {
	var errs []error
	if c.Entries == 0 && c.Memory != nil && len(c.Memory)/EntryLen <= maxEntries {
		c.Entries = uint32(len(c.Memory) / EntryLen)
	} else if c.Entries == 0 {
		c.Entries = defaultEntries
	}
	if c.Entries < 2 || c.Entries > maxEntries || bits.OnesCount32(c.Entries) != 1 {
		errs = append(errs, fmt.Errorf("table of %d entries: want a power of two, 2 to %d", c.Entries, maxEntries))
	}
	if c.Memory != nil && uint64(len(c.Memory)) != uint64(c.Entries)*EntryLen {
		errs = append(errs, fmt.Errorf("table of %d entries in %d octets of memory: give it %d", c.Entries, len(c.Memory), uint64(c.Entries)*EntryLen))
	}
	errs = append(errs, c.fillPages(), c.Group.check(&c))
	if uint64(len(c.Heap)) >= 1<<spaceShift {
		errs = append(errs, fmt.Errorf("heap of %d octets: want less than 2^%d", len(c.Heap), spaceShift))
	}
	if c.PerPD == 0 {
		c.PerPD = c.Entries // with a Group, its share limits the domain
	}
	if c.PagesPerPD == 0 {
		c.PagesPerPD = math.MaxUint32
	}
	if c.Seed == [32]byte{} {
		if _, err := rand.Read(c.Seed[:]); err != nil {
			errs = append(errs, fmt.Errorf("read the system's randomness: %w", err))
		}
	}
	return c, errors.Join(errs...)
}

// fillPages sets the number of places for pages.
func (c *Config) fillPages() error {
	if c.Pages == 0 && c.PageMemory != nil && len(c.PageMemory)/PageEntryLen <= maxPages {
		c.Pages = uint32(len(c.PageMemory) / PageEntryLen)
	} else if c.Pages == 0 {
		c.Pages = max(minPages, c.Entries)
	}
	switch {
	case c.Pages == 0 || c.Pages > maxPages:
		return fmt.Errorf("%d places for pages: want 1 to %d", c.Pages, maxPages)
	case c.PageMemory != nil && uint64(len(c.PageMemory)) != uint64(c.Pages)*PageEntryLen:
		return fmt.Errorf("%d places for pages in %d octets of memory: give them %d", c.Pages, len(c.PageMemory), uint64(c.Pages)*PageEntryLen)
	}
	return nil
}

// att returns the memory of the page lists.
func (c *Config) att() (att, error) {
	if c.PageMemory == nil {
		return make(att, c.Pages), nil
	}
	return attAt(c.PageMemory)
}
