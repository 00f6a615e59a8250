package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/rdma"
)

// TargetOptions describe a target.
type TargetOptions struct {
	Options
	Name      string   // iSCSI name
	Portals   []string // host:port of each; an empty host means every address; empty if ISER is not
	ISER      []string // host:port of the portals for iSER
	Media     []Medium
	ReadOnly  bool
	BlockSize int // 512 or 4096
	Sessions  int // most sessions
	Digests   bool
	Allow     []string       // patterns of names of initiators; empty: all
	From      []netip.Prefix // addresses of initiators; empty: all

	// Reservations is the directory that keeps persistent reservations for the next target
	// of this name, in a file for each LUN. Empty: reservations end with the target.
	Reservations string
}

// Served says what a target serves.
type Served struct {
	Name   string `json:"name"`
	Portal string `json:"portal,omitempty"` // host:port at which it listens first
	ISER   string `json:"iser,omitempty"`   // host:port at which it listens for iSER first
	Path   string `json:"path"`
	carrier.Fields

	MorePortals []string `json:"more_portals,omitempty"` // host:port at which it listens besides, behind iser:// if that is for iSER

	CHAP bool   `json:"chap"` // initiators must log in with a secret
	LUNs []Disk `json:"luns"`
}

// Disk is a logical unit of a target.
type Disk struct {
	LUN       uint16 `json:"lun"`
	Medium    string `json:"medium"`
	Octets    int64  `json:"octets"`
	BlockSize int    `json:"block_size"`
	ReadOnly  bool   `json:"read_only"`
}

// schemeISER begins the address of a portal for iSER.
const schemeISER = "iser://"

// Print prints what a target serves.
func (s Served) Print(w io.Writer) error {
	var at []string
	if s.Portal != "" {
		at = append(at, s.Portal)
	}
	if s.ISER != "" {
		at = append(at, schemeISER+s.ISER)
	}
	at = append(at, s.MorePortals...)
	lines := fmt.Sprintf("Target %s at %s over %s until Ctrl-C.\n", s.Name, strings.Join(at, " and "), s.Path)
	for _, d := range s.LUNs {
		lines += fmt.Sprintf("LUN %d: %s, %d octets, blocks of %d", d.LUN, d.Medium, d.Octets, d.BlockSize)
		if d.ReadOnly {
			lines += ", read only"
		}
		lines += "\n"
	}
	_, err := io.WriteString(w, lines)
	return err
}

// A session of the target takes this many table entries: for its commands, and more.
const (
	servedDepth = 128
	servedMore  = 16
)

// Serve serves a target until ctx ends. It calls ready when initiators can connect.
func Serve(ctx context.Context, o TargetOptions, ready func(Served) error) (err error) {
	s := Served{Name: strings.ToLower(o.Name), Path: o.Path(), CHAP: o.Secrets != ""}
	t, err := o.config()
	if err != nil {
		return err
	}
	for _, m := range o.Media {
		b, failed := m.open(ctx, o.ReadOnly)
		if failed != nil {
			return fmt.Errorf("LUN %d: %w", m.LUN, failed)
		}
		defer func() { err = errors.Join(err, closeMedium(b, o.ReadOnly)) }()
		t.LUNs[m.LUN] = iscsi.LUN{Backend: b, BlockSize: o.BlockSize, ReadOnly: o.ReadOnly, Reservations: o.reservations(s.Name, m.LUN)}
		s.LUNs = append(s.LUNs, Disk{LUN: m.LUN, Medium: m.String(), Octets: b.Size(), BlockSize: o.BlockSize, ReadOnly: o.ReadOnly})
	}
	heap, regions := uint64(regionHeap), o.Sessions*(servedDepth+servedMore)
	switch {
	case len(o.ISER) != 0:
		heap = iscsi.ISERHeap(o.Sessions, servedDepth)
	case len(o.Interfaces) == 0 && !o.Chooses(): // no command has an entry of the table
		regions = sessionRegions
	}
	a, err := o.openHeap(regions, heap)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	s.Path, s.Fields = o.Path(), o.carried
	return o.serve(ctx, a, t, s, ready)
}

// reservations returns the file for the persistent reservations of a LUN.
func (o *TargetOptions) reservations(target string, lun uint16) string {
	if o.Reservations == "" {
		return ""
	}
	return filepath.Join(o.Reservations, fmt.Sprintf("%s-lun%d.json", target, lun))
}

