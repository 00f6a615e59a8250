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

// raw selects how frames travel without a TCP.
type raw string

const (
	notRaw    raw = ""
	rawBare   raw = "raw AF_XDP"       // stag's rings: frames are sent unchanged and counted
	rawCopied raw = "raw + copy + CRC" // stag's rings: each side also copies the payload and computes its CRC32C
	rawAsavie raw = "raw asavie/xdp"   // the rings of another library, otherwise as rawBare
)

// A raw frame has the length of stag's full segments at its MTU. It carries the same
// amount of payload: the MTU without the headers of IPv4 and TCP and the timestamps.
//
//	| Ethernet |    number    |  CRC32C  |  unused … | payload … |
//	0          14             22         26          66
const (
	rawNumber  = ethLen
	rawCRC     = rawNumber + 8
	rawHeader  = ethLen + 20 + 20 + 12
	maxRawMTU  = 3506 // the largest frame that a veth passes in one piece; stag's segments have this length at larger MTUs
	rawRoom    = rawHeader - ethLen
	rawPayload = 128 << 10 // size of the memory that payload is copied from or to, in octets
)

const (
	// rawWindow is how many frames a sender may have in flight. A veth drops frames
	// beyond its ring of 256. rawWindow is smaller by a margin.
	rawWindow = 232
	// rawBatch is the largest number of frames that a step moves.
	rawBatch = 64
	// rawAhead is how many frames a sender may have sent that the receiver has not yet
	// taken. rawAhead is below the number of chunks that the receiver's fill ring has
	// at first. Without this limit a fifth of the frames would be dropped if NAPI runs in
	// threads.
	rawAhead = 480
	// rawPatience is the number of sleeps without progress after which the missing
	// frames count as lost.
	rawPatience = 50
	// rawSleep is how long an idle side sleeps. If an idle side slept in poll, the other
	// side would have to wake it, and would lose a third of its rate.
	rawSleep = 20 * time.Microsecond
)

// rawEnd is one side of a raw stream. Only the side's goroutine uses it.
type rawEnd interface {
	step(most int) (moved int, err error) // moves as many frames as possible without waiting, at most rawBatch
	counts() (work, error)                // returns the work so far
	close() error
}

// rawStream is a running stream of frames in one direction.
type rawStream struct {
	*stage
	payload uint64 // octets of payload in a frame
	sides   [2]*rawSide
}

// rawSide is one side of a raw stream with the goroutine that runs it.
type rawSide struct {
	end    rawEnd
	peer   *rawSide      // a sender's receiver, which the sender must not get too far ahead of; nil for a receiver
	moved  atomic.Uint64 // number of frames sent or received
	over   atomic.Bool
	lost   uint64 // number of missing frames that a sender has given up
	sleeps int    // number of sleeps since the last progress
	asks   chan chan<- answer
	done   chan struct{}
	err    error // the error that ended the goroutine; valid when done is closed
}

type answer struct {
	work
	err error
}

// rawMTU returns the length of a raw frame without its Ethernet header.
func (s setting) rawMTU() int {
	if s.octets != 0 {
		return s.octets + rawRoom
	}
	return min(s.mtu, maxRawMTU)
}

// startRaw starts a stream of frames from side A to side B.
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

// run moves frames until stop is called. Before it sleeps, run yields its processor and
// tries once more, as an engine does.
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
			yielded, s.sleeps = false, 0
		case !yielded:
			unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
			yielded = true
		default:
			sleepRaw()
			s.sleeps++
		}
	}
}

// allowed returns how many frames the side may move now. A sender may be at most
// rawAhead frames ahead of the receiver. Frames that are missing for long count as
// lost.
func (s *rawSide) allowed() int {
	if s.peer == nil {
		return rawBatch
	}
	ahead := s.moved.Load() - s.peer.moved.Load() - s.lost
	if ahead >= rawAhead && s.sleeps > rawPatience {
		s.lost += ahead
		s.sleeps = 0
	}
	return int(min(rawBatch, rawAhead-min(ahead, rawAhead)))
}

func sleepRaw() {
	ts := unix.NsecToTimespec(int64(rawSleep))
	unix.Nanosleep(&ts, nil) // a signal may end the sleep early
}

func (s *rawStream) octets() uint64 { return s.sides[to].moved.Load() * s.payload }

// work asks both sides for their counts so far.
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
		return work{}, errors.New("the stream has ended") // the method stop returns the reason
	case <-ctx.Done():
		return work{}, ctx.Err()
	}
}

// stop ends both sides. It returns the error of a side that had failed before.
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

// rawHead returns the Ethernet header of frames from side.
func (s *stage) rawHead(side pair.Side) (h [ethLen]byte) {
	copy(h[:], s.pair.Ends[side.Other()].MAC)
	copy(h[6:], s.pair.Ends[side].MAC)
	h[ethType], h[ethType+1] = rawType>>8, rawType&0xff
	return h
}
