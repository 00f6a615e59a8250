// Package doctor makes and prints the report of `stag doctor`. Package loader/doctor
// does the checks.
package doctor

import (
	"iter"
	"net"
	"slices"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/doctor"
)

// Options describe the interface that the user wants to open later.
type Options struct {
	Link    string // name of the interface; "" checks only the host
	Engines int    // number of queues that will have an engine; 0: all queues of the interface
	Chunk   int    // size of a chunk of the UMEM: 2048 or 4096 octets; 0 means 4096
	Generic bool   // open the interface in generic mode
}

// Row is one requirement.
type Row struct {
	Topic  doctor.Topic   `json:"topic"`
	Name   string         `json:"name"`
	Status doctor.Outcome `json:"status"`
	Detail string         `json:"detail"`
	Fix    string         `json:"fix,omitempty"`   // command that meets the requirement, or that makes an unknown row known
	Lacks  []string       `json:"lacks,omitempty"` // capabilities that the process lacks, and without which the requirement is not met or cannot be checked
}

// Report has the result of all checks.
type Report struct {
	// OK is true if no requirement is known to be missing. A row that is unknown does
	// not make OK false.
	OK        bool   `json:"ok"`
	Interface string `json:"interface,omitempty"`
	Host      []Row  `json:"host"`
	Link      []Row  `json:"link,omitempty"`
	// Error is the reason why the interface cannot be used at all, or "". If Error is
	// set, Link has one row.
	Error string `json:"error,omitempty"`
	// Interfaces are the interfaces that can be checked. It is set if Options.Link is "".
	Interfaces []string `json:"interfaces,omitempty"`
	// Lacks has the capabilities of Row.Lacks of all rows.
	Lacks []string `json:"lacks,omitempty"`
	Notes []string `json:"notes"`
}

// notes are facts that no probe can find and that matter before an interface is opened.
var notes = []string{
	"Connections that stag takes over bypass netfilter behind the XDP hook, conntrack, tc and the limits of cgroups.",
	"tcpdump does not see their packets.",
}

// Run checks the host. If o names an interface, Run also checks this interface, in the
// network namespace of the process. Run leaves nothing changed.
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

// memory returns how many octets the kernel must lock for the frames of all queues.
func (o Options) memory() (uint64, error) {
	queues := o.Engines
	if queues == 0 && o.Link != "" {
		// If the interface does not exist, link reports this later.
		if l, err := loader.LookupLink(o.Link); err == nil {
			queues = l.RxQueues
		}
	}
	each, err := afxdp.Config{FrameSize: uint32(o.Chunk)}.RegionSize()
	return each * uint64(max(queues, 1)), err
}

// link checks an interface. If the interface cannot be used at all, link reports this as a
// row and returns no error.
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

// Interfaces returns the interfaces that stag can use: all except the loopback.
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
		list[i] = Row{Topic: p.Topic, Name: p.Name, Status: p.Outcome, Detail: p.Detail, Fix: p.Fix, Lacks: p.Lacks}
	}
	return list
}

// rows yields all rows: first the rows of the host, then the rows of the interface.
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

// with returns the rows of a status.
func (r Report) with(s doctor.Outcome) (list []Row) {
	for row := range r.rows() {
		if row.Status == s {
			list = append(list, row)
		}
	}
	return list
}

// Failures returns how many requirements are not met.
func (r Report) Failures() int { return len(r.with(doctor.Bad)) }
