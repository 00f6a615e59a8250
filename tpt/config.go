package tpt

import (
	"crypto/rand"
	"errors"
	"fmt"
	"math/bits"
)

// Config describes a table. The zero value works.
type Config struct {
	// Entries is how many the table has: a power of two, 2 to 16777216. 0
	// means as many as Memory has, or 65536. Entry 0 is never given out.
	Entries uint32

	// Memory is the memory of the table: a mapped BPF array, page aligned, of
	// exactly Entries * EntryLen octets, which stays mapped as long as the table is
	// used. New frees the entries that an earlier owner left there; their STags are
	// not used again soon. nil: New allocates memory.
	Memory []byte

	// Heap is the region heap. Regions within it need no side table, and their
	// offsets are the same in every process that maps it. nil: there is none.
	Heap []byte

	// MaxPiece bounds the pieces that Check and Next return, in octets, for tests of
	// their callers. 0: a piece is as long as its octets are contiguous.
	MaxPiece uint32

	PerPD uint32 // entries that one protection domain may have; 0: all
	Owner uint16 // number of the writer of this table's entries, for tools

	// Seed determines keys and the order of the entries. All zero: they come from the
	// system's randomness, as they must outside of tests.
	Seed [32]byte
}

const (
	defaultEntries = 1 << 16
	maxEntries     = 1 << 24 // an STag has 24 bits of index
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
	if uint64(len(c.Heap)) >= 1<<spaceShift {
		errs = append(errs, fmt.Errorf("heap of %d octets: want less than 2^%d", len(c.Heap), spaceShift))
	}
	if c.PerPD == 0 {
		c.PerPD = c.Entries
	}
	if c.Seed == [32]byte{} {
		if _, err := rand.Read(c.Seed[:]); err != nil {
			errs = append(errs, fmt.Errorf("read the system's randomness: %w", err))
		}
	}
	return c, errors.Join(errs...)
}
