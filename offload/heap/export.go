package heap

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/stag-rdma/stag/offload/pack"
)

// state says which parts of a shared heap are handed out.
type state struct {
	size  uint64
	fresh uint64
	parts []partState
}

// partState is a part that is handed out.
type partState struct {
	at, size uint64
	regions  uint32
}

var stateFormat = pack.Format{Name: "heap", Kind: 0x48454150, Version: 1}

func (s *state) code(c *pack.Coder) {
	pack.Uint(c, &s.size)
	pack.Uint(c, &s.fresh)
	pack.List(c, &s.parts, 1<<24, func(c *pack.Coder, p *partState) {
		pack.Uint(c, &p.at)
		pack.Uint(c, &p.size)
		pack.Uint(c, &p.regions)
	})
}

// Export returns which parts are handed out, for a process that maps the file of the heap
// (Inherit) and continues. The heap is unchanged.
func (h *Heap) Export() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := &state{size: uint64(len(h.mem)), fresh: h.fresh}
	for _, p := range h.parts {
		s.parts = append(s.parts, partState{p.at, p.size, uint32(p.regions)})
	}
	return stateFormat.Encode(nil, s.code)
}

// Restore makes the parts of Export those of an inherited heap, which has none, and the
// rest free. Hand returns the parts. After an error the heap must not be used. The error is
// pack.ErrCorrupt or pack.ErrVersion.
func (h *Heap) Restore(exported []byte) error {
	s := new(state)
	err := stateFormat.Decode(exported, s.code)
	if err == nil {
		err = h.restore(s)
	}
	if err != nil {
		return fmt.Errorf("restore region heap: %w", err)
	}
	return nil
}

func (h *Heap) restore(s *state) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.size != uint64(len(h.mem)) || s.fresh > s.size || len(h.parts) != 0 {
		return fmt.Errorf("%w: %d octets, %d of them used, and this heap has %d", pack.ErrCorrupt, s.size, s.fresh, len(h.mem))
	}
	h.free = nil
	end := uint64(0)
	for _, p := range s.parts {
		if p.at < end || p.size == 0 || p.at%PageSize != 0 || p.size%PageSize != 0 || p.at > s.fresh || p.size > s.fresh-p.at || p.regions == 0 || p.regions > 1<<30 {
			h.parts = nil
			return fmt.Errorf("%w: a part of %d octets at %d, behind one that ends at %d", pack.ErrCorrupt, p.size, p.at, end)
		}
		if p.at > end {
			h.free = append(h.free, span{end, p.at - end})
		}
		h.parts = append(h.parts, &Part{h: h, at: p.at, size: p.size, regions: int(p.regions)})
		end = p.at + p.size
	}
	if end < s.size {
		h.free = append(h.free, span{end, s.size - end})
	}
	h.fresh = s.fresh
	return nil
}

// Hand returns n octets at an offset of the heap, and the part that contains them. The
// caller must release the part: of the regions that the part counts, one is the caller's.
// The error is ErrNotAllocated.
func (h *Heap) Hand(at, n uint64) ([]byte, *Part, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	i, exact := slices.BinarySearchFunc(h.parts, at, func(p *Part, at uint64) int { return cmp.Compare(p.at, at) })
	if !exact {
		i--
	}
	if i < 0 || at-h.parts[i].at > h.parts[i].size || n > h.parts[i].size-(at-h.parts[i].at) {
		return nil, nil, ErrNotAllocated
	}
	return h.mem[at : at+n : at+n], h.parts[i], nil
}

// Offset returns the offset in the heap of the first octet of mem, which must be in it.
func (h *Heap) Offset(mem []byte) uint64 { return h.offset(mem) }

// Of reports whether the part is one of h.
func (p *Part) Of(h *Heap) bool { return p.h == h }
