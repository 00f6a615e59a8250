package afxdp

import (
	"fmt"
	"strings"

	"github.com/stag-rdma/stag/offload/port"
)

// holders is the set of owners of a chunk. A chunk without owners is in its pool.
type holders uint8

const (
	held holders = 1 << iota // the caller owns it: between Receive and Recycle, or between Take and Free
	away                     // the kernel owns it: in the fill ring, or in flight
)

func (h holders) String() string {
	return [...]string{"in the pool", "held by the caller", "with the kernel", "held and with the kernel"}[h&3]
}

// event is a step in the life of a chunk.
type event uint8

const (
	filled event = iota
	received
	recycled
	taken
	sent
	completed
	freed
	viewed
)

func (d event) String() string {
	return [...]string{"filled", "received", "recycled", "taken", "sent", "completed", "freed", "viewed"}[d]
}

// chunkOf returns the number of the chunk that contains the arena address addr. ok is
// false if addr is outside this queue's region.
func (q *Queue) chunkOf(addr uint64) (i uint32, ok bool) {
	off := addr - q.base // wraps to a huge offset if addr is below base
	return uint32(off >> q.shift), off < q.size
}

// rxChunk does the same as chunkOf, for receive chunks only.
func (q *Queue) rxChunk(addr uint64) (i uint32, ok bool) {
	i, ok = q.chunkOf(addr)
	return i, ok && i < q.cfg.RxFrames
}

// txChunk does the same as chunkOf, for transmit chunks only.
func (q *Queue) txChunk(addr uint64) (i uint32, ok bool) {
	i, ok = q.chunkOf(addr)
	return i, ok && i >= q.cfg.RxFrames
}

// memory returns the arena offset of chunk i.
func (q *Queue) memory(i uint32) uint64 { return q.base + uint64(i)<<q.shift }

// note adds event d to the history of chunk i if the queue keeps histories.
func (q *Queue) note(d event, i uint32) {
	if q.trace != nil {
		q.trace.add(d, i)
	}
}

// misused handles event d that the engine may not cause for frame f. misused counts f
// and leaves it unchanged. With Config.Check, misused panics.
func (q *Queue) misused(d event, f port.Frame) {
	q.count.Misused++
	if q.trace != nil {
		q.panicAbout(d, f)
	}
}

func (q *Queue) panicAbout(d event, f port.Frame) {
	i, ok := q.chunkOf(f.Addr)
	if !ok {
		panic(fmt.Sprintf("afxdp: %s: frame %+v cannot be %s: it lies outside the queue's region [%d, %d)",
			q.name, f, d, q.base, q.base+q.size))
	}
	kind := "transmit"
	if i < q.cfg.RxFrames {
		kind = "receive"
	}
	panic(fmt.Sprintf("afxdp: %s: frame %+v cannot be %s: %s chunk %d, %s; it was %s",
		q.name, f, d, kind, i, q.state[i], q.trace.story(i)))
}

const eventsKept = 8 // for each chunk

// trace holds the recent events of each chunk. It exists only with Config.Check.
type trace struct {
	events []entry // a ring of eventsKept events per chunk
	next   []uint8
	now    uint64
}

type entry struct {
	at uint64 // number of the event; all events of the queue are numbered from 1
	event
}

func newTrace(chunks uint32) *trace {
	return &trace{events: make([]entry, chunks*eventsKept), next: make([]uint8, chunks)}
}

func (t *trace) add(d event, i uint32) {
	t.now++
	t.events[i*eventsKept+uint32(t.next[i])] = entry{t.now, d}
	t.next[i] = (t.next[i] + 1) % eventsKept
}

// story describes the history of chunk i, the oldest event first.
func (t *trace) story(i uint32) string {
	var b strings.Builder
	for k := range uint32(eventsKept) {
		e := t.events[i*eventsKept+(uint32(t.next[i])+k)%eventsKept]
		if e.at == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s (#%d)", e.event, e.at)
	}
	if b.Len() == 0 {
		return "never touched"
	}
	return b.String()
}
