package iscsi

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/iscsi/unit"
	"github.com/stag-rdma/stag/rdma"
)

// ServerConfig is the configuration of a Server. The zero value of each optional field
// works.
type ServerConfig struct {
	// Adapter is the adapter whose ports or kernel port the connections use. nil: Serve
	// opens an adapter over the kernel's TCP, and Close closes it. That adapter has no control
	// socket, so `stag show` does not see it.
	Adapter *rdma.Adapter

	// Address is the portal: "host:port". An empty host means every address. Empty means
	// ":3260". With "iser://" in front, the portal accepts connections of iSER (RFC 7145) and no
	// others. Data then moves by RDMA Write and RDMA Read, and there are no digests: MPA has its
	// own. Targets, rules and limits are the same.
	Address string
	Portals []PortalConfig
	Targets []TargetConfig

	// Access has the asymmetric access states (ALUA) of target portal groups at the start, by
	// tag. A group that is not there is active/optimized. Server.SetAccess changes a state.
	// ExplicitAccess lets initiators change them too, by SET TARGET PORT GROUPS.
	Access         map[uint16]AccessState
	ExplicitAccess bool

	Depth        int           // commands of one session that may be in progress; 0 means 128
	Memory       int           // octets for data that no backend lends; 0 means 64 MiB
	MaxSessions  int           // normal sessions, and as many discovery sessions; 0 means 1024
	MaxLogins    int           // logins in progress; 0 means 64
	LoginTimeout time.Duration // 0 means 15 s
	Workers      int           // goroutines that wait for backends; 0 means 32
	Ping         time.Duration // silence of an initiator before a ping, and after it before the end of the session; 0 means 10 s
	Wishes       Wishes        // what the targets want in the negotiation
	Log          *slog.Logger  // nil: no log
}

// PortalConfig is a portal besides ServerConfig.Address: another way to all targets.
type PortalConfig struct {
	Address string // "host:port", or "iser://host:port"

	// Group is the tag of the portal's target portal group. Portals of one group are one
	// target port for SCSI: they have one access state. 0 means TargetConfig.PortGroup.
	Group uint16
}

// Wishes are what a target wants in the negotiation of a login.
type Wishes = login.Wishes

// Digest is a kind of digest, for Wishes.
type Digest = login.Digest

// Digests.
const (
	NoDigest = login.NoDigest
	CRC32C   = login.CRC32C
)

// TaskReporting is how a target reports tasks that a task management function ends, for
// Wishes.
type TaskReporting = login.TaskReporting

// Kinds of TaskReporting (RFC 7143 §13.23).
const (
	RFC3720       = login.RFC3720
	ResponseFence = login.ResponseFence
	FastAbort     = login.FastAbort
)

// AccessState is the asymmetric access state of a target portal group (SPC-4 §5.15.2).
type AccessState = scsi.AccessState

// Access states. Commands to the medium work in the first two.
const (
	AccessOptimized     = scsi.Optimized
	AccessNonOptimized  = scsi.NonOptimized
	AccessStandby       = scsi.Standby
	AccessUnavailable   = scsi.Unavailable
	AccessTransitioning = scsi.Transition
)

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
	Backend                   backend.Backend // the caller closes it after the Server
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
	if w := &c.Wishes; w.ErrorRecoveryLevel > 1 || w.AnyPDUOrder || w.RDMA {
		errs = append(errs, errors.New("a target has error recovery level 0 or 1, data in order, and no RDMA: leave these fields of Wishes at zero"))
	}
	errs = append(errs, c.fillConnections())
	if c.Ping < 0 {
		errs = append(errs, fmt.Errorf("Ping is %v: choose more than 0", c.Ping))
	}
	if len(c.Targets) == 0 {
		errs = append(errs, errors.New("no target: set Targets"))
	}
	for i := range c.Targets {
		errs = append(errs, c.Targets[i].fill())
	}
	return errors.Join(append(errs, c.checkAccess())...)
}

// groups returns the tags of the portal groups through which a target is reached.
func (t *TargetConfig) groups(c *ServerConfig) map[uint16]bool {
	tags := map[uint16]bool{t.PortGroup: true}
	for _, p := range c.Portals {
		if p.Group != 0 {
			tags[p.Group] = true
		}
	}
	return tags
}

// unitGroups returns the target port groups of the units of a target.
func (c *ServerConfig) unitGroups(t *TargetConfig) (groups []unit.PortGroup) {
	for _, tag := range slices.Sorted(maps.Keys(t.groups(c))) {
		groups = append(groups, unit.PortGroup{Tag: tag, State: c.Access[tag]})
	}
	return groups
}

// checkAccess reports access states of groups that no portal has.
func (c *ServerConfig) checkAccess() error {
	tags := map[uint16]bool{}
	for i := range c.Targets {
		maps.Copy(tags, c.Targets[i].groups(c))
	}
	var errs []error
	for tag := range c.Access {
		if !tags[tag] {
			errs = append(errs, fmt.Errorf("the access state of target portal group %d: no portal has this group", tag))
		}
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
func (l *LUN) newUnit(s *ServerConfig, t *TargetConfig, number uint16, abort func(*unit.Nexus)) (*unit.Unit, error) {
	c := unit.Config{
		Backend: l.Backend, BlockSize: l.BlockSize, PhysicalExp: l.PhysicalExp, MaxTransfer: l.MaxTransfer,
		ReadOnly: l.ReadOnly, Removable: l.Removable, Vendor: l.Vendor, Product: l.Product, Revision: l.Revision,
		Serial: l.Serial, Target: t.Name, PortGroup: t.PortGroup, Abort: abort,
		Groups: s.unitGroups(t), ExplicitAccess: s.ExplicitAccess,
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
	u, err := unit.New(c)
	if err == nil && flow.BufferSize(u.MaxTransfer()) > s.Memory {
		err = fmt.Errorf("MaxTransfer is %d, whose buffer takes %d octets, and Memory is %d: choose less, or more Memory", u.MaxTransfer(), flow.BufferSize(u.MaxTransfer()), s.Memory)
	}
	return u, err
}

// writeFile replaces a file in one step, and makes the file and its name stable.
func writeFile(name string, b []byte) error {
	dir, err := os.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer dir.Close()
	f, err := os.CreateTemp(dir.Name(), ".reservations-*")
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
	return dir.Sync()
}
