package iscsi

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/stag-rdma/stag/offload/report"
)

// units returns the units that servers of the adapter have, and those that its initiators
// have opened.
func (s *snapshot) units(rows []report.Session) (all []report.LUN) {
	s.mu.Lock()
	for server := range s.servers {
		all = append(all, server.units()...)
	}
	s.mu.Unlock()
	for i, x := range s.seen {
		if x.disks == nil {
			continue
		}
		for _, l := range x.disks() {
			l.Role, l.Target, l.Session, l.Sessions = report.Initiator, rows[i].Target, rows[i].Number, 1
			all = append(all, l)
		}
	}
	slices.SortStableFunc(all, func(x, y report.LUN) int {
		return cmp.Or(cmp.Compare(x.Target, y.Target), cmp.Compare(x.LUN, y.LUN))
	})
	return all
}

// units describes the units of a server.
func (s *Server) units() (all []report.LUN) {
	sessions := map[*target]int{}
	s.mu.Lock()
	for _, e := range s.sessions {
		sessions[e.target]++
	}
	s.mu.Unlock()
	for _, t := range s.targets {
		for id, l := range t.luns {
			c := t.LUNs[uint16(id>>48)]
			held := l.unit.Reservation()
			row := report.LUN{
				Role: report.Target, Target: t.Name, LUN: uint16(id >> 48), Octets: uint64(c.Backend.Size()), BlockSize: cmp.Or(c.BlockSize, 512),
				ReadOnly: c.ReadOnly, Serial: cmp.Or(c.Serial, fmt.Sprint(id>>48)), Sessions: sessions[t],
				Backend: backendName(c.Backend), Reservation: held.Type, Registered: held.Registered,
			}
			if held.Holder != "" {
				row.Reservation += " of " + held.Holder
			}
			all = append(all, row)
		}
	}
	return all
}

// backendName returns what a backend says of itself, or the name of its type.
func backendName(b any) string {
	if s, ok := b.(fmt.Stringer); ok {
		return s.String()
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", b), "*")
}

// describe sets what is known of a connection since its last login.
func (c *sessionConn) describe(r *report.Session) {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &c.params
	r.Initiator, r.Target, r.ISID, r.TSIH = s.cfg.InitiatorName, s.url.Target, fmt.Sprintf("%x", s.isid[:]), p.TSIH
	r.CID = c.cid
	r.HeaderDigest, r.DataDigest = p.Digests.Header, p.Digests.Data
	if s.url.chap != nil {
		r.User = s.url.chap.User
	}
	r.LUNs = []uint16{}
	for _, d := range s.disks {
		r.LUNs = append(r.LUNs, d.lun)
	}
}

// units describes the disks that the session has opened.
func (s *Session) units() (all []report.LUN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.disks {
		all = append(all, report.LUN{
			LUN: d.lun, Octets: uint64(d.capacity.Size()), BlockSize: int(d.capacity.BlockSize),
			Backend: strings.TrimSpace(strings.TrimSpace(d.identity.Vendor) + " " + strings.TrimSpace(d.identity.Product)), Serial: strings.TrimSpace(d.identity.Serial),
		})
	}
	return all
}

// describe sets what does not change during a session.
func (e *connection) describe(r *report.Session) {
	p := &e.params
	r.Initiator, r.Target, r.ISID, r.TSIH, r.User = e.key.initiator, e.target.Name, fmt.Sprintf("%x", e.key.isid[:]), e.handle, e.user
	r.CID = p.CID
	r.HeaderDigest, r.DataDigest = p.Digests.Header, p.Digests.Data
	r.LUNs = []uint16{}
	for _, id := range e.allowed() {
		r.LUNs = append(r.LUNs, uint16(id>>48))
	}
}
