package tpt

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
)

// thing is what the model knows of an entry.
type thing struct {
	kind    Kind
	valid   bool
	pd      PD
	qp      uint32
	start   uint64
	mem     []byte
	rights  Rights
	window  WindowType
	region  STag // of a bound window
	windows int
	touch   bool
	touched bool
	mapped  []byte // memory of Map that has not been registered yet; nil: none
}

// world is a plain model of the table's verbs, by STag.
type world struct {
	t      *testing.T
	s      *stage
	luck   *rand.Rand
	pds    [2]PD
	things map[STag]*thing
	live   []STag // the STags of things
	stags  []STag // the last STags, live or not
	done   map[string]int
}

var steps = flag.Int("steps", 100000, "how many random steps to make with the verbs of the table")

// TestModel makes random steps with all verbs, and compares each answer of the table with
// that of the model.
func TestModel(t *testing.T) {
	s := newStage(t, Config{Entries: 32, Seed: [32]byte{2}})
	w := &world{t: t, s: s, luck: rand.New(rand.NewPCG(3, 4)), pds: [2]PD{s.pd, s.domain()}, things: map[STag]*thing{}, done: map[string]int{}}
	verbs := []func(){w.register, w.register, w.touch, w.alloc, w.bind, w.bind, w.bind, w.invalidate, w.local, w.reserve, w.mapping, w.mapping, w.registerWR, w.registerWR, w.deregister, w.deregister, w.rereg, w.touch, w.check, w.check, w.check, w.check}
	for range *steps {
		verbs[w.luck.IntN(len(verbs))]()
		if t.Failed() {
			return
		}
	}
	for _, verb := range []string{"reserve", "map", "register by request", "register", "alloc", "bind", "unbind", "invalidate", "local", "deregister", "rereg", "touch", "check"} {
		if w.done[verb] < min(100, *steps/1000) {
			t.Errorf("%s succeeded only %d times: the test does not try it", verb, w.done[verb])
		}
	}
}

// agree compares an answer of the table with the model's.
func (w *world) agree(verb string, got, want any) bool {
	w.t.Helper()
	if got != want {
		w.t.Errorf("%s: %v, the model says %v", verb, got, want)
	}
	ok := got == any(OK) || got == any(true)
	if ok {
		w.done[verb]++
	}
	return ok
}

func (w *world) pd() PD     { return w.pds[w.luck.IntN(20)/19] }
func (w *world) qp() uint32 { return uint32(1 + w.luck.IntN(2)) }

// stag returns an STag: mostly one of a live thing of the kind, sometimes an old one or
// a wrong one. KindFree stands for all kinds.
func (w *world) stag(k Kind) STag {
	for range 8 {
		if len(w.live) == 0 || w.luck.IntN(60) == 0 {
			break
		}
		if stag := w.live[w.luck.IntN(len(w.live))]; k == KindFree || w.things[stag].kind == k {
			return stag
		}
	}
	if len(w.stags) == 0 || w.luck.IntN(3) == 0 {
		return STag(w.luck.Uint32N(64 << 8))
	}
	if from := len(w.stags) - 40; from > 0 {
		w.stags = w.stags[from:]
	}
	return w.stags[w.luck.IntN(len(w.stags))]
}

func (w *world) knows(stag STag, x *thing) {
	w.things[stag] = x
	w.live, w.stags = append(w.live, stag), append(w.stags, stag)
}

func (w *world) forgets(stag STag) {
	delete(w.things, stag)
	w.live = slices.DeleteFunc(w.live, func(s STag) bool { return s == stag })
}

func (w *world) register() {
	r := Region{PD: w.pd(), Start: uint64(w.luck.IntN(9)), Rights: Rights(w.luck.IntN(int(allRights)+1)) | LocalWrite, OneTouch: w.luck.IntN(4) == 0}
	if r.Memory = make([]byte, 64); w.luck.IntN(2) == 0 {
		r.Memory = w.s.heap[:64]
	}
	if w.luck.IntN(4) == 0 {
		r.QP = w.qp()
	}
	stag, err := w.s.Register(r)
	if w.agree("register", err == nil, len(w.things) < 31) {
		w.knows(stag, &thing{kind: KindRegion, valid: true, pd: r.PD, qp: r.QP, start: r.Start, mem: r.Memory, rights: r.Rights | LocalRead, touch: r.OneTouch})
	}
}

