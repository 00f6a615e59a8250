package flow

import (
	"runtime"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/signal"
)

// idleLimit is the most memory that an idle session may take in the heap, in octets. The
// buffers of its carrier do not count.
const idleLimit = 9 << 10

// TestIdleMemory: a session for 128 commands, without a queue of its own, takes little.
func TestIdleMemory(t *testing.T) {
	const n, slots = 200, 16 + 4 + 128
	table := newTable(t)
	board := new(signal.Board)
	all := make([]*Initiator, n)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range all {
		pd, err := table.NewPD()
		if err != nil {
			t.Fatal(err)
		}
		tags, err := table.OwnTags(pd, slots)
		if err != nil {
			t.Fatal(err)
		}
		f := NewInitiator(Config{Params: usual(), Tags: tags, Board: board})
		f.NewQueue(0, 16)
		f.NewQueue(16, 4)
		all[i] = f
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := (after.HeapAlloc - before.HeapAlloc) / n
	t.Logf("%d octets for each session", each)
	if each > idleLimit {
		t.Errorf("%d octets for each session, want at most %d", each, idleLimit)
	}
	runtime.KeepAlive(all)
}

// TestSlotsAreUsedAgain: commands one after the other, as a login has them, take one task. A
// canceled command makes the others use all slots in turn, so that its tag comes again late.
func TestSlotsAreUsedAgain(t *testing.T) {
	const slots = 6
	e := begin(t, usual(), slots)
	tasks := func() (n int) {
		for i := range e.f.tasks {
			if e.f.tasks[i].Load() != nil {
				n++
			}
		}
		return n
	}
	execute := func() pdu.Tag {
		tag := e.post(Command{ID: 1, CDB: read10})[0].h.InitiatorTaskTag()
		e.p.MaxCmdSN++
		e.hears(e.response(tag, 0, nil))
		e.done()
		return tag
	}
	for range 3 * slots {
		execute()
	}
	if n := tasks(); n != 1 {
		t.Errorf("%d tasks for one command at a time", n)
	}
	if n := e.q.Room(); n != slots {
		t.Errorf("room for %d commands, want %d", n, slots)
	}
	gone := e.post(Command{ID: 2, CDB: read10})[0].h.InitiatorTaskTag()
	e.q.Cancel(2)
	e.sent()
	e.done()
	for i := range 256 * (slots - 1) {
		if tag := execute(); tag == gone {
			t.Fatalf("the tag of the canceled command comes again as that of command %d", i)
		}
	}
	if n := tasks(); n != slots {
		t.Errorf("%d of %d slots are used after a Cancel", n, slots)
	}
}

// TestPollLetsBuffersGo: an idle session keeps no buffer of its last commands alive.
func TestPollLetsBuffersGo(t *testing.T) {
	e := begin(t, usual(), 2)
	tag := e.post(Command{ID: 1, CDB: read10, In: [][]byte{make([]byte, 8), make([]byte, 8)}})[0].h.InitiatorTaskTag()
	e.hears(e.dataIn(tag, 0, 0, pdu.Final|pdu.StatusPresent, make([]byte, 16)))
	e.done()
	x := e.f.tasks[0].Load()
	for i, b := range x.list {
		if b != nil {
			t.Errorf("the task has buffer %d", i)
		}
	}
	if x.pieces != nil || e.f.rx.into.pieces != nil || e.f.tx.from.pieces != nil {
		t.Errorf("lists: task %v, receiver %v, sender %v", x.pieces, e.f.rx.into, e.f.tx.from)
	}
	if n := len(slices.DeleteFunc(slices.Clone(e.f.rx.views[:]), func(b []byte) bool { return b == nil })); n != 0 {
		t.Errorf("the receiver has %d views", n)
	}
}
