package iscsi

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path"
	"strings"
	"time"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/rdma"
)

// ServerConfig is the configuration of a Server. The zero value of each optional field
// works.
type ServerConfig struct {
	// Adapter is the adapter whose ports or kernel port the connections use. nil: Serve
	// opens an adapter over the kernel's TCP, and Close closes it.
	Adapter *rdma.Adapter

	Address string // "host:port"; an empty host means every address; empty means ":3260"
	Targets []TargetConfig

	Depth        int           // commands of one session that may be in progress; 0 means 128
	Memory       int           // octets for data that no backend lends; 0 means 64 MiB
	MaxSessions  int           // 0 means 1024
	MaxLogins    int           // logins in progress; 0 means 64
	LoginTimeout time.Duration // 0 means 15 s
	Workers      int           // goroutines that wait for backends; 0 means 32
	Ping         time.Duration // silence of an initiator before a ping, and after it before the end of the session; 0 means 10 s
	Wishes       login.Wishes  // what the targets want in the negotiation
	Log          *slog.Logger  // nil: no log
}

// TargetConfig is a target: a name with logical units.
type TargetConfig struct {
	Name      string // iqn.…, eui.… or naa.…
	Alias     string
	PortGroup uint16         // tag of the target portal group; 0 means 1
	LUNs      map[uint16]LUN // 0 to 255

	// Users are the names and secrets by which initiators authenticate (CHAP), each of 12
	// octets or more. Empty: initiators do not authenticate. User and Secret are by which
	// the target proves who it is, if an initiator asks for that.
	Users        map[string]string
	User, Secret string

	// Access says who may use what. Empty: everybody may use everything.
	Access []Rule
}

// LUN is a logical unit. The fields are those of unit.Config.
type LUN struct {
	Backend                   unit.Backend // the caller closes it after the Server
	BlockSize                 int
	PhysicalExp               byte
	MaxTransfer               int
	ReadOnly, Removable       bool
	Vendor, Product, Revision string
	Serial                    string // empty: the LUN's number

	// Reservations is the file in which persistent reservations outlive the process. Empty:
	// they do not.
	Reservations string
}

// Rule permits initiators the use of logical units. All conditions that are set must hold.
type Rule struct {
	Initiator string       // name, or a pattern of package path
	Prefix    netip.Prefix // of the initiator's address
	User      string       // that the initiator has proven by CHAP
	LUNs      []uint16     // empty means all
}

// fill sets the defaults and reports all mistakes.
func (c *ServerConfig) fill() error {
	or := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	or(&c.Depth, 128)
	or(&c.Memory, 64<<20)
	or(&c.MaxSessions, 1024)
	or(&c.MaxLogins, 64)
	or(&c.Workers, 32)
	if c.LoginTimeout == 0 {
		c.LoginTimeout = 15 * time.Second
	}
	if c.Ping == 0 {
		c.Ping = 10 * time.Second
	}
	if c.Address == "" {
		c.Address = ":" + login.DefaultPort
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	var errs []error
	for _, n := range []struct {
		name        string
		value       int
		least, most int
	}{
		{"Depth", c.Depth, 1, 1024}, {"Memory", c.Memory, 16 << 20, 1 << 40}, {"MaxSessions", c.MaxSessions, 1, 65535},
		{"MaxLogins", c.MaxLogins, 1, 65535}, {"Workers", c.Workers, 1, 4096},
	} {
		if n.value < n.least || n.value > n.most {
			errs = append(errs, fmt.Errorf("%s is %d: choose %d to %d", n.name, n.value, n.least, n.most))
		}
	}
	if w := &c.Wishes; w.ErrorRecoveryLevel != 0 || w.MaxConnections > 1 || w.AnyPDUOrder || w.RDMA {
		errs = append(errs, errors.New("a target has error recovery level 0, one connection in a session, data in order, and no RDMA: leave these fields of Wishes at zero"))
	}
	if c.Ping < 0 {
		errs = append(errs, fmt.Errorf("Ping is %v: choose more than 0", c.Ping))
	}
	if len(c.Targets) == 0 {
		errs = append(errs, errors.New("no target: set Targets"))
	}
	for i := range c.Targets {
		errs = append(errs, c.Targets[i].fill())
	}
	return errors.Join(errs...)
}

// fill sets the defaults of a target and reports all mistakes.
func (t *TargetConfig) fill() error {
	var errs []error
	t.Name = strings.ToLower(t.Name)
	t.PortGroup = max(t.PortGroup, 1)
	if !validName(t.Name) {
		errs = append(errs, fmt.Errorf("target name %q: use iqn.YEAR-MONTH.DOMAIN:NAME", t.Name))
	}
	for number := range t.LUNs {
		if number > 255 {
			errs = append(errs, fmt.Errorf("target %s: LUN %d: use 0 to 255", t.Name, number))
		}
	}
	for user, secret := range t.Users {
		if len(secret) < login.MinSecret {
			errs = append(errs, fmt.Errorf("target %s: the secret of user %q has less than %d octets", t.Name, user, login.MinSecret))
		}
		if secret == t.Secret {
			errs = append(errs, fmt.Errorf("target %s: user %q and the target have the same secret", t.Name, user))
		}
	}
	if t.Secret != "" && len(t.Secret) < login.MinSecret {
		errs = append(errs, fmt.Errorf("target %s: its secret has less than %d octets", t.Name, login.MinSecret))
	}
	for _, r := range t.Access {
		if _, err := path.Match(r.Initiator, ""); err != nil {
			errs = append(errs, fmt.Errorf("target %s: pattern %q: %w", t.Name, r.Initiator, err))
		}
	}
	return errors.Join(errs...)
}

// validName reports whether a name has one of the formats of RFC 7143 §4.2.7.
func validName(s string) bool {
	if len(s) > 223 || strings.ContainsAny(s, " \x00/,=") {
		return false
	}
	for _, prefix := range []string{"iqn.", "eui.", "naa."} {
		if strings.HasPrefix(s, prefix) && len(s) > len(prefix) {
			return true
		}
	}
	return false
}

// admits reports whether the rule holds for an initiator. anyUser is for the time before
// the authentication.
func (r *Rule) admits(initiator string, from netip.Addr, user string, anyUser bool) bool {
	if ok, _ := path.Match(r.Initiator, initiator); r.Initiator != "" && !ok {
		return false
	}
	if r.Prefix.IsValid() && !r.Prefix.Contains(from) {
		return false
	}
	return r.User == "" || anyUser || r.User == user
}

// newUnit makes the unit of a LUN.
func (l *LUN) newUnit(t *TargetConfig, number uint16, abort func(*unit.Nexus)) (*unit.Unit, error) {
	c := unit.Config{
		Backend: l.Backend, BlockSize: l.BlockSize, PhysicalExp: l.PhysicalExp, MaxTransfer: l.MaxTransfer,
		ReadOnly: l.ReadOnly, Removable: l.Removable, Vendor: l.Vendor, Product: l.Product, Revision: l.Revision,
		Serial: l.Serial, Target: t.Name, PortGroup: t.PortGroup, Abort: abort,
	}
	if l.Backend == nil {
		return nil, errors.New("no Backend")
	}
	if c.Serial == "" {
		c.Serial = fmt.Sprintf("%d", number)
	}
	if l.Reservations != "" {
		state, err := os.ReadFile(l.Reservations)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		c.State, c.Save = state, func(b []byte) error { return writeFile(l.Reservations, b) }
	}
	return unit.New(c)
}

// writeFile replaces a file in one step, and makes it stable.
func writeFile(name string, b []byte) error {
	f, err := os.CreateTemp(path.Dir(name), ".reservations-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
