package reach

import (
	"sync"
	"sync/atomic"
)

const (
	stageLen  = 64 << 10 // octets of a Batch or a Stage
	batchMost = 256      // pieces of a Batch
)

// Batch collects octets for memory that is not mapped, and writes them with few system
// calls. It has a copy of the octets, so that their frames can be used again. M is what the
// caller wants to know about a piece that could not be written. Only one goroutine at a time
// may use a Batch.
type Batch[M any] struct {
	octets []byte // the octets of all pieces, in order
	pieces []piece[M]
	runs   []run
}

// piece is the octets of one Add.
type piece[M any] struct {
	mark M
	end  int // in octets
}

// run is octets that belong to consecutive addresses.
type run struct {
	space *Space
	addr  uint64
	from  int // in octets
	to    int
}

// Add collects b for the memory mem, and returns how many octets it has taken. Fewer than
// all means that the Batch is full: flush it and add the rest. The octets are written in the
// order of the Adds.
func (b *Batch[M]) Add(mem, octets []byte, mark M) (n int) {
	p, ok := Find(mem)
	if !ok {
		panic("reach: octets for memory that is no reservation")
	}
	at := len(b.octets)
	n = min(len(octets), stageLen-at)
	if n == 0 || len(b.pieces) == batchMost {
		return 0
	}
	b.octets = append(b.octets, octets[:n]...)
	b.pieces = append(b.pieces, piece[M]{mark, at + n})
	if i := len(b.runs) - 1; i >= 0 && b.runs[i].space == p.space && b.runs[i].addr+uint64(at-b.runs[i].from) == p.addr {
		b.runs[i].to += n
	} else {
		b.runs = append(b.runs, run{p.space, p.addr, at, at + n})
	}
	return n
}

// Empty reports whether nothing has been added since the last Flush.
func (b *Batch[M]) Empty() bool { return len(b.pieces) == 0 }

// Flush writes everything that was added, and empties the Batch. ok is false if octets could
// not be written. failed is the mark of the piece with the first of them. What was added
// behind it is not written either.
func (b *Batch[M]) Flush() (failed M, ok bool) {
	ok = true
	for _, r := range b.runs {
		if n := r.space.write(r.addr, b.octets[r.from:r.to]); n != r.to-r.from {
			failed, ok = b.mark(r.from+n), false
			break
		}
	}
	b.drop()
	return failed, ok
}

// drop empties the Batch.
func (b *Batch[M]) drop() {
	clear(b.runs)
	b.octets, b.pieces, b.runs = b.octets[:0], b.pieces[:0], b.runs[:0]
}

// mark returns the mark of the piece with the octet at.
func (b *Batch[M]) mark(at int) M {
	i := 0
	for b.pieces[i].end <= at {
		i++
	}
	return b.pieces[i].mark
}

// Pool has Batches and Stages that nobody uses. A step borrows one when it first needs it, so
// that a process without clients has none. A Pool is safe for concurrent use.
type Pool[M any] struct {
	mu      sync.Mutex
	batches []*Batch[M]
	stages  []*Stage
	lent    atomic.Int64 // Stages
}

// mostIdle limits the Batches and the Stages that a Pool keeps.
const mostIdle = 64

// Batch lends an empty Batch.
func (p *Pool[M]) Batch() *Batch[M] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.batches) - 1; n >= 0 {
		b := p.batches[n]
		p.batches = p.batches[:n]
		return b
	}
	return &Batch[M]{octets: make([]byte, 0, stageLen), pieces: make([]piece[M], 0, batchMost), runs: make([]run, 0, batchMost)}
}

// Return takes an empty Batch back.
func (p *Pool[M]) Return(b *Batch[M]) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.batches) < mostIdle {
		p.batches = append(p.batches, b)
	}
}

// Stage lends an empty Stage.
func (p *Pool[M]) Stage() *Stage {
	p.lent.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.stages) - 1; n >= 0 {
		s := p.stages[n]
		p.stages = p.stages[:n]
		return s
	}
	return &Stage{octets: make([]byte, stageLen)}
}

// ReturnStage takes a Stage back.
func (p *Pool[M]) ReturnStage(s *Stage) {
	s.Drop()
	p.lent.Add(-1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.stages) < mostIdle {
		p.stages = append(p.stages, s)
	}
}

// mostKept is how many Stages messages may keep between steps: 64 MiB.
const mostKept = 1024

// Scarce reports whether a Stage should be returned at the end of the step.
func (p *Pool[M]) Scarce() bool { return p.lent.Load() > mostKept }
