package rdmap

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/offload/mpa"
	"github.com/stag-rdma/stag/offload/pack"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/offload/work"
)

// images returns images of QPs that are busy in many ways.
func images(t testing.TB) (all [][]byte) {
	add := func(s *script) {
		b, err := s.q.Image(s.now).Encode(nil)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	for _, markers := range []bool{false, true} {
		d := newDialogue(t, markers, false)
		for range 3 {
			for side, s := range d.ends {
				s.turn()
				for range min(3, len(d.ends[1-side].st.out)) {
					d.deliver(side)
				}
				add(s)
			}
		}
		s := d.ends[0]
		s.gets(send(99, nil))
		add(s)
		s.fault(nil)
		add(s)
	}
	add(besiege(t).script)
	return all
}

// imports makes a QP of an image of besiege or newDialogue, as far as the image allows.
func imports(t testing.TB, b []byte) (*script, error) {
	image, err := ParseImage(b, scriptStart)
	if err != nil {
		return nil, err
	}
	s := open(t, withRFC7306, withEMSS(200))
	if s.q, err = Import(s.q.cfg, image); err != nil {
		return nil, err
	}
	s.q.News.Fire = func() {}
	s.agree = image.Agreed()
	s.ended = s.q.Dead() || s.q.rx == nil
	return s, nil
}

// TestImageRefused: an image of another kind of QP, of another version, or of a QP with
// other limits is an error that says why.
func TestImageRefused(t *testing.T) {
	s := open(t)
	good := s.q.Image(s.now)
	b, err := good.Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	newer := slices.Clone(b)
	newer[4]++
	if _, err := ParseImage(newer, s.now); !errors.Is(err, pack.ErrVersion) {
		t.Errorf("a newer version: %v", err)
	}
	for n := range b {
		if _, err := ParseImage(b[:n], s.now); !errors.Is(err, pack.ErrCorrupt) {
			t.Fatalf("%d of %d octets: %v", n, len(b), err)
		}
	}
	for name, f := range map[string]change{
		"depth":    withQueues(8),
		"elements": func(s *setup) { s.MaxSGE = 3 },
		"inline":   withInline(128),
		"number":   func(s *setup) { s.Number = 8 },
	} {
		set := setup{Config: s.q.cfg}
		f(&set)
		if _, err := Import(set.Config, good); !errors.Is(err, work.ErrState) && !errors.Is(err, pack.ErrCorrupt) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	shared := s.q.cfg
	shared.Shared = new(work.SharedQueue)
	shared.Shared.Init(nil, 4, 4, s.board)
	if _, err := Import(shared, good); !errors.Is(err, work.ErrState) {
		t.Errorf("a shared receive queue instead of its own: %v", err)
	}
}

// TestOtherStream: the stream of an imported QP lacks the octets that the QP was exported
// with, so that the connection ends, and nothing worse happens.
func TestOtherStream(t *testing.T) {
	for _, markers := range []bool{false, true} {
		s := open(t, func(s *setup) { s.agree.ReceiveMarkers = markers })
		reader := s.table.Join()
		reader.Enter()
		a, _ := s.region(8, s.pd, every)
		s.receives(work.RecvWR{ID: 1})
		f := untagged(wire.OpSendInvalidate, true, uint32(a), 0, 1, 0, nil)
		if markers {
			framer := mpa.NewFramer(true, true)
			e := &pipe{emss: 1460, room: -1}
			copy(framer.Begin(e, len(f)-wire.FPDUHeadLen-wire.CRCLen), f[wire.FPDUHeadLen:])
			framer.End()
			f = e.out[0]
		}
		s.gets(f)
		if !s.q.in.held.active {
			t.Fatal("the delivery is not held")
		}
		s.move(0)
		s.st.in = nil
		reader.Leave()
		s.turn()
		s.is(Errored)
		if !s.st.killed || !errors.Is(s.q.Cause().Err, errOtherStream) {
			t.Errorf("reset %v, cause %+v", s.st.killed, s.q.Cause())
		}
		s.completes(flushed(1, work.WCRecv))
	}
}

// lives runs a QP of an image that may be damaged. Nothing panics, and the connection can
// be ended.
func lives(t testing.TB, b []byte) (accepted bool) {
	s, err := imports(t, b)
	if err != nil {
		if !errors.Is(err, pack.ErrCorrupt) && !errors.Is(err, pack.ErrVersion) && !errors.Is(err, work.ErrState) {
			t.Fatalf("refused by %v", err)
		}
		return false
	}
	if !s.ended {
		s.st.in = [][]byte{pattern(0, 7), pattern(7, 400), make([]byte, 3000)}
		s.step()
		s.pass(settleAgain)
		s.pass(lingerTime)
	}
	if !s.ended {
		s.q.Abort()
		s.turn()
	}
	s.q.FlushDead()
	if s.q.rx != nil && (!s.ended || !s.q.Dead() || !s.q.sq.Empty() && !s.q.sq.Broken()) {
		t.Fatalf("the connection cannot be ended: %v", s.q.State())
	}
	return true
}

// TestDamagedImages changes octets of images.
func TestDamagedImages(t *testing.T) {
	accepted, refused := 0, 0
	for seed, good := range images(t) {
		if !lives(t, good) {
			t.Fatalf("image %d is refused", seed)
		}
		luck := rand.New(rand.NewPCG(uint64(seed), 3))
		for range 1500 {
			b := slices.Clone(good)
			for range 1 + luck.IntN(3) {
				b[12+luck.IntN(len(b)-12)] = []byte{0, 1, 0x7f, 0x80, 0xff, byte(luck.Uint32())}[luck.IntN(6)]
			}
			if lives(t, b) {
				accepted++
			} else {
				refused++
			}
		}
	}
	if t.Logf("%d were accepted, %d refused", accepted, refused); refused == 0 || accepted == 0 {
		t.Error("the damage is not what this test is for")
	}
}

// FuzzImage reads any octets as an image.
func FuzzImage(f *testing.F) {
	for _, b := range images(f) {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) { lives(t, b) })
}