func (w *world) alloc() {
	pd, k := w.pd(), WindowType(1+w.luck.IntN(3))
	stag, err := w.s.AllocWindow(pd, k)
	if w.agree("alloc", err == nil, len(w.things) < 31) {
		w.knows(stag, &thing{kind: KindWindow, pd: pd, window: k})
	}
}

func (w *world) reserve() {
	pd, qp := w.pd(), uint32(w.luck.IntN(3))
	stag, err := w.s.Reserve(pd, qp)
	if w.agree("reserve", err == nil, len(w.things) < 31) {
		w.knows(stag, &thing{kind: KindRegion, pd: pd, qp: qp})
	}
}

func (w *world) mapping() {
	stag, pd, mem := w.stag(KindRegion), w.pd(), w.s.heap[64:][:1+w.luck.IntN(64)]
	if w.luck.IntN(2) == 0 {
		mem = make([]byte, 64)
	}
	x := w.things[stag]
	next, err := w.s.Map(stag, pd, mem)
	if !w.agree("map", err == nil, x != nil && x.kind == KindRegion && !x.valid && x.pd == pd && x.windows == 0) {
		return
	}
	if next == stag || next.Index() != stag.Index() {
		w.t.Errorf("%v after %v", next, stag)
	}
	w.forgets(stag)
	w.knows(next, x)
	x.mapped, x.rights, x.touch, x.touched = mem, 0, false, false
}

// registerWR does what a work request does that registers.
func (w *world) registerWR() {
	r := Registration{STag: w.stag(KindRegion), PD: w.pd(), QP: w.qp(), Start: uint64(w.luck.IntN(9)), Len: uint64(1 + w.luck.IntN(70)), Rights: Rights(w.luck.IntN(int(allRights) + 1)), OneTouch: w.luck.IntN(4) == 0}
	x, want := w.things[r.STag], OK
	switch {
	case x == nil || x.kind != KindRegion:
		want = BadSTag
	case x.pd != r.PD || x.qp != 0 && x.qp != r.QP:
		want = WrongPD
	case x.valid || x.windows != 0:
		want = Bound
	case r.Rights&changing != 0 && r.Rights&LocalWrite == 0:
		want = NoRight
	case r.Len > uint64(len(x.mapped)):
		want = NoSpace
	}
	if w.agree("register by request", w.s.StartRegister(&r), want) {
		x.valid, x.mem, x.start, x.rights, x.touch, x.mapped = true, x.mapped[:r.Len], r.Start, r.Rights|LocalRead, r.OneTouch, nil
	}
}

// unbound ends the binding of a window in the model.
func (w *world) unbound(x *thing) {
	if x.kind == KindWindow && x.valid {
		w.things[x.region].windows--
	}
	x.valid = false
}

// window returns the STag of the window at the index, or 0.
func (w *world) window(index uint32) STag {
	for _, stag := range w.live {
		if stag.Index() == index && w.things[stag].kind == KindWindow {
			return stag
		}
	}
	return 0
}

func (w *world) bind() {
	b := Binding{
		STag: w.stag(KindWindow), Region: w.stag(KindRegion), PD: w.pd(), QP: w.qp(), TO: uint64(w.luck.IntN(30)), Len: uint64(1 + w.luck.IntN(40)),
		Rights: Rights(w.luck.IntN(128)) & (remote | RemoteInvalidate), ZeroBased: w.luck.IntN(2) == 0, OneTouch: w.luck.IntN(4) == 0,
	}
	if w.luck.IntN(8) == 0 {
		b.Len = 0
	}
	old, x, want := w.window(b.STag.Index()), (*thing)(nil), OK
	x, b.STag = w.things[old], NewSTag(b.STag.Index(), uint8(w.luck.Uint32()))
	r := w.things[b.Region]
	switch {
	case x == nil || x.kind != KindWindow:
		want = BadSTag
	case x.pd != b.PD || x.valid && x.qp != 0 && x.qp != b.QP:
		want = WrongPD
	case b.Len == 0:
	case x.window != Type1 && x.valid:
		want = Bound
	case r == nil || r.kind != KindRegion || !r.valid:
		want = BadSTag
	case r.pd != b.PD || r.qp != 0 && r.qp != b.QP:
		want = WrongPD
	case r.rights&Bind == 0 || b.Rights&changing != 0 && r.rights&LocalWrite == 0:
		want = NoRight
	case b.TO < r.start || b.TO+b.Len > r.start+uint64(len(r.mem)):
		want = OutOfBounds
	}
	_, f := w.s.Bind(&b)
	verb := "bind"
	if b.Len == 0 {
		verb = "unbind"
	}
	if !w.agree(verb, f, want) {
		return
	}
	w.unbound(x)
	w.forgets(old)
	w.knows(b.STag, x)
	if b.Len == 0 {
		x.qp, x.rights = 0, 0
		return
	}
	r.windows++
	x.valid, x.region, x.qp, x.touched, x.touch = true, b.Region, r.qp, false, b.OneTouch
	x.start, x.rights, x.mem = b.TO, b.Rights, r.mem[b.TO-r.start:][:b.Len]
	if b.ZeroBased {
		x.start = 0
	}
	if x.window != Type1 {
		x.qp = b.QP
	}
}

