package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/scsi"
)

// Target is a target that a portal knows.
type Target struct {
	Name    string   `json:"name"`
	Portals []string `json:"portals"` // host:port
}

// Listing is a target with its logical units.
type Listing struct {
	Target
	Units []Unit `json:"luns"`
	Error string `json:"error,omitempty"` // why the units are not known
}

// Unit is a logical unit.
type Unit struct {
	LUN       uint16 `json:"lun"`
	Type      string `json:"type"`
	Vendor    string `json:"vendor"`
	Product   string `json:"product"`
	Octets    int64  `json:"octets,omitempty"` // disks only
	BlockSize uint32 `json:"block_size,omitempty"`
	Error     string `json:"error,omitempty"` // why the size is not known
}

// Targets are targets of a portal, and Listings are targets with their logical units.
type (
	Targets  []Target
	Listings []Listing
)

// Discover asks a portal for its targets.
func Discover(ctx context.Context, o Options, url string) (list Targets, err error) {
	err = o.reach(ctx, url, shallow, func(c iscsi.Config) (err error) {
		list, err = discover(ctx, url, c)
		return err
	})
	return list, err
}

func discover(ctx context.Context, url string, c iscsi.Config) (Targets, error) {
	found, err := iscsi.Discover(ctx, url, c)
	list := make(Targets, 0, len(found))
	for _, t := range found {
		list = append(list, Target{t.Name, t.Portals})
	}
	return list, err
}

// List asks the target of a URL, or all targets of a portal, for their logical units. The
// error says which targets and units have not answered. The list has them as well.
func List(ctx context.Context, o Options, url string) (list Listings, err error) {
	u, err := iscsi.ParseURL(url)
	if err != nil {
		return nil, err
	}
	err = o.reach(ctx, url, shallow, func(c iscsi.Config) error {
		targets := Targets{{u.Target, []string{u.Portal}}}
		if u.Target == "" {
			if targets, err = discover(ctx, url, c); err != nil {
				return err
			}
		}
		var all []error
		list = make(Listings, 0, len(targets))
		for _, t := range targets {
			l, err := units(ctx, at(url, t.portal(u.Portal), t.Name, 0), c)
			l.Target = t
			if err != nil {
				all = append(all, err)
			}
			list = append(list, l)
		}
		return errors.Join(all...)
	})
	return list, err
}

// portal returns the portal through which to use a target: asked if the target has it.
func (t *Target) portal(asked string) string {
	if len(t.Portals) == 0 || slices.Contains(t.Portals, asked) {
		return asked
	}
	return t.Portals[0]
}

// units asks a target for its logical units.
func units(ctx context.Context, url string, c iscsi.Config) (l Listing, err error) {
	l.Units = []Unit{}
	s, err := iscsi.DialSession(ctx, url, c)
	if err != nil {
		l.Error = err.Error()
		return l, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	buf := make([]byte, 8+8*4096)
	cdb := scsi.ReportLUNs(scsi.SelectUnits, uint32(len(buf)))
	b, err := ask(ctx, s, 0, cdb[:12], buf)
	if err != nil {
		l.Error = err.Error()
		return l, err
	}
	luns, missing, err := scsi.ParseLUNs(b)
	if err == nil && missing != 0 {
		err = fmt.Errorf("%s has %d logical units more than can be listed", s.Target(), missing)
	}
	for _, lun := range luns {
		n, ok := lun.Number()
		if !ok {
			continue // a unit that no URL can name
		}
		u, failed := describe(ctx, s, n)
		l.Units = append(l.Units, u)
		err = errors.Join(err, failed)
	}
	return l, err
}

// describe asks a logical unit what it is.
func describe(ctx context.Context, s *iscsi.Session, n uint16) (Unit, error) {
	u := Unit{LUN: n}
	q, err := standard(ctx, s, n)
	if err == nil {
		u.Type, u.Vendor, u.Product = q.Type.String(), q.Vendor, q.Product
	}
	if err == nil && q.Type == scsi.DiskDevice && q.Qualifier == scsi.Connected {
		var c scsi.Capacity
		c, err = capacity(ctx, s, n)
		u.Octets, u.BlockSize = c.Size(), c.BlockSize
	}
	if err != nil {
		u.Error = err.Error()
		err = fmt.Errorf("%s LUN %d: %w", s.Target(), n, err)
	}
	return u, err
}

// Print prints a line for each portal of each target, as iscsi-ls.
func (list Targets) Print(w io.Writer) error {
	for _, t := range list {
		if err := t.print(w); err != nil {
			return err
		}
	}
	return nil
}

func (t *Target) print(w io.Writer) error {
	for _, p := range t.Portals {
		if _, err := fmt.Fprintf(w, "Target:%s Portal:%s\n", t.Name, p); err != nil {
			return err
		}
	}
	return nil
}

// Print prints the targets, and a line for each logical unit, as iscsi-ls -s.
func (list Listings) Print(w io.Writer) error {
	for _, l := range list {
		if err := l.Target.print(w); err != nil {
			return err
		}
		for _, u := range l.Units {
			line := fmt.Sprintf("Lun:%-4d Type:%s", u.LUN, u.Type)
			if u.BlockSize != 0 {
				line += fmt.Sprintf(" (Size:%d Block:%d)", u.Octets, u.BlockSize)
			}
			if _, err := fmt.Fprintf(w, "%s %s %s\n", line, u.Vendor, u.Product); err != nil {
				return err
			}
		}
	}
	return nil
}
