package iscsi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/iser"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/rig"
)

// TestISERCancel cancels reads and writes at any time. The buffer is the caller's when Do
// returns, and the session goes on over the same connection.
func TestISERCancel(t *testing.T) {
	for _, carrier := range carriers {
		t.Run(carrier, func(t *testing.T) {
			s := newServing(t, carrier)
			host, _, _ := net.SplitHostPort(s.address)
			p := newPeer(t, s.adapters[theirs], host)
			var held atomic.Int32
			d, err := iscsi.Dial(s.Ctx(), p.url(""), iscsi.Config{Adapter: s.adapters[ours], Events: countHeld(t, &held)})
			s.Must(err)
			defer func() { s.Check(d.Close()) }()
			cancelMany(s.Stage, d)
			if held.Load() != 0 {
				t.Errorf("%d connections have ended", held.Load())
			}
		})
	}
}

// TestServeISERCancel cancels commands of our own target.
func TestServeISERCancel(t *testing.T) {
	s := rig.On(t)
	var held atomic.Int32
	d, err := iscsi.Dial(s.Ctx(), iserURL(serveISER(t, ram(t, 64<<20), nil), ""), iscsi.Config{Events: countHeld(t, &held)})
	s.Must(err)
	defer func() { s.Check(d.Close()) }()
	cancelMany(s, d)
	if held.Load() != 0 {
		t.Errorf("%d connections have ended", held.Load())
	}
}

// cancelMany cancels reads and writes of a disk.
func cancelMany(s rig.Stage, d *iscsi.Disk) {
	s.Helper()
	const n = 256 << 10
	buf := make([]byte, n)
	canceled := 0
	for i := range 300 {
		ctx, cancel := context.WithTimeout(s.Ctx(), time.Duration(i*5)*time.Microsecond)
		c := iscsi.Command{LUN: d.LUN(), CDB: []byte{0x28, 0, 0, 0, 0, 0, 0, 2, 0, 0}, In: buf}
		if i%3 == 2 {
			c = iscsi.Command{LUN: d.LUN(), CDB: []byte{0x2a, 0, 0, 0, 0, 0, 0, 2, 0, 0}, Out: buf}
		}
		_, err := d.Session().Do(ctx, c)
		if cancel(); errors.Is(err, context.DeadlineExceeded) {
			canceled++
		} else {
			s.Must(err)
		}
		for k := range buf {
			buf[k] = byte(i)
		}
		time.Sleep(time.Duration(i%5) * 100 * time.Microsecond)
		for k := range buf {
			if buf[k] != byte(i) {
				s.Fatalf("round %d: octet %d changed after Do returned", i, k)
			}
		}
	}
	if canceled == 0 {
		s.Error("nothing was canceled")
	}
	want, got := random(n, 1), make([]byte, n)
	_, err := d.WriteAt(want, 1<<20)
	s.Must(err)
	_, err = d.ReadAt(got, 1<<20)
	s.Must(err)
	if !bytes.Equal(got, want) {
		s.Error("wrong octets after the cancels")
	}
}

// TestISERManyCancels cancels more commands than a target that is silent for a while may
// leave without an answer. Then the target executes all that it has got, or only answers the
// requests to abort: it writes to, and reads from, buffers that are the program's again. The
// session goes on over the same connection, and no octet of the program changes.
func TestISERManyCancels(t *testing.T) {
	for _, op := range []byte{0x28, 0x2a, 0} {
		for _, aborts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%#02x aborts %v", op, aborts), func(t *testing.T) { manyCancels(t, op, aborts) })
		}
	}
}

// late is a target that answers later.
type late struct {
	silent  atomic.Bool
	aborts  bool // it answers only requests to abort
	answers []func()
}

func (l *late) script(c *peerConn, m *iser.Message) bool {
	if !l.silent.Load() {
		return false
	}
	of := iser.Message{PDU: new(pdu.Header)}
	*of.PDU = *m.PDU
	var f pdu.ISERFields
	f.ReadSTag, f.ReadBase, f.HasRead = m.ISER.Read()
	f.WriteSTag, f.WriteBase, f.HasWrite = m.ISER.Write()
	of.ISER, _, _ = pdu.ParseISER(f.Append(nil))
	switch {
	case of.PDU.Opcode() == pdu.OpCommand && !l.aborts:
		l.answers = append(l.answers, func() { c.command(&of) })
	case of.PDU.Opcode() == pdu.OpTask:
		l.answers = append(l.answers, func() { c.answer(pdu.OpTaskResponse, of.PDU) })
	}
	return true
}

