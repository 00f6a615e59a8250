//go:build interop

package interop

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
)

// bulk is how many octets go each way in a row, as large as the disk. With STAG_LONG=1 it is
// longBulk: the disk is written and read again and again.
const (
	bulk     = 64 << 20
	longBulk = 1 << 30
	parts    = 16 // of a load
)

// eachWay returns what load.run asks, so that so many octets go each way, and says how many.
func eachWay() (again func() bool, says string) {
	n := bulk
	if os.Getenv("STAG_LONG") == "1" {
		n = longBulk
	}
	left := (n - bulk) / (bulk / parts)
	return func() bool { left--; return left >= 0 }, fmt.Sprintf("%d MiB each way", n>>20)
}

// TestLIOBulk writes the whole disk with many commands in flight, and reads it. LIO's file
// must have the octets.
func TestLIOBulk(t *testing.T) {
	for _, b := range []struct {
		carrier
		lun     int
		digests string
		more    bool // not if brief is set
	}{
		{carriers[0], lioMemoryLUN, "none", false}, {carriers[0], lioFileLUN, "crc32c", true},
		{carriers[1], lioMemoryLUN, "crc32c", false}, {carriers[1], lioFileLUN, "none", false},
	} {
		if brief && b.more {
			continue
		}
		name := map[int]string{lioMemoryLUN: "memory", lioFileLUN: "file"}[b.lun]
		again, says := eachWay()
		row(t, fmt.Sprintf("%s, both digests %s, %s", name, b.digests, b.carrier.name), about{"LIO", says}, func(r *rig) {
			l := r.lio(permissive...)
			d := r.dial(b.carrier, l.url("", b.lun, "?header_digest="+b.digests+"&data_digest="+b.digests), iscsi.Config{})
			if d.Size() != bulk {
				r.Fatalf("the disk has %d octets", d.Size())
			}
			w := newLoad(r, d, bulk/parts)
			r.Must(w.run(again))
			if b.lun == lioFileLUN {
				w.there(l)
			}
		})
	}
}

// TestLIORestart removes LIO's target in the middle of writes and reads, and makes it
// again. Each command completes once, and no octet is wrong.
func TestLIORestart(t *testing.T) {
	for _, c := range carriers {
		row(t, c.name, about{"LIO", "target removed"}, func(r *rig) {
			l := r.lio(permissive...)
			l.restarted(c, l.url("", lioFileLUN, "?header_digest=crc32c&data_digest=crc32c"))
		})
	}
}

// restarted removes the target and makes it again, while a load runs.
func (l *lio) restarted(c carrier, url string) {
	l.Helper()
	var mu sync.Mutex
	events := map[iscsi.EventKind]int{}
	d := l.dial(c, url, iscsi.Config{Events: func(e iscsi.Event) {
		mu.Lock()
		events[e.Kind]++
		mu.Unlock()
	}})
	w := newLoad(l.rig, d, 1<<20)
	var stop atomic.Bool
	ended := make(chan error, 1)
	go func() { ended <- w.run(func() bool { return !stop.Load() }) }()
	w.moves()
	l.remove()
	l.make()
	w.moves()
	stop.Store(true)
	l.Must(<-ended)
	mu.Lock()
	defer mu.Unlock()
	if events[iscsi.EventHeld] == 0 || events[iscsi.EventUp] == 0 || events[iscsi.EventLost] != 0 || events[iscsi.EventUnprotected] != 0 {
		l.Errorf("the session's events: %v, want held and up", events)
	}
	w.there(l)
}

// load keeps some commands of a queue in flight. Each has its own part of the disk, in which
// it writes, reads and compares one piece after the other.
type load struct {
	*rig
	d     *iscsi.Disk
	parts [parts]part
	done  atomic.Int64 // commands that have completed
}

// part is a part of the disk. want are its octets.
type part struct {
	want, got []byte
	off       int // octets that were written and read
	reads     bool
}

// piece is the length of a command, in octets.
const piece = 128 << 10

// newLoad makes a load whose parts have size octets each.
func newLoad(r *rig, d *iscsi.Disk, size int) *load {
	w := &load{rig: r, d: d}
	for i := range w.parts {
		w.parts[i] = part{want: random(size), got: make([]byte, piece)}
	}
	return w
}

// run writes and reads all parts, and a part again as long as again says so.
func (w *load) run(again func() bool) error {
	q, err := w.d.Queue(len(w.parts))
	if err != nil {
		return err
	}
	for i := range w.parts {
		if err := w.post(q, i); err != nil {
			return err
		}
	}
	for flying := len(w.parts); flying != 0; {
		if err := w.wait(q); err != nil {
			return err
		}
		var got [4]iscsi.Completion
		for _, c := range got[:q.Poll(got[:])] {
			more, err := w.completed(&c, again)
			if err == nil && more {
				err = w.post(q, int(c.ID))
			}
			if err != nil {
				return err
			}
			if !more {
				flying--
			}
		}
	}
	return q.Close()
}

// wait waits for the next completion: a row may take long, as long as octets move.
func (w *load) wait(q *iscsi.Queue) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), patience, fmt.Errorf("nothing happens for %v", patience))
	defer cancel()
	return q.Wait(ctx)
}

func (w *load) post(q *iscsi.Queue, i int) error {
	p := &w.parts[i]
	io := iscsi.IO{ID: uint64(i), Op: iscsi.Write, LBA: uint64((i*len(p.want) + p.off) / w.d.BlockSize()), Buffers: [][]byte{p.want[p.off : p.off+piece]}}
	if p.reads {
		io.Op, io.Buffers = iscsi.Read, [][]byte{p.got}
	}
	n, err := q.Post(io)
	if err == nil && n != 1 {
		err = fmt.Errorf("the queue takes no IO of part %d", i)
	}
	return err
}

// completed checks a completion. It returns false if the part has nothing more to do.
func (w *load) completed(c *iscsi.Completion, again func() bool) (more bool, err error) {
	p := &w.parts[c.ID]
	w.done.Add(1)
	if c.Err != nil || c.Length != piece {
		return false, fmt.Errorf("part %d at %d, read %v: %d octets, %w", c.ID, p.off, p.reads, c.Length, c.Err)
	}
	if p.reads = !p.reads; p.reads {
		return true, nil
	}
	if !bytes.Equal(p.got, p.want[p.off:p.off+piece]) {
		return false, fmt.Errorf("part %d at %d: other octets were read than were written", c.ID, p.off)
	}
	clear(p.got)
	if p.off += piece; p.off < len(p.want) {
		return true, nil
	}
	if !again() {
		return false, nil
	}
	p.off, p.want = 0, random(len(p.want))
	return true, nil
}

// moves waits until more commands have completed.
func (w *load) moves() {
	w.Helper()
	from := w.done.Load()
	w.Eventually("commands complete", func() bool { return w.done.Load() > from+100 })
}

// there checks that LIO's file has the octets that were written last.
func (w *load) there(l *lio) {
	w.Helper()
	h := sha256.New()
	n := 0
	for i := range w.parts {
		h.Write(w.parts[i].want)
		n += len(w.parts[i].want)
	}
	if sum := fmt.Sprintf("%x", h.Sum(nil)); l.hash(n) != sum {
		w.Errorf("LIO's file has not the octets that were written")
	}
}
