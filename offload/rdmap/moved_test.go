package rdmap

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

// moving makes every test of a script move its QP before each turn.
var moving = flag.Bool("moving", false, "move the QP of a script to a fresh QP, by its encoded state, before each turn")

// move gives the QP, and the CQ of both queues, to fresh ones with nothing but the encoded
// octets. The clock of the new ones is ahead by shift.
func (s *script) move(shift clock.Instant) {
	s.Helper()
	if s.ended != s.q.Dead() {
		s.Fatal("the stream has ended, and the QP is not dead")
	}
	was := s.q
	octets, err := was.Image(s.now).Encode(nil)
	if err != nil {
		s.Fatal(err)
	}
	send, recv := was.Places()
	waiting := s.cq.Export(func(p *work.Places) uint32 { return map[*work.Places]uint32{send: 1, recv: 2}[p] })
	s.now += shift
	image, err := ParseImage(octets, s.now)
	if err != nil {
		s.Fatal(err)
	}
	if again, err := image.Encode(nil); err != nil || !bytes.Equal(octets, again) {
		s.Fatalf("the octets of the image changed on their way: %v", err)
	}
	c := was.cfg
	told := s.cq.News.Fire
	s.cq = work.NewCQ(int(waiting.Size), s.board)
	s.cq.News.Fire = told
	c.SendCQ, c.RecvCQ = s.cq, s.cq
	if s.q, err = Import(c, image); err != nil {
		s.Fatal(err)
	}
	send, recv = s.q.Places()
	if err := s.cq.Import(&waiting, func(name uint32) *work.Places { return []*work.Places{nil, send, recv}[name] }); err != nil {
		s.Fatal(err)
	}
	s.q.News.Fire, s.q.Wants.Fire = was.News.Fire, was.Wants.Fire
	s.board.Deliver()
	*was = QP{} // nothing of it can be used by accident
}

// TestScriptsMoved runs the other tests of this package once more, with a move of each
// script's QP before each turn: no test sees a difference.
func TestScriptsMoved(t *testing.T) {
	c := exec.Command(os.Args[0], "-moving", "-test.skip", "^(TestScriptsMoved|TestMovedAtEveryOctet|TestCoursesMoved|TestReactiveCourses|TestScriptsForeign)$")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c, err, out[max(0, len(out)-8000):])
	}
}

// TestCoursesMoved plays courses in which the QP moves at random, and the clock with it.
func TestCoursesMoved(t *testing.T) {
	for seed := range uint64(300) {
		luck := rand.New(rand.NewPCG(seed, 2))
		c := newCourse(t)
		for range 300 {
			actions[luck.IntN(len(actions))](c, byte(luck.IntN(32)))
			c.compare()
			if luck.IntN(4) == 0 {
				c.move(clock.Instant(luck.Int64N(1e9)))
			}
		}
		c.play(nil)
	}
}

// dialogue is two QPs that talk over two pipes.
type dialogue struct {
	fault bool
	ends  [2]*script
	got   [2]int               // octets that have been delivered to an end
	moved [2]int               // an end moves when it has got so many octets; -1: never
	done  [2][]work.Completion // completions of the send queue of an end, and then those of its receive queue
	told  [2][]work.Completion
}

// newDialogue connects two QPs and posts work to both. With a fault, a last request of the
// first one ends the connection.
func newDialogue(t testing.TB, markers, fault bool) *dialogue {
	d := &dialogue{fault: fault, moved: [2]int{-1, -1}}
	var spare [2]tpt.STag
	for side := range d.ends {
		s := open(t, withRFC7306, withEMSS(200), withDepths(2, 2), func(s *setup) {
			s.agree.Initiator = side == 0
			s.agree.SendMarkers, s.agree.ReceiveMarkers = markers, markers
		})
		d.ends[side] = s
		spare[side], _ = s.region(64, s.pd, every)
		if err := s.table.Deregister(s.all, s.pd); err != nil {
			t.Fatal(err)
		}
		s.all = s.register(tpt.Region{PD: s.pd, Memory: s.mem, Start: regionStart, Rights: every | tpt.RemoteAtomic})
		for i := range 6 {
			s.q.PostRecv(work.RecvWR{ID: 100 + uint64(i), SGL: []work.SGE{s.at(1000+i*100, 70), s.at(2000+i*300, 300)}})
		}
	}
	for side, s := range d.ends {
		d.posts(s, d.ends[1-side], spare[1-side])
	}
	return d
}

// posts posts requests of all kinds to s. invalid is the region of the peer p that one of
// them invalidates.
func (d *dialogue) posts(s, p *script, invalid tpt.STag) {
	const told, fenced = work.Signaled, work.Signaled | work.Fence
	far := func(off int) uint64 { return regionStart + uint64(off) }
	s.q.PostSend(
		work.SendWR{ID: 1, Op: work.WRSend, Flags: told, SGL: []work.SGE{s.at(0, 150), s.at(300, 40)}},
		work.SendWR{ID: 2, Op: work.WRWrite, SGL: []work.SGE{s.at(7, 300), s.at(10, 123)}, RKey: p.all, RemoteAddr: far(5000)},
		work.SendWR{ID: 3, Op: work.WRRead, Flags: told, SGL: []work.SGE{s.at(6000, 333)}, RKey: p.all, RemoteAddr: far(40)},
		work.SendWR{ID: 4, Op: work.WRFetchAdd, Flags: told, SGL: []work.SGE{s.at(7000, 8)}, RKey: p.all, RemoteAddr: far(7008), CompareAdd: 5},
		work.SendWR{ID: 5, Op: work.WRSendInvalidate, Flags: told | work.Solicited, Inline: []byte("invalidates"), Invalidate: invalid},
		work.SendWR{ID: 6, Op: work.WRCompareSwap, Flags: fenced, SGL: []work.SGE{s.at(7016, 8)}, RKey: p.all, RemoteAddr: far(7024), CompareAdd: 1, Swap: 2},
		work.SendWR{ID: 7, Op: work.WRWriteImm, Flags: told, Inline: []byte("inline data of a Write"), RKey: p.all, RemoteAddr: far(8000), Imm: 77},
		work.SendWR{ID: 8, Op: work.WRRead, SGL: []work.SGE{s.at(9000, 300)}, RKey: p.all, RemoteAddr: far(9500)},
		work.SendWR{ID: 9, Op: work.WRSend, Flags: fenced, SGL: []work.SGE{s.at(500, 350)}},
	)
}

