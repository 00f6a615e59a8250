// Package dump is stag dump: what engines receive and send, as text or as a
// file that Wireshark reads.
//
//	source.go     which engines, and the streams from them
//	dump.go       from the streams to the output, and how it ends
//	line.go       a packet taken apart; operation.go its RDMA, kind.go its kind
//	print.go      text and JSON
//	file.go       pcapng; handshake.go what it needs to be understood; blocks.go
//	              whole ones, whatever happens
package dump

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

// DefaultSnapLen is longer than any packet.
const DefaultSnapLen = 262144

// Options of a capture: which packets, and where they go.
type Options struct {
	Device string // interface; "": all
	PID    int    // process; 0: all
	All    bool   // engines of other users, too
	Flow   uint32 // flow id; 0: all
	QP     uint32 // QP number; 0: all
	Kinds  []Kind // none: all

	File    string // pcapng goes there, "-" is Out; "": lines go to Out instead
	SnapLen int    // octets of each packet that the file gets
	Bare    bool   // the file gets no packets that were not captured
	Count   uint64 // ends after so many packets; 0: does not
	JSON    bool   // lines are JSON

	Out   *os.File
	Notes io.Writer    // gets a line for each thing worth knowing
	Log   *slog.Logger // what else there is to know; nil: nobody wants to
}

// filter returns what the capture asks an engine for: at least the headers, which tell
// the kind of a packet and the beginning of its stream.
func (o Options) filter(device string) report.Filter {
	f := report.Filter{Device: device, Flow: o.Flow, QP: o.QP, SnapLen: HeadLen}
	if o.File != "" {
		f.SnapLen = max(o.SnapLen, HeadLen)
	}
	return f
}

// filterText describes the selection for users; "" means all packets.
func (o Options) filterText() string {
	var parts []string
	if o.Flow != 0 {
		parts = append(parts, fmt.Sprintf("flow %#x", o.Flow))
	}
	if o.QP != 0 {
		parts = append(parts, fmt.Sprintf("qp %d", o.QP))
	}
	if len(o.Kinds) != 0 {
		parts = append(parts, fmt.Sprintf("kinds %v", o.Kinds))
	}
	if len(parts) == 0 {
		return ""
	}
	return "only " + strings.Join(parts, ", ")
}

func (o Options) note(format string, args ...any) {
	fmt.Fprintf(o.Notes, "stag: dump: "+format+"\n", args...)
}

// packet is a packet on its way to the output.
type packet struct {
	report.Packet
	line   Line   // valid for printers, and where kinds matter
	missed uint64 // packets that were lost since the one before
}

// output writes packets.
type output interface {
	add(*source, packet) error
	flush() (unwritten int, err error) // packets that could not be written
	finish([]*source) error            // the last call
}

// ErrEngineGone says that the capture ended because no engine was left, and that an
// engine died. The notes have the reason.
var ErrEngineGone = errors.New("an engine has gone")

// run is a running capture. It belongs to the goroutine of loop.
type run struct {
	Options
	sources []*source
	file    *os.File // where the output goes
	out     output
	reader  reader
	bad     bool // a source ended in bad order

	captured, lost atomic.Uint64 // also for who says so in the end
}

// Run captures until ctx ends, o.Count packets have arrived, the reader of the output
// has gone, or no engine is left. Only ErrEngineGone is an error among these. At its end
// it notes how many packets there were.
func Run(ctx context.Context, o Options) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sources, err := find(ctx, o)
	if err != nil {
		return err
	}
	r := &run{Options: o, sources: sources, file: o.Out}
	if o.File != "" && o.File != "-" { // only now: what is there already stays when there is nothing to capture
		if r.file, err = create(o.File); err != nil {
			closeAll(sources)
			return err
		}
	}
	for _, s := range sources {
		o.note("capturing on %s", s)
	}
	done := make(chan error, 1)
	go func() { done <- r.do(ctx) }()
	err = wait(ctx, done)
	stop()
	closeAll(sources)
	if r.file != o.Out {
		err = errors.Join(err, r.file.Close())
	}
	fmt.Fprintf(o.Notes, "%s captured, %d lost\n", plural(r.captured.Load(), "packet"), r.lost.Load())
	if errors.Is(err, syscall.EPIPE) {
		return nil // who reads has seen enough
	}
	return err
}

// create makes a file that only its owner can read, because it contains payload.
func create(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

// grace bounds how long an output may take for its last Write at the end of a capture.
const grace = 2 * time.Second

// wait waits for the end of a run. It does not wait forever for an output that nobody
// reads.
func wait(ctx context.Context, done <-chan error) error {
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(grace):
		return errors.New("the output takes nothing: its end is missing there")
	}
}

// do does the capture, except waiting for outputs.
func (r *run) do(ctx context.Context) (err error) {
	if r.File != "" {
		r.out, err = newFile(r.file, r.sources, r.SnapLen)
	} else {
		r.out = &printer{blocks: blocks{out: r.file}, asJSON: r.JSON, pids: r.severalPIDs()}
	}
	if err != nil {
		return err
	}
	if err := r.loop(ctx); err != nil {
		return err
	}
	if err := r.out.finish(r.sources); err != nil {
		return err
	}
	if r.bad && ctx.Err() == nil && !r.enough() {
		return ErrEngineGone
	}
	return nil
}

func (r *run) severalPIDs() bool {
	return slices.ContainsFunc(r.sources, func(s *source) bool { return s.PID != r.sources[0].PID })
}

// loop takes batches until there are no more, or enough.
func (r *run) loop(ctx context.Context) error {
	events := make(chan event)
	for _, s := range r.sources {
		go s.read(ctx, events)
	}
	for left := len(r.sources); left > 0 && !r.enough(); {
		var e event
		select {
		case e = <-events:
		case <-ctx.Done():
			return nil
		}
		if e.err != nil && ctx.Err() != nil {
			return nil
		}
		if e.err != nil {
			left--
			r.bad = r.bad || e.err != io.EOF
			r.note("%s ends: %s", e.from, engines.Clean(ending(e.err)))
			continue
		}
		if err := r.take(e.from, e.batch); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) enough() bool { return r.Count != 0 && r.captured.Load() >= r.Count }

// take writes a batch.
func (r *run) take(s *source, b report.Batch) error {
	if b.Lost > s.lost {
		r.lost.Add(b.Lost - s.lost)
		s.lost = b.Lost
	}
	if r.File != "" && !r.Bare {
		for _, st := range b.Streams {
			s.streams[st.Flow] = st
		}
	}
	for _, p := range b.Packets {
		s.seen++
		pk, ok := r.look(s, p)
		if !ok {
			continue
		}
		pk.missed, s.told = s.lost-s.told, s.lost
		if err := r.out.add(s, pk); err != nil {
			return err
		}
		if r.captured.Add(1); r.enough() {
			break
		}
	}
	unwritten, err := r.out.flush()
	r.captured.Add(-uint64(unwritten))
	return err
}

// look parses a packet if that is needed, and reports whether the packet is selected.
func (r *run) look(s *source, p report.Packet) (packet, bool) {
	pk := packet{Packet: p}
	if r.File == "" || len(r.Kinds) != 0 {
		pk.line = r.reader.read(p)
		pk.line.PID, pk.line.Adapter, pk.line.Device = s.PID, s.Adapter, s.device
	}
	if len(r.Kinds) != 0 && !slices.Contains(r.Kinds, pk.line.Kind) {
		return packet{}, false
	}
	return pk, true
}

func plural(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