// revocable says in the model who may invalidate.
func (w *world) revocable(x *thing, pd PD, qp uint32) Fault {
	switch {
	case x == nil:
		return BadSTag
	case x.pd != pd || (x.valid || x.kind == KindRegion) && x.qp != 0 && x.qp != qp:
		return WrongPD
	case x.windows != 0:
		return Bound
	}
	return OK
}

func (w *world) invalidate() {
	stag, pd, qp := w.stag(KindFree), w.pd(), w.qp()
	x := w.things[stag]
	want := w.revocable(x, pd, qp)
	if want == OK && x.rights&RemoteInvalidate == 0 && (x.qp == 0 || x.rights&remote == 0) {
		want = NoRight
	}
	if _, f := w.s.StartInvalidate(stag, pd, qp); w.agree("invalidate", f, want) {
		w.unbound(x)
	}
}

func (w *world) local() {
	stag, pd, qp := w.stag(KindFree), w.pd(), w.qp()
	x := w.things[stag]
	if _, f := w.s.StartLocalInvalidate(stag, pd, qp); w.agree("local", f, w.revocable(x, pd, qp)) {
		w.unbound(x)
	}
}

func (w *world) deregister() {
	stag, pd := w.stag(KindFree), w.pd()
	x := w.things[stag]
	err := w.s.Deregister(stag, pd)
	if w.agree("deregister", err == nil, x != nil && x.pd == pd && x.windows == 0) {
		w.unbound(x)
		w.forgets(stag)
	}
}

func (w *world) rereg() {
	stag, pd, r := w.stag(KindRegion), w.pd(), Rights(w.luck.IntN(int(allRights)+1))|LocalWrite
	x, touch := w.things[stag], w.luck.IntN(4) == 0
	err := w.s.Reregister(stag, pd, r, touch)
	if w.agree("rereg", err == nil, x != nil && x.kind == KindRegion && x.valid && x.pd == pd && x.windows == 0) {
		x.rights, x.touch, x.touched = r|LocalRead, touch, false
	}
}

func (w *world) touch() {
	stag := w.stag(KindFree)
	x := w.things[stag]
	live := x != nil && x.valid
	if w.luck.IntN(2) == 0 {
		if w.agree("touch", w.s.Touch(stag, 1), live && x.touch && !x.touched) {
			x.touched = true
		}
		return
	}
	if live && x.windows != 0 {
		return // the caller spends only what a peer has used, and windows stay bound to it
	}
	if _, ok := w.s.Spend(stag); w.agree("spend", ok, live) {
		w.unbound(x)
	}
}

func (w *world) check() {
	a := Access{STag: w.stag(KindFree), PD: w.pd(), QP: w.qp(), Right: Rights(1 << w.luck.IntN(6)), TO: uint64(w.luck.IntN(20)), Len: uint32(1 + w.luck.IntN(20))}
	x, want := w.things[a.STag], OK
	switch {
	case x == nil || !x.valid || x.kind == KindWindow && a.Right&^remote != 0:
		want = BadSTag
	case x.pd != a.PD || x.qp != 0 && x.qp != a.QP:
		want = WrongPD
	case x.rights&a.Right == 0:
		want = NoRight
	case a.TO < x.start || a.TO+uint64(a.Len) > x.start+uint64(len(x.mem)):
		want = OutOfBounds
	}
	mem, f := w.s.Check(a)
	if w.agree("check", f, want) && (len(mem) != int(a.Len) || &mem[0] != &x.mem[a.TO-x.start]) {
		w.t.Errorf("%+v: %d octets of other memory", a, len(mem))
	}
	info, ok := w.s.Entry(a.STag.Index())
	if x != nil && (!ok || info.STag != a.STag || info.Valid != x.valid || info.Windows != uint32(x.windows) || info.Touched != (x.touched && x.valid)) {
		w.t.Errorf("%+v, the model says %+v", info, *x)
	}
}
