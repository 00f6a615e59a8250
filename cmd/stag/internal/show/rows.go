package show

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

// Subjects are the names of what stag show can print.
var Subjects = []string{"devices", "flows", "qps", "mrs", "cqs", "srqs", "queues", "stats", "iscsi", "luns", "ports", "clients"}

// subject has the functions that select and make the rows of a subject.
type subject struct {
	match func(string) (match, error)
	rows  func([]engines.Source, want) list
	parts report.Parts // parts of an engine's report, in addition to the devices
}

var subjects = map[string]subject{
	"devices": {matchName, devices, 0},
	"flows":   {matchFlow, flows, report.PartFlows},
	"qps":     {matchNumber, qps, report.PartQPs},
	"mrs":     {matchSTag, mrs, report.PartMRs},
	"cqs":     {matchNumber, cqs, report.PartCQs},
	"srqs":    {matchNumber, srqs, report.PartSRQs},
	"queues":  {matchName, queues, report.PartQueues},
	"stats":   {matchName, stats, report.PartQueues | report.PartCounters},
	"iscsi":   {matchISCSI, sessions, report.PartISCSI},
	"luns":    {matchISCSI, luns, report.PartLUNs},
	"ports":   {matchName, ports, report.PartPorts},
	"clients": {matchClient, clients, report.PartClients},
}

// list has the rows of one subject. It is a slice of structs, from which flatten makes JSON.
type list interface {
	text(*page)
	len() int
}

// owner describes the engine of a row. All pointers are nil if no engine runs the device.
// Only PID is set if the engine does not answer.
type owner struct {
	PID     *int    `json:"pid"`
	UID     *int    `json:"uid"` // user that the engine runs as
	Program *string `json:"program"`
	Adapter *int    `json:"adapter"`
	Netns   uint64  `json:"netns"`                // cookie of the network namespace
	Space   string  `json:"netns_name,omitempty"` // name of the network namespace; "" if it is that of this process
}

// origin is an owner or, if there is none, the instance of the pinned program.
type origin struct {
	owner
	Instance string `json:"instance,omitempty"` // directory of the pinned objects
}

func ownerOf(s engines.Source) (o owner) {
	o.Netns, o.Space = s.Netns, s.Space
	if s.PID != 0 {
		o.PID = &s.PID
	}
	if s.Instance == "" {
		o.UID, o.Program, o.Adapter = &s.UID, &s.Program, &s.Adapter
	}
	return o
}

func originOf(s engines.Source) origin { return origin{ownerOf(s), s.Instance} }

// String prints the owner in the words of `rdma resource show`.
func (o owner) String() string {
	who := "no engine"
	switch {
	case o.PID == nil:
	case o.Program == nil:
		who = fmt.Sprintf("pid %d without an answer", *o.PID)
	default:
		who = report.Words(fmt.Sprint("pid ", *o.PID), o.user(), fmt.Sprintf("adapter %d comm %s", *o.Adapter, *o.Program))
	}
	return report.Words(who, report.Word("netns ", o.Space))
}

// user returns the user of an engine that another user runs, and "" for an engine of this user.
func (o owner) user() string {
	if *o.UID == os.Geteuid() {
		return ""
	}
	return fmt.Sprint("uid ", *o.UID)
}

// order sorts rows by owner. Rows without an owner come last.
func (o owner) order(p owner) int {
	if (o.PID == nil) != (p.PID == nil) {
		return cmp.Compare(deref(p.PID), deref(o.PID))
	}
	return cmp.Or(cmp.Compare(deref(o.PID), deref(p.PID)), cmp.Compare(deref(o.Adapter), deref(p.Adapter)))
}

func deref(p *int) int {
	if p == nil {
		return 0
	}
	return *p
}

// want selects rows.
type want struct {
	device string // name of a device; "": all devices
	match  match
}

// of reports whether rows of that device are wanted.
func (w want) of(device string) bool { return w.device == "" || w.device == device }

// has reports whether rows of the whole adapter are wanted.
func (w want) has(s engines.Source) bool {
	return w.device == "" || slices.ContainsFunc(s.Devices, func(d report.Device) bool { return d.Name == w.device })
}

// match is the selection of the command line. Each subject sets the members that it
// supports. The zero match selects everything.
type match struct {
	name   string         // name of a device
	part   string         // part of an iSCSI name
	number *uint32        // number of a QP, CQ, SRQ, session or LUN, or id of a flow
	stag   string         // STag in the format of the rows
	addr   netip.Addr     // address of the local or the remote end
	port   uint16         // port of the local or the remote end
	both   netip.AddrPort // address and port of the local or the remote end
}

func matchName(s string) (match, error) { return match{name: s}, nil }

func (m match) named(device string) bool { return m.name == "" || m.name == device }

func (m match) numbered(n uint32) bool { return m.number == nil || *m.number == n }

func matchNumber(s string) (match, error) {
	if s == "" {
		return match{}, nil
	}
	n, err := strconv.ParseUint(s, 0, 32)
	if err != nil {
		return match{}, fmt.Errorf("%q is no number: give that which the list shows, such as 2", s)
	}
	number := uint32(n)
	return match{number: &number}, nil
}

func matchSTag(s string) (match, error) {
	if s == "" {
		return match{}, nil
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 32)
	if err != nil {
		return match{}, fmt.Errorf("%q is no STag: give up to eight hexadecimal digits, such as 0x00000a41", s)
	}
	return match{stag: report.STag(uint32(n))}, nil
}

// matchFlow parses an address, :port, address:port, or the id of a flow.
func matchFlow(s string) (m match, err error) {
	if s == "" {
		return m, nil
	}
	if port, ok := strings.CutPrefix(s, ":"); ok {
		n, err := strconv.ParseUint(port, 10, 16)
		if err == nil && n > 0 {
			return match{port: uint16(n)}, nil
		}
	}
	if a, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return match{addr: a.Unmap()}, nil
	}
	if a, err := netip.ParseAddrPort(s); err == nil {
		return match{both: a}, nil
	}
	if m, err = matchNumber(s); err != nil {
		err = fmt.Errorf("%q selects no flow: give an address, :port, address:port, or an id as the list shows it", s)
	}
	return m, err
}

func (m match) flow(f report.Flow) bool {
	if m.number != nil {
		return uint32(f.ID) == *m.number
	}
	return m.end(f.Local) || m.end(f.Remote)
}

// end reports whether the match selects one end of a flow.
func (m match) end(a netip.AddrPort) bool {
	switch {
	case m.both.IsValid():
		return a == m.both
	case m.addr.IsValid():
		return a.Addr() == m.addr
	}
	return m.port == 0 || a.Port() == m.port
}
