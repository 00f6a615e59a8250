package tpt

import (
	"errors"
	"math"
)

// Share makes another region over the memory of the valid region s of protection domain
// of. The new region has the translation of s, and its own protection domain, queue pair,
// start, rights and one touch, as r says (US 7,299,266, FIG. 14; InfiniBand vol. 1,
// Register Shared Memory Region). r.Memory and r.Pages must be nil. The translation is
// counted: it lasts until the last of its regions is deregistered, in any order. Errors:
// those of Register, and ErrSTag.
func (t *Table) Share(s STag, of PD, r Region) (STag, error) {
	if err := r.Rights.check(); err != nil {
		return 0, err
	}
	e, stag, err := t.lock(r.PD, KindRegion)
	if err != nil {
		return 0, err
	}
	f, err := t.joinTranslation(s, of, stag.Index(), r.PD)
	for errors.Is(err, ErrQuota) && t.await() {
		f, err = t.joinTranslation(s, of, stag.Index(), r.PD)
	}
	if err == nil && f.length-1 > math.MaxUint64-r.Start {
		err = fail(ErrMemory, "share %d octets from offset %#x: they reach past the largest offset: begin lower", f.length, r.Start)
	}
	if err != nil {
		e.fill(fields{pd: r.PD})
		t.free(stag.Index())
		return 0, err
	}
	f.start, f.owner, f.pd, f.qp, f.rights, f.oneTouch = r.Start, t.owner, r.PD, r.QP, r.Rights|LocalRead, r.OneTouch
	e.fill(f)
	e.publish(e.load().next(stag.Key(), KindRegion, wordValid))
	return stag, nil
}

// joinTranslation counts the entry at the index, which is of pd, as one more region over
// the translation of s. It returns the fields that describe the translation. The region
// s cannot lose its translation meanwhile, because forget needs mu.
func (t *Table) joinTranslation(s STag, of PD, index uint32, pd PD) (f fields, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain()
	e, ok := t.at(s)
	for ok {
		w, has := e.load(), PD(e.pd.Load())
		f = e.from(0)
		f.length = e.length.Load()
		first, size := t.external.at(s.Index())
		switch {
		case !e.unchanged(w):
			continue
		case !w.known(s) || w.kind() != KindRegion || !w.valid():
			ok = false
			continue
		case has != of:
			return fields{}, fail(ErrPD, "share STag %v of protection domain %d: it is in another one", s, of)
		}
		tr := t.translations[s.Index()]
		if tr != nil {
			if err := t.withinShare(pd, uint64(tr.places)); err != nil {
				return fields{}, err
			}
		}
		if f.kind == translationDirect && f.base>>spaceShift == spaceExternal {
			t.external.keep(index, octetsAt(first, size))
		}
		if tr == nil {
			tr = &translation{regions: 1}
			t.translations[s.Index()] = tr
		}
		tr.regions++
		t.pds[pd].places += tr.places
		t.translations[index] = tr
		return f, nil
	}
	return fields{}, fail(ErrSTag, "share STag %v: there is no valid region of that STag", s)
}

// sharing returns how many regions have the translation of the entry at the index, or 0
// if only this region has it.
func (t *Table) sharing(index uint32) uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drain()
	if tr := t.translations[index]; tr != nil && tr.regions > 1 {
		return uint32(tr.regions)
	}
	return 0
}
