package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// raw says how frames travel without a TCP.
type raw string

const (
	notRaw    raw = ""
	rawBare   raw = "raw AF_XDP"       // our rings: frames are sent as they are, and counted
	rawCopied raw = "raw + copy + CRC" // and payload is copied, and its CRC32C computed, once by each side
	rawAsavie raw = "raw asavie/xdp"   // rings that are not ours, as rawBare
)

// A raw frame is as long as stag's full segments at its MTU, and carries as
// much payload: what IPv4, TCP and its timestamps leave.
//
//	| Ethernet |    number    |  CRC32C  |  unused … | payload … |
//	0          14             22         26          66
const (
	rawNumber  = ethLen
	rawCRC     = rawNumber + 8
	rawHeader  = ethLen + 20 + 20 + 12
	maxRawMTU  = 3506 // a veth hands over no more in one piece, and stag's segments are as long at larger MTUs
	rawRoom    = rawHeader - ethLen
	rawPayload = 128 << 10 // octets of memory that copied payload comes from and goes to
)

const (
	// rawWindow is how many frames a sender has in flight: as many as fit into
	// the veth's ring of 256, and a margin. What does not fit would be lost.
	rawWindow = 232
	// rawBatch is how many frames a step moves at most.
	rawBatch = 64
	// rawAhead is how many frames a sender is ahead of what the receiver has
	// taken: no more than there are chunks in its fill ring at first. Without
	// that bound a fifth of what is sent would be dropped where NAPI has threads.
	rawAhead = 480
	// rawPatience is after how many naps without progress frames that the
	// receiver lacks count as lost.
	rawPatience = 50
	// rawNap is how long a side sleeps that has nothing to do. To sleep in poll
	// would cost the side that wakes it a third of its rate.
	rawNap = 20 * time.Microsecond
)

// rawEnd is one side of a raw stream. It belongs to the side's goroutine.
type rawEnd interface {
	step(most int) (moved int, err error) // moves what can be moved at once, up to rawBatch frames
	counts() (work, error)                // so far
	close() error
}

// rawStream is frames in one direction, running.
type rawStream struct {
	*stage
	payload uint64 // octets in a frame
	sides   [2]*rawSide
}

// rawSide is a side with the goroutine that runs it.
type rawSide struct {
	end   rawEnd
	peer  *rawSide      // of a sender: whose pace it keeps; nil otherwise
	moved atomic.Uint64 // frames
	over  atomic.Bool
	lost  uint64 // of a sender: frames that it waits for no longer
	naps  int    // one after the other
	asks  chan chan<- answer
	done  chan struct{}
	err   error // what ended the goroutine; valid after done
}

type answer struct {
	work
	err error
}

// rawMTU is the length of a raw frame without its Ethernet header.
func (s setting) rawMTU() int {
	if s.octets != 0 {
		return s.octets + rawRoom
	}
	return min(s.mtu, maxRawMTU)
}

// startRaw lets side A send to side B.
func startRaw(st *stage) (_ *rawStream, err error) {
	s := &rawStream{stage: st, payload: uint64(st.rawMTU() - rawRoom)}
	for _, side := range []pair.Side{to, from} {
		end, err := s.open(side)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("side %v: %w", side, err), s.stop())
		}
		s.sides[side] = &rawSide{end: end, peer: s.sides[to], asks: make(chan chan<- answer), done: make(chan struct{})}
		go s.sides[side].run()
	}
	return s, nil
}

func (s *rawStream) open(side pair.Side) (end rawEnd, err error) {
	err = s.pair.Do(side, func() (err error) {
		if s.raw == rawAsavie {
			end, err = openAsavie(s.stage, side)
		} else {
			end, err = openOwn(s.stage, side)
		}
		return err
	})
	return end, err
}

// run moves frames until the side is over. Like an engine it looks once more
// after it has let others run, before it sleeps.
func (s *rawSide) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.done)
	for yielded := false; !s.over.Load() && s.err == nil; {
		select {
		case ask := <-s.asks:
			w, err := s.end.counts()
			ask <- answer{w, err}
		default:
		}
		n, err := s.end.step(s.allowed())
		s.moved.Add(uint64(n))
		switch {
		case err != nil:
			s.err = err
		case n != 0:
			yielded, s.naps = false, 0
		case !yielded:
			unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			yielded = true
		default:
			nap()
			s.naps++
		}
	}
}

// allowed is how many frames may move now. A sender is no further ahead of the
// receiver than that has room for; what is missing for long counts as lost.
func (s *rawSide) allowed() int {
	if s.peer == nil {
		return rawBatch
	}
	ahead := s.moved.Load() - s.peer.moved.Load() - s.lost
	if ahead >= rawAhead && s.naps > rawPatience {
		s.lost += ahead
		s.naps = 0
	}
	return int(min(rawBatch, rawAhead-min(ahead, rawAhead)))
}

func nap() {
	ts := unix.NsecToTimespec(int64(rawNap))
	unix.Nanosleep(&ts, nil) // a signal may end it early
}

func (s *rawStream) octets() uint64 { return s.sides[to].moved.Load() * s.payload }

// work asks both sides what they have counted so far.
func (s *rawStream) work(ctx context.Context) (all [2]work, err error) {
	for i, side := range s.sides {
		if all[i], err = side.ask(ctx); err != nil {
			return all, fmt.Errorf("side %v: %w", pair.Side(i), err)
		}
	}
	return all, nil
}

func (s *rawSide) ask(ctx context.Context) (work, error) {
	ask := make(chan answer, 1)
	select {
	case s.asks <- ask:
		a := <-ask
		return a.work, a.err
	case <-s.done:
		return work{}, errors.New("the stream has ended") // stop says why
	case <-ctx.Done():
		return work{}, ctx.Err()
	}
}

// stop ends both sides. One that broke before is an error.
func (s *rawStream) stop() error {
	var errs []error
	for i, side := range s.sides {
		if side == nil {
			continue
		}
		side.over.Store(true)
		<-side.done
		if err := errors.Join(side.err, side.end.close()); err != nil {
			errs = append(errs, fmt.Errorf("side %v: %w", pair.Side(i), err))
		}
	}
	return errors.Join(errs...)
}

// rawHead is the Ethernet header of frames from side.
func (s *stage) rawHead(side pair.Side) (h [ethLen]byte) {
	copy(h[:], s.pair.Ends[side.Other()].MAC)
	copy(h[6:], s.pair.Ends[side].MAC)
	h[ethType], h[ethType+1] = rawType>>8, rawType&0xff
	return h
}