// speak gives the answers that are due.
func (l *late) speak() {
	if l.silent.Load() {
		return
	}
	for _, f := range l.answers {
		f()
	}
	l.answers = nil
}

func manyCancels(t *testing.T, op byte, aborts bool) {
	l := &late{aborts: aborts}
	s, p := scripted(t, func(p *peer) { p.script, p.idle = l.script, l.speak })
	var held atomic.Int32
	d, err := iscsi.Dial(s.Ctx(), p.url(""), iscsi.Config{Ping: time.Minute, Events: countHeld(t, &held)})
	s.Must(err)
	defer func() { s.Check(d.Close()) }()
	l.silent.Store(true)
	const n = 8 << 10
	buf := random(n, 1)
	for range 120 {
		ctx, cancel := context.WithTimeout(s.Ctx(), 200*time.Microsecond)
		c := iscsi.Command{LUN: d.LUN(), CDB: []byte{op, 0, 0, 0, 0, 0, 0, 0, n / 512, 0}}
		switch op {
		case 0x28:
			c.In = buf
		case 0x2a:
			c.Out = buf
		}
		if _, err := d.Session().Do(ctx, c); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a command without an answer: %v", err)
		}
		cancel()
	}
	want, got := bytes.Clone(buf), make([]byte, n)
	l.silent.Store(false)
	p.poke()
	if _, err := d.ReadAt(got, 0); err != nil || !bytes.Equal(got, p.disk[:n]) {
		t.Errorf("a read behind the canceled ones: %v", err)
	}
	if !bytes.Equal(buf, want) {
		t.Error("the buffer of a canceled command has changed")
	}
	if held.Load() != 0 {
		t.Errorf("%d connections have ended", held.Load())
	}
}

// TestISERCancelPieces is TestISERManyCancels for commands of several buffers: those that make
// a page list, and those that do not.
func TestISERCancelPieces(t *testing.T) {
	for _, op := range []iscsi.Op{iscsi.Read, iscsi.Write} {
		for name, at := range map[string][]int{"pages": {1000, 1000 + 4096}, "no pages": {1000, 3000}} {
			t.Run(fmt.Sprintf("op %d, %s", op, name), func(t *testing.T) { cancelPieces(t, op, at) })
		}
	}
}

// cancelPieces cancels commands whose buffer is cut at the given octets.
func cancelPieces(t *testing.T, op iscsi.Op, at []int) {
	l := &late{}
	s, p := scripted(t, func(p *peer) { p.script, p.idle = l.script, l.speak })
	var held atomic.Int32
	d, err := iscsi.Dial(s.Ctx(), p.url(""), iscsi.Config{Ping: time.Minute, Events: countHeld(t, &held)})
	s.Must(err)
	defer func() { s.Check(d.Close()) }()
	q, err := d.Queue(4)
	s.Must(err)
	defer func() { s.Check(q.Close()) }()
	l.silent.Store(true)
	const n = 8 << 10
	buf := random(n, 1)
	io := iscsi.IO{ID: 1, Op: op, Buffers: [][]byte{buf[:at[0]], buf[at[0]:at[1]], buf[at[1]:]}}
	for range 120 { // so many that the read below leaves behind answers
		if n, err := q.Post(io); n != 1 {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Microsecond)
		if !q.Cancel(1) {
			t.Fatal("nothing to cancel")
		}
		got := make([]iscsi.Completion, 1)
		for q.Poll(got) == 0 {
			s.Must(q.Wait(s.Ctx()))
		}
		if got[0].Err != iscsi.ErrCanceled {
			t.Fatalf("a command without an answer: %v", got[0].Err)
		}
	}
	want, disk := bytes.Clone(buf), make([]byte, n)
	onDisk := make([]byte, n)
	if op == iscsi.Write { // the target reads what the commands had, not what the program has now
		onDisk = bytes.Clone(buf)
		clear(buf)
		clear(want)
	}
	l.silent.Store(false)
	p.poke()
	rig.Eventually(t, "the disk has the octets of the canceled commands", func() bool {
		_, err := d.ReadAt(disk, 0)
		s.Must(err)
		return bytes.Equal(disk, onDisk)
	})
	if !bytes.Equal(buf, want) {
		t.Error("the buffers of a canceled command have changed")
	}
	if held.Load() != 0 {
		t.Errorf("%d connections have ended", held.Load())
	}
}

// countHeld counts the ends of connections.
func countHeld(t *testing.T, n *atomic.Int32) func(iscsi.Event) {
	return func(e iscsi.Event) {
		if e.Kind == iscsi.EventHeld {
			n.Add(1)
			t.Log(e.Err)
		}
	}
}
