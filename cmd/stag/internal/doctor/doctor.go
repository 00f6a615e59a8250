// Package doctor is what `stag doctor` finds.
package doctor

import (
	"iter"
	"net"
	"slices"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/doctor"
)

// Options say what is to be opened later.
type Options struct {
	Link    string // the interface; "": the host alone
	Engines int    // queues with an engine; 0: all that the interface has
	Chunk   int    // octets, 2048 or 4096; 0 means 4096
	Generic bool   // in generic mode
}

// Status is how serious a row is.
type Status string

// The statuses.
const (
	OK   Status = "OK"
	Hint Status = "hint" // works as it is
	Fail Status = "FAIL"
)

// Row is one requirement.
type Row struct {
	Topic  doctor.Topic `json:"topic"`
	Name   string       `json:"name"`
	Status Status       `json:"status"`
	Detail string       `json:"detail"`
	Fix    string       `json:"fix,omitempty"`   // the command that puts it right
	Lacks  []string     `json:"lacks,omitempty"` // capabilities without which it could not be met, or seen
}

// Report is what was found.
type Report struct {
	OK        bool   `json:"ok"` // nothing that is required is missing
	Interface string `json:"interface,omitempty"`
	Host      []Row  `json:"host"`
	Link      []Row  `json:"link,omitempty"`
	// Error is why the interface cannot be used at all, "" if it can. Link is
	// one row then.
	Error string `json:"error,omitempty"`
	// Interfaces are those that could have been asked about, when none was.
	Interfaces []string `json:"interfaces,omitempty"`
	// Lacks are the capabilities that rows want and the process has not.
	Lacks []string `json:"lacks,omitempty"`
	Notes []string `json:"notes"`
}

// notes are what whoever opens an interface should know, and no probe can find.
var notes = []string{
	"Connections that stag takes over bypass netfilter behind the XDP hook, conntrack, tc and the limits of cgroups.",
	"tcpdump does not see their packets.",
}

// Run looks at the host and, if one is named, at an interface, in the network
// namespace of the process. Nothing stays changed.
func Run(o Options) (Report, error) {
	r := Report{Interface: o.Link, Notes: notes}
	needs := doctor.Needs{Engines: o.Engines, Chunk: o.Chunk, Generic: o.Generic}
	var err error
	if needs.Memory, err = o.memory(); err != nil {
		return r, err
	}
	host, err := doctor.Host(needs)
	if err != nil {
		return r, err
	}
	r.Host = slices.Insert(rows(host), 1, commandsRow())
	if o.Link == "" {
		r.Interfaces, err = Interfaces()
	} else {
		r.Link, r.Error, err = link(o.Link, needs)
	}
	r.OK = r.Failures() == 0
	for row := range r.rows() {
		r.Lacks = append(r.Lacks, row.Lacks...)
	}
	slices.Sort(r.Lacks)
	r.Lacks = slices.Compact(r.Lacks)
	return r, err
}

// memory is how much the kernel must lock for the frames of all queues.
func (o Options) memory() (uint64, error) {
	queues := o.Engines
	if queues == 0 && o.Link != "" {
		// When there is no such interface, that is said later.
		if l, err := loader.LookupLink(o.Link); err == nil {
			queues = l.RxQueues
		}
	}
	each, err := afxdp.Config{FrameSize: uint32(o.Chunk)}.RegionSize()
	return each * uint64(max(queues, 1)), err
}

// link asks about an interface. That it cannot be used at all is a finding.
func link(name string, needs doctor.Needs) ([]Row, string, error) {
	probes, err := doctor.Interface(name, needs)
	if err == nil {
		return rows(probes), "", nil
	}
	if p, known := doctor.Unusable(name, err); known {
		return rows([]doctor.Probe{p}), err.Error(), nil
	}
	return nil, "", err
}

// Interfaces are those that stag could be asked to use: all but the loopback.
func Interfaces() (names []string, err error) {
	all, err := net.Interfaces()
	for _, i := range all {
		if i.Flags&net.FlagLoopback == 0 {
			names = append(names, i.Name)
		}
	}
	return names, err
}

func rows(probes []doctor.Probe) []Row {
	list := make([]Row, len(probes))
	for i, p := range probes {
		list[i] = Row{Topic: p.Topic, Name: p.Name, Status: status(p), Detail: p.Detail, Fix: p.Fix, Lacks: p.Lacks}
	}
	return list
}

func status(p doctor.Probe) Status {
	switch {
	case !p.OK:
		return Fail
	case p.Fix != "":
		return Hint
	}
	return OK
}

// rows are all of them, the host's first.
func (r Report) rows() iter.Seq[Row] {
	return func(yield func(Row) bool) {
		for _, list := range [][]Row{r.Host, r.Link} {
			for _, row := range list {
				if !yield(row) {
					return
				}
			}
		}
	}
}

// with is the rows of a status.
func (r Report) with(s Status) (list []Row) {
	for row := range r.rows() {
		if row.Status == s {
			list = append(list, row)
		}
	}
	return list
}

// Failures is how many requirements are not met.
func (r Report) Failures() int { return len(r.with(Fail)) }
