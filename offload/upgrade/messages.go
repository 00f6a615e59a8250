package upgrade

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/engine"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/tcp"
)

// Version is the version of the protocol. Both processes must have the same.
const Version = 1

// hello is the first message of the old process. One port follows for each interface.
type hello struct {
	Version int
	PID     int
	Layout  bpf.Config // layouts of the maps
	Ports   int
	Objects int // objects that follow the ports, before ready
}

// portDoc describes an interface. Its descriptors are those of a nic.Inheritance.
type portDoc struct {
	Name    string
	Index   int
	Netns   uint64
	Program loader.Handed
	Claims  []string
}

// flowDoc describes a connection. Its octets are the state and then the upper layer's. Its
// descriptors are the placeholder, if there is one, and then the upper layer's.
type flowDoc struct {
	Departure nic.Departure
	Mono      int64 // CLOCK_MONOTONIC when the state was encoded, in nanoseconds
	TimeWait  bool
	Kept      bool // there is a placeholder
	State     int  // octets of the state
	Kind      string
}

// objectDoc describes a portable.Object.
type objectDoc struct {
	Kind string
	Mono int64
}

// completeDoc says how much was sent.
type completeDoc struct{ Flows, Objects int }

// doneDoc is what the new process reports at its end.
type doneDoc struct {
	Running int      // connections that run, including those in TIME-WAIT
	Lost    []string // connections that could not be installed, and why
}

// reason is the document of refuse and abort.
type reason struct{ Why string }

// Flow is a connection on its way to the new process.
type Flow struct {
	Departure nic.Departure
	Parted    engine.Parted    // ULP is set when the upper layer has been imported
	Object    *portable.Object // the upper layer; nil for a connection in TIME-WAIT
	At        clock.Instant    // time of the export, in the clock of this process
	hold      *os.File
}

// monotonic reads CLOCK_MONOTONIC, which all processes of a host share.
func monotonic() (int64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("read the clock: %w", err)
	}
	return t.Nano(), nil
}

// instantOf converts a time of monotonic, in another process, to this process's clock.
func instantOf(then int64) (clock.Instant, error) {
	now, err := monotonic()
	if err != nil {
		return 0, err
	}
	if then > now || then <= 0 {
		return 0, errors.New("the other process has another clock: is it in another time namespace?")
	}
	return clock.Now() - clock.Instant(now-then), nil
}

// encodeFlow returns what a flow message needs.
func encodeFlow(d *nic.Departure, p *engine.Parted, kept bool) (doc flowDoc, data [][]byte, files []*os.File, err error) {
	now := clock.Now()
	mono, err := monotonic()
	if err != nil {
		return doc, nil, nil, err
	}
	doc = flowDoc{Departure: *d, Mono: mono, TimeWait: p.Linger != nil, Kept: kept}
	var state []byte
	if doc.TimeWait {
		state, err = p.Linger.AppendTo(nil, now)
		doc.State = len(state)
		return doc, [][]byte{state}, nil, err
	}
	u, ok := p.ULP.(portable.ULP)
	if !ok {
		return doc, nil, nil, fmt.Errorf("%v to %v: its upper layer (%T, %v) cannot continue in another process", d.Tuple.Local, d.Tuple.Remote, p.ULP, d.Kind)
	}
	o, err := u.Export(now)
	if err == nil {
		err = o.Check()
	}
	if err == nil {
		state, err = p.State.AppendTo(nil, now)
	}
	if err != nil {
		return doc, nil, nil, fmt.Errorf("%v to %v: %w", d.Tuple.Local, d.Tuple.Remote, err)
	}
	doc.State, doc.Kind = len(state), o.Kind
	return doc, [][]byte{state, o.Data}, o.Files, nil
}

// decodeFlow reverses encodeFlow. It takes the files of m.
func decodeFlow(m *message) (f *Flow, err error) {
	var doc flowDoc
	if err := m.is(kindFlow, &doc); err != nil {
		return nil, err
	}
	f = &Flow{Departure: doc.Departure}
	if f.At, err = instantOf(doc.Mono); err != nil {
		return nil, err
	}
	if doc.State < 0 || doc.State > len(m.data) || doc.Kept && len(m.files) == 0 {
		return nil, fmt.Errorf("a flow of %d octets and %d descriptors, whose state has %d: too few", len(m.data), len(m.files), doc.State)
	}
	state, rest := m.data[:doc.State], m.data[doc.State:]
	if doc.TimeWait {
		w, err := tcp.DecodeTimeWait(state, f.At)
		if err != nil {
			return nil, err
		}
		f.Parted.Linger = &w
	} else if f.Parted.State, err = tcp.DecodeState(state, f.At); err != nil {
		return nil, err
	}
	files := m.files
	m.files = nil
	if doc.Kept {
		f.hold, files = files[0], files[1:]
	}
	if !doc.TimeWait {
		f.Object = &portable.Object{Kind: doc.Kind, Data: rest, Files: files}
		return f, f.Object.Check()
	}
	for _, surplus := range files {
		surplus.Close()
	}
	return f, nil
}

// close closes the files of the flow.
func (f *Flow) close() {
	if f.hold != nil {
		f.hold.Close()
		f.hold = nil
	}
	if f.Object != nil {
		closeFiles(f.Object.Files)
		f.Object.Files = nil
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