// serve runs the server of the target.
func (o *TargetOptions) serve(ctx context.Context, a *rdma.Adapter, t iscsi.TargetConfig, s Served, ready func(Served) error) error {
	c := iscsi.ServerConfig{
		Adapter: a, Targets: []iscsi.TargetConfig{t}, Depth: servedDepth, MaxSessions: o.Sessions, Wishes: o.wishes(), Log: o.Log,
	}
	for _, p := range o.Portals {
		c.Portals = append(c.Portals, iscsi.PortalConfig{Address: p})
	}
	for _, p := range o.ISER {
		c.Portals = append(c.Portals, iscsi.PortalConfig{Address: schemeISER + p})
	}
	c.Address, c.Portals = c.Portals[0].Address, c.Portals[1:]
	server, err := iscsi.Serve(ctx, c)
	if err != nil {
		return err
	}
	s.listens(server.Addrs(), len(o.Portals))
	err = ready(s)
	if err == nil {
		err = lasts(ctx, a)
	}
	return errors.Join(err, server.Close())
}

// listens notes where the target listens: the first tcp addresses are not for iSER.
func (s *Served) listens(all []netip.AddrPort, tcp int) {
	for i, a := range all {
		switch at := a.String(); {
		case i == 0 && tcp != 0:
			s.Portal = at
		case i < tcp:
			s.MorePortals = append(s.MorePortals, at)
		case i == tcp:
			s.ISER = at
		default:
			s.MorePortals = append(s.MorePortals, schemeISER+at)
		}
	}
}

// lasts returns when ctx ends, or with an error when the adapter has lost its last
// interface.
func lasts(ctx context.Context, a *rdma.Adapter) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-a.Events():
			if e.Type == rdma.DeviceFatal {
				return e.Err
			}
		}
	}
}

// wishes returns what the target accepts in the negotiation: the initiator chooses whether
// there are digests, unless the target demands them.
func (o *TargetOptions) wishes() login.Wishes {
	list := []login.Digest{login.CRC32C, login.NoDigest}
	if o.Digests {
		list = list[:1]
	}
	return login.Wishes{HeaderDigest: list, DataDigest: list}
}

// config returns the target without its disks.
func (o *TargetOptions) config() (iscsi.TargetConfig, error) {
	t := iscsi.TargetConfig{Name: o.Name, LUNs: map[uint16]iscsi.LUN{}, Access: o.rules()}
	if strings.Contains(o.Name, "/") {
		return t, fmt.Errorf("target name %q: names have no slash", o.Name)
	}
	if dir := o.Reservations; dir != "" {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return t, fmt.Errorf("--reservations %s: there is no such directory: make it with mode 700", dir)
		}
	}
	if o.Secrets == "" {
		return t, nil
	}
	s, err := readSecrets(o.Secrets)
	if err != nil {
		return t, err
	}
	t.Users, t.User, t.Secret = s.initiators, s.target[0], s.target[1]
	return t, nil
}

// rules permits each pattern of names from each prefix.
func (o *TargetOptions) rules() (rules []iscsi.Rule) {
	if len(o.Allow)+len(o.From) == 0 {
		return nil
	}
	names, prefixes := o.Allow, o.From
	if len(names) == 0 {
		names = []string{""}
	}
	if len(prefixes) == 0 {
		prefixes = []netip.Prefix{{}}
	}
	for _, n := range names {
		for _, p := range prefixes {
			rules = append(rules, iscsi.Rule{Initiator: n, Prefix: p})
		}
	}
	return rules
}

// closeMedium makes a medium stable and closes it.
func closeMedium(m backend.Medium, readOnly bool) error {
	var err error
	if !readOnly {
		err = m.Sync()
	}
	return errors.Join(err, m.Close())
}

// Portal returns host:port of what the command line says: ADDRESS, ADDRESS:PORT or :PORT.
func Portal(word string) (string, error) {
	host, port, err := net.SplitHostPort(word)
	if err != nil {
		host, port = strings.Trim(word, "[]"), iscsi.DefaultPort
	}
	if _, failed := net.LookupPort("tcp", port); failed != nil || strings.Contains(host, ":") && net.ParseIP(strings.SplitN(host, "%", 2)[0]) == nil {
		return "", fmt.Errorf("%q: write ADDRESS, ADDRESS:PORT or :PORT, as in 192.0.2.1:%s", word, iscsi.DefaultPort)
	}
	return net.JoinHostPort(host, port), nil
}
