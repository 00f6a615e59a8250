// Package dump implements `stag dump`: it captures the packets that engines receive and
// send, and writes them as text or as a file for Wireshark.
//
//	source.go     finds the engines, and reads the stream of packets of each
//	dump.go       takes packets from the streams to the output, and ends the capture
//	line.go       parses a packet; operation.go its RDMA operation, pdu.go its iSCSI
//	              PDUs, kind.go its kind
//	move.go       moves of connections between ports
//	print.go      writes text and JSON
//	file.go       writes pcapng; handshake.go adds the MPA handshake that Wireshark
//	              needs; blocks.go keeps blocks complete
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

// Options are the options of a capture: which packets to capture, and where they go.
type Options struct {
	Device string // interface to capture on; "": all
	PID    int    // process whose engines to capture on; 0: all
	All    bool   // also capture on engines of other users
	Flow   uint32 // flow id to select; 0: all
	QP     uint32 // QP number to select; 0: all
	Kinds  []Kind // kinds of packets to select; empty: all

	File    string // name of the pcapng file; "-": pcapng goes to Out; "": text goes to Out
	SnapLen int    // octets of each packet to write into the file
	Bare    bool   // the file gets no packets that stand for the MPA handshake
	Count   uint64 // number of packets after which the capture ends; 0: no limit
	JSON    bool   // print JSON instead of text

	Out   *os.File
	Notes io.Writer    // gets one line for each note to the user
	Log   *slog.Logger // log for diagnosis; nil: no log
}

// filter returns the filter for the captures of an engine. Each packet has at least its
// headers, because the kind of a packet and the handshake are derived from them.
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
	line   Line     // the parsed packet; valid if the output is text or Kinds is set
	marks  []string // words about moves of the connection since its previous packet
	missed uint64   // number of packets that were lost since the previous packet
}

// output is the destination of the selected packets: text, JSON or pcapng.
type output interface {
	add(*source, packet) error
	flush() (unwritten int, err error) // returns the number of packets that could not be written
	finish([]*source) error            // ends the output; no other method may be called after it
}

// ErrEngineGone means that the capture ended because no engine was left, and that at
// least one engine died. The notes have the reason.
var ErrEngineGone = errors.New("an engine has gone")

// run is a running capture. Only the goroutine of loop uses it.
type run struct {
	Options
	sources []*source
	file    *os.File // the file or the standard output
	out     output
	reader  reader
	bad     bool // a source ended with an error

	captured, lost atomic.Uint64 // numbers of packets; Run reads them while loop may still run
}

// Run captures until ctx ends, until o.Count packets have arrived, until the reader of
// the output has gone, or until no engine is left. It returns ErrEngineGone if no engine
// is left and at least one has died. The other ends are no errors. The last note is the
// number of packets.
func Run(ctx context.Context, o Options) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sources, err := find(ctx, o)
	if err != nil {
		return err
	}
	r := &run{Options: o, sources: sources, file: o.Out}
	if o.File != "" && o.File != "-" { // create the file only after find, so that an existing file stays if find fails
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
		return nil // the reader has closed the output, which is no error
	}
	return err
}

// create makes a file that only its owner can read, because it contains payload.
func create(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

// grace is how long the last Write at the end of a capture may take.
const grace = 2 * time.Second

// wait waits for the end of a run. After ctx has ended, wait waits at most grace,
// because the reader of the output may not read.
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
		return errors.New("the reader of the output does not read: the end of the output is lost")
	}
}

// do runs the capture from the first batch to the last Write.
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

// loop takes batches until no source is left, or until Count packets have arrived.
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

// take writes the packets of a batch.
func (r *run) take(s *source, b report.Batch) error {
	if b.Lost > s.lost {
		r.lost.Add(b.Lost - s.lost)
		s.lost = b.Lost
	}
	for _, st := range b.Streams {
		s.learn(st, r.File != "" && !r.Bare)
	}
	for _, m := range b.Moves {
		s.noteMove(m)
	}
	for _, p := range b.Packets {
		s.seen++
		pk, ok := r.look(s, p)
		if !ok {
			continue
		}
		pk.missed, s.told = s.lost-s.told, s.lost
		pk.marks = s.marks(p)
		pk.line.Moved = pk.marks
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
		pk.line = r.reader.read(p, s.iscsi[p.Flow])
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
