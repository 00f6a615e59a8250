package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"reflect"
	"sync/atomic"

	"github.com/stag-rdma/stag/offload/report"
)

// maxElement is the largest length in octets of one element of a report. A queue is the
// largest kind of element and stays below 8 KiB.
const maxElement = 64 << 10

// Budget is a limit of the memory that reports may take. Reports that share a Budget
// may together take that much memory. A Budget is safe for concurrent use.
type Budget struct{ left atomic.Int64 }

// NewBudget makes a Budget of the given number of octets.
func NewBudget(octets int) *Budget {
	b := &Budget{}
	b.left.Store(int64(octets))
	return b
}

// Budgets of reports. An engine of this user or of root has a budget for the largest
// adapter. The engines of all other users share one budget, because these users may
// want to do harm.
const (
	OwnBudget   = 2 << 30
	OtherBudget = 32 << 20
)

var errTooLong = fmt.Errorf("%w: one of its objects has more than %d octets", ErrTooMuch, maxElement)

func (b *Budget) take(octets int) error {
	if b.left.Add(-int64(octets)) < 0 {
		return ErrTooMuch
	}
	return nil
}

// notReport is the error for JSON that is no report.
type notReport struct{ what string }

func (e notReport) Error() string { return e.what }

// bounded is a reader that fails with errTooLong when left octets have been read.
// bounded limits the length of the next JSON value.
type bounded struct {
	from io.Reader
	left int
	err  error // the reason why no more octets come
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left, b.err = b.left-n, err
	return n, err
}

// decoder reads a report from an engine that may want to do harm. decoder reads one
// element at a time. Each element may have at most maxElement octets, and all elements
// together must be within the budget.
type decoder struct {
	*json.Decoder
	ctx  context.Context
	in   *bounded
	q    Question
	seen int64 // octets that were charged to the budget
	n    int   // number of elements read
}

// decode reads the parts that q asks for. decode skips all other parts.
func decode(ctx context.Context, from io.Reader, q Question) (r report.Engine, err error) {
	d := &decoder{ctx: ctx, in: &bounded{from: from}, q: q}
	d.Decoder = json.NewDecoder(d.in)
	if err := d.report(&r); err != nil {
		return report.Engine{}, err
	}
	if r.Schema != report.Schema {
		return report.Engine{}, wrongSchema(r.Schema)
	}
	return r, nil
}

func (d *decoder) report(r *report.Engine) error {
	if err := d.open('{'); err != nil {
		return err
	}
	for d.more() {
		name, err := d.token()
		if err != nil {
			return err
		}
		if err := d.member(name.(string), r); err != nil { // a key in JSON is always a string
			return err
		}
	}
	_, err := d.token()
	return err
}

func (d *decoder) member(name string, r *report.Engine) error {
	switch name {
	case "schema":
		if err := d.value(&r.Schema); err != nil {
			return err
		}
		if r.Schema != report.Schema {
			return wrongSchema(r.Schema)
		}
		return nil
	case "pid":
		return d.value(&r.PID)
	case "program":
		return d.value(&r.Program)
	case "adapter":
		return d.value(&r.Adapter)
	case "started":
		return d.value(&r.Started)
	case "netns":
		return d.value(&r.Netns)
	case "counts":
		return d.value(&r.Counts)
	}
	return d.list(name, r)
}

