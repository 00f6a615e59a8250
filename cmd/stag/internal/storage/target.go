package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/rdma"
)

// TargetOptions describe a target.
type TargetOptions struct {
	Options
	Name      string // iSCSI name
	Portal    string // host:port; an empty host means every address
	Media     []Medium
	ReadOnly  bool
	BlockSize int // 512 or 4096
	Sessions  int // most sessions
	Digests   bool
	Allow     []string       // patterns of names of initiators; empty: all
	From      []netip.Prefix // addresses of initiators; empty: all
}

// Served says what a target serves.
type Served struct {
	Name   string `json:"name"`
	Portal string `json:"portal"` // host:port at which it listens
	Path   string `json:"path"`
	CHAP   bool   `json:"chap"` // initiators must log in with a secret
	LUNs   []Disk `json:"luns"`
}

// Disk is a logical unit of a target.
type Disk struct {
	LUN       uint16 `json:"lun"`
	Medium    string `json:"medium"`
	Octets    int64  `json:"octets"`
	BlockSize int    `json:"block_size"`
	ReadOnly  bool   `json:"read_only"`
}

// Print prints what a target serves.
func (s Served) Print(w io.Writer) error {
	lines := fmt.Sprintf("Target %s at %s over %s until Ctrl-C.\n", s.Name, s.Portal, s.Path)
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
		t.LUNs[m.LUN] = iscsi.LUN{Backend: b, BlockSize: o.BlockSize, ReadOnly: o.ReadOnly}
		s.LUNs = append(s.LUNs, Disk{LUN: m.LUN, Medium: m.String(), Octets: b.Size(), BlockSize: o.BlockSize, ReadOnly: o.ReadOnly})
	}
	a, err := o.open(o.Sessions * (servedDepth + servedMore))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return o.serve(ctx, a, t, s, ready)
}

// serve runs the server of the target.
func (o *TargetOptions) serve(ctx context.Context, a *rdma.Adapter, t iscsi.TargetConfig, s Served, ready func(Served) error) error {
	server, err := iscsi.Serve(ctx, iscsi.ServerConfig{
		Adapter: a, Address: o.Portal, Targets: []iscsi.TargetConfig{t}, Depth: servedDepth, MaxSessions: o.Sessions, Wishes: o.wishes(), Log: o.Log,
	})
	if err != nil {
		return err
	}
	s.Portal = server.Addr().String()
	err = ready(s)
	if err == nil {
		err = lasts(ctx, a)
	}
	return errors.Join(err, server.Close())
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