// play lets both ends do everything, with the fault behind the rest.
func (d *dialogue) play() {
	d.run()
	if s := d.ends[0]; d.fault {
		s.q.PostSend(work.SendWR{ID: 10, Op: work.WRWrite, Flags: work.Signaled, SGL: []work.SGE{s.at(0, 9)}, RKey: peerSTag})
		d.run()
	}
}

// run delivers what the two ends send, until neither sends any more.
func (d *dialogue) run() {
	for idle := 0; idle < 3; idle++ {
		for side, s := range d.ends {
			s.turn()
			for len(d.ends[1-side].st.out) != 0 {
				d.deliver(side)
				idle = 0
			}
			if from := d.ends[1-side].st; s.ended {
			} else if from.killed {
				s.fault(stream.ErrReset)
			} else if from.shut && !s.st.fin {
				s.finishes()
				idle = 0
			}
			d.poll(side)
		}
	}
}

// deliver delivers the oldest octets for side, up to the place at which side moves.
func (d *dialogue) deliver(side int) {
	s, from := d.ends[side], d.ends[1-side].st
	b := from.out[0]
	from.out = from.out[1:]
	if at := d.moved[side] - d.got[side]; at >= 0 && at < len(b) {
		from.out = slices.Insert(from.out, 0, b[at:])
		b = b[:at]
		d.moved[side] = -1
		defer func() { // behind the octets
			if !s.ended {
				s.move(1e9)
			}
		}()
	}
	if d.got[side] += len(b); len(b) != 0 && !s.ended {
		s.gets(b)
	}
}

func (d *dialogue) poll(side int) {
	list := make([]work.Completion, 64)
	for _, c := range list[:d.ends[side].cq.Poll(list)] {
		if c.Op >= work.WCRecv {
			d.told[side] = append(d.told[side], c)
		} else {
			d.done[side] = append(d.done[side], c)
		}
	}
}

// closes ends the connection and compares the dialogue with one in which nothing moved.
func (d *dialogue) closes(want *dialogue) {
	t := d.ends[0].TB
	t.Helper()
	for _, s := range d.ends {
		s.q.Disconnect()
	}
	d.run()
	for side, s := range d.ends {
		w := want.ends[side]
		got, counts := s.q.Stats(), w.q.Stats()
		for _, c := range []*Stats{&got, &counts} {
			c.MostReadsIn, c.MostReadsOut = 0, 0 // they depend on the cuts of the stream
		}
		switch {
		case !s.ended || s.q.State() != w.q.State() || s.q.Cause() != w.q.Cause():
			t.Fatalf("end %d: state %v, cause %+v, want %v, %+v", side, s.q.State(), s.q.Cause(), w.q.State(), w.q.Cause())
		case !bytes.Equal(s.mem, w.mem):
			t.Fatalf("end %d: its memory is another one", side)
		case !slices.Equal(d.done[side], want.done[side]) || !slices.Equal(d.told[side], want.told[side]):
			t.Fatalf("end %d: completions\n%v\n%v\nwant\n%v\n%v", side, d.done[side], d.told[side], want.done[side], want.told[side])
		case got != counts:
			t.Fatalf("end %d: counters\n%+v\nwant\n%+v", side, got, counts)
		}
	}
}

// TestMovedAtEveryOctet: a QP moves when it has received exactly so many octets, and when
// it has emitted exactly so many FPDUs. Both ends see what they see without a move.
func TestMovedAtEveryOctet(t *testing.T) {
	for _, kind := range []struct {
		name           string
		markers, fault bool
	}{{"plain", false, false}, {"Markers", true, false}, {"Terminate", false, true}} {
		t.Run(kind.name, func(t *testing.T) {
			want := newDialogue(t, kind.markers, kind.fault)
			want.play()
			want.closes(want)
			if state := map[bool]State{false: Idle, true: Errored}[kind.fault]; want.ends[0].q.State() != state || len(want.done[1]) < 7 {
				t.Fatalf("state %v, %d requests have completed", want.ends[0].q.State(), len(want.done[1]))
			}
			for side := range want.ends {
				for at := 0; at <= want.got[side]; at++ {
					d := newDialogue(t, kind.markers, kind.fault)
					d.moved[side] = at
					d.play()
					if d.closes(want); d.moved[side] >= 0 && at < want.got[side] {
						t.Fatalf("end %d has not moved at octet %d", side, at)
					}
				}
				for n := 0; n <= int(want.ends[side].q.Stats().FPDUsOut); n++ {
					d := newDialogue(t, kind.markers, kind.fault)
					d.ends[side].st.room = n
					d.run()
					if s := d.ends[side]; !s.ended {
						s.move(1e9)
						s.st.room = -1
					}
					d.play()
					d.closes(want)
				}
			}
		})
	}
}
