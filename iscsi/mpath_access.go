package iscsi

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/stag-rdma/stag/iscsi/scsi"
)

// askGroup finds the target port group of the link. A unit without target port groups is
// active/optimized on all paths.
func (l *pathLink) askGroup(ctx context.Context) error {
	d := l.disk
	if d.tpgs == 0 {
		return nil
	}
	b, err := d.page(ctx, scsi.PageIdentification, make([]byte, 1024))
	if err != nil || b == nil {
		return err
	}
	all, err := scsi.ParseIdentification(b)
	if err != nil {
		return err
	}
	for _, x := range all {
		if x.Association == scsi.OfPort && x.Type == scsi.DesignatorPortGroup && len(x.Value) == 4 {
			l.group, l.implicit = binary.BigEndian.Uint16(x.Value[2:]), true
			l.explicit = d.tpgs&explicitTPGS != 0
		}
	}
	return nil
}

// explicitTPGS is the bit of TPGS that says that the unit has SET TARGET PORT GROUPS.
const explicitTPGS = 2

// longestGroups is the longest answer to REPORT TARGET PORT GROUPS that is read, in octets.
const longestGroups = 16 << 10

// refresh asks for the access state of the path: by TEST UNIT READY, and by REPORT TARGET
// PORT GROUPS if the unit has that.
func (l *pathLink) refresh(ctx context.Context) error {
	said, err := l.test(ctx)
	if err != nil {
		return err
	}
	prefer := false
	if l.implicit {
		cdb, buf := scsi.ReportTargetPortGroups(longestGroups), make([]byte, longestGroups)
		r, err := l.disk.command(ctx, cdb[:12], buf, nil)
		var status *StatusError
		if err != nil && !errors.As(err, &status) {
			return err
		}
		groups, _ := scsi.ParsePortGroups(buf[:r.Length]) // an answer that is no list has no group
		for _, g := range groups {
			if g.Number == l.group && said == AccessOptimized {
				said, prefer = g.State, g.Preferred
			}
		}
	}
	m := l.path.m
	m.mu.Lock()
	l.access, l.prefer = said, prefer
	m.mu.Unlock()
	return nil
}

// test executes TEST UNIT READY, and returns the access state that the answer shows. Any
// answer but NOT READY with a reason of the path means that the path gives access.
func (l *pathLink) test(ctx context.Context) (AccessState, error) {
	cdb := scsi.TestUnitReady()
	_, err := l.disk.command(ctx, cdb[:6], nil, nil)
	var status *StatusError
	if !errors.As(err, &status) {
		return AccessOptimized, err
	}
	if s, denied := accessOf(status.Status, status.Sense); denied {
		return s, nil
	}
	return AccessOptimized, nil
}

// accessOf returns the access state because of which a target port has refused a command.
func accessOf(status uint8, data []byte) (s AccessState, denied bool) {
	if scsi.Status(status) != scsi.CheckCondition {
		return 0, false
	}
	sense, err := scsi.ParseSense(data)
	if err != nil || sense.Key != scsi.NotReady {
		return 0, false
	}
	switch sense.Code {
	case scsi.AsymmetricTransition:
		return AccessTransitioning, true
	case scsi.TargetPortStandby:
		return AccessStandby, true
	case scsi.TargetPortUnavailable:
		return AccessUnavailable, true
	}
	return 0, false
}

// state returns the access state of the link.
func (l *pathLink) state() AccessState {
	l.path.m.mu.Lock()
	defer l.path.m.mu.Unlock()
	return l.access
}

func (l *pathLink) usable() bool { return rank(l.state()) < useless }

// Ranks of access states.
const (
	best = iota
	second
	useless
)

func rank(s AccessState) int {
	switch s {
	case AccessOptimized:
		return best
	case AccessNonOptimized:
		return second
	}
	return useless
}

// choose finds the links that commands may use: those of the best access state. The caller
// holds mu.
func (m *multipath) choose() {
	var chosen []*pathLink
	least := useless
	for _, p := range m.paths {
		if p.link == nil || !p.link.known {
			continue
		}
		switch r := rank(p.link.access); {
		case r < least:
			least, chosen = r, []*pathLink{p.link}
		case r == least && r != useless:
			chosen = append(chosen, p.link)
		}
	}
	if m.cfg.Policy == FailOver {
		slices.SortStableFunc(chosen, func(a, b *pathLink) int {
			switch {
			case a.prefer == b.prefer:
				return 0
			case a.prefer:
				return -1
			}
			return 1
		})
	}
	m.choice.Store(&chosen)
}

// pick returns the link for a command, or nil if the command must wait.
func (m *multipath) pick() *pathLink {
	if m.dirty.Load() {
		return nil
	}
	links := *m.choice.Load()
	if len(links) == 0 {
		return nil
	}
	from := 0
	if m.cfg.Policy == RoundRobin && len(links) > 1 {
		from = int(m.turn.Add(1) % uint32(len(links)))
	}
	var found *pathLink
	for i := range links {
		l := links[(from+i)%len(links)]
		if l.suspect.Load() {
			continue
		}
		if m.cfg.Policy != LeastQueueDepth {
			return l
		}
		if found == nil || l.flying.Load() < found.flying.Load() {
			found = l
		}
	}
	return found
}

// promote asks the unit to make the group of a link active, if no path is and the unit
// takes such requests.
func (m *multipath) promote() {
	for _, l := range m.links() {
		if !l.explicit || l.state() == AccessTransitioning {
			continue
		}
		b := scsi.AppendSetPortGroup(nil, l.group, AccessOptimized)
		cdb := scsi.SetTargetPortGroups(uint32(len(b)))
		ctx, stop := context.WithTimeout(m.life, checkTime)
		err := m.whileQuiet(ctx, func(ctx context.Context) error {
			_, err := l.disk.command(ctx, cdb[:12], nil, b)
			return err
		})
		stop()
		m.askAll()
		if err == nil {
			return
		}
		m.cfg.Log.Info("iscsi path", "path", l.path.name(), "set target port groups", err)
	}
}