// list reads one of the lists. list skips a list that q does not ask for.
func (d *decoder) list(name string, r *report.Engine) error {
	part, err := report.ParseParts(name)
	if err != nil || !d.q.Parts.Any(part) {
		return d.skip() // a newer engine may have lists that this code does not know
	}
	switch part {
	case report.PartDevices:
		return elements(d, &r.Devices, func(x *report.Device) int { return len(x.Addresses) * int(reflect.TypeFor[netip.Prefix]().Size()) })
	case report.PartFlows:
		return elements(d, &r.Flows, func(x *report.Flow) int {
			if x.TCP == nil {
				return 0
			}
			return int(reflect.TypeFor[report.TCP]().Size()) + memory(x.TCP.Counters)
		})
	case report.PartQPs:
		return elements(d, &r.QPs, func(x *report.QP) int {
			return memory(x.Counters) + len(x.Extensions)*int(reflect.TypeFor[string]().Size())
		})
	case report.PartMRs:
		return elements(d, &r.MRs, func(x *report.MR) int { return len(x.Rights) * int(reflect.TypeFor[string]().Size()) })
	case report.PartCQs:
		return elements(d, &r.CQs, func(*report.CQ) int { return 0 })
	case report.PartSRQs:
		return elements(d, &r.SRQs, func(*report.SRQ) int { return 0 })
	case report.PartISCSI:
		return elements(d, &r.ISCSI, func(x *report.Session) int {
			return memory(x.Counters) + (len(x.CommandAges)+len(x.LUNs))*int(reflect.TypeFor[int]().Size())
		})
	case report.PartPorts:
		return elements(d, &r.Ports, func(*report.Port) int { return int(reflect.TypeFor[uint64]().Size()) })
	case report.PartClients:
		return elements(d, &r.Clients, func(*report.Client) int { return 0 })
	case report.PartLUNs:
		return elements(d, &r.LUNs, func(*report.LUN) int { return 0 })
	case report.PartQueues:
		return elements(d, &r.Queues, func(x *report.Queue) int { return memory(x.Counters) })
	case report.PartCounters:
		return elements(d, &r.Counters, func(*report.Counter) int { return 0 })
	}
	return d.skip()
}

func memory(list []report.Counter) int {
	return len(list) * int(reflect.TypeFor[report.Counter]().Size())
}

// elements reads a list. elements charges each element to the budget before it reads
// the next.
func elements[T any](d *decoder, to *[]T, beside func(*T) int) error {
	if err := d.open('['); err != nil {
		return err
	}
	if *to == nil {
		*to = []T{}
	}
	size := int(reflect.TypeFor[T]().Size())
	for d.more() {
		var v T
		if err := d.value(&v); err != nil {
			return err
		}
		if err := d.q.Budget.take(size + beside(&v)); err != nil {
			return err
		}
		*to = append(*to, v)
	}
	_, err := d.token()
	return err
}

func (d *decoder) value(to any) error {
	d.in.left = maxElement
	if err := d.Decode(to); err != nil {
		return d.failed(err)
	}
	return d.pay()
}

// pay charges text to the budget: all that was read since the last time that pay was
// called. Strings in the report keep this text in memory. From time to time pay calls
// progress and checks ctx.
func (d *decoder) pay() error {
	read := d.InputOffset() - d.seen
	d.seen += read
	if d.n++; d.n%256 == 1 {
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		if d.q.Progress != nil {
			d.q.Progress()
		}
	}
	return d.q.Budget.take(int(read))
}

func (d *decoder) more() bool {
	d.in.left = maxElement
	return d.More()
}

func (d *decoder) token() (json.Token, error) {
	d.in.left = maxElement
	t, err := d.Token()
	return t, d.failed(err)
}

// failed returns the error for a report that could not be read. It distinguishes an
// error of the text from an error of the connection.
func (d *decoder) failed(err error) error {
	switch {
	case err == nil, errors.Is(err, ErrTooMuch), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), d.in.err != nil && errors.Is(err, d.in.err):
		return err
	}
	return notReport{err.Error()}
}

// open reads the first token of an object or of a list.
func (d *decoder) open(kind json.Delim) error {
	switch t, err := d.token(); {
	case err != nil:
		return err
	case t != kind:
		return notReport{fmt.Sprintf("%v where %v begins a list or an object", t, kind)}
	}
	return nil
}

// skip skips a value of any kind. skip keeps no part of the value.
func (d *decoder) skip() error {
	for depth := 0; ; {
		t, err := d.token()
		if err != nil {
			return err
		}
		switch t {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if d.n++; d.n%256 == 1 && d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		if depth == 0 {
			d.seen = d.InputOffset()
			return nil
		}
	}
}
