package session

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// world is a target with two units, the network in front of it, and what must hold. The
// target is as bad as a real one: it keeps the commands of a lost connection, and executes
// them whenever it likes, until a reset of the unit.
type world struct {
	*rapid.T
	s   *Session
	now clock.Instant

	online  bool     // between Connected and Drop
	dialing bool     // between Connect and its answer
	wire    []packet // from the initiator to the target, in order
	held    []job    // received by the target, not executed
	stale   []job    // the same, of lost connections
	answers []job    // from the target to the initiator, in order
	exp     seq.Num
	max     seq.Num
	lastSN  seq.Num // of the last command that was sent over this connection
	order   [unitCount]int

	all  []*record
	time int // counts submissions and completions
}

const unitCount = 2

// packet is a request on the wire.
type packet struct {
	kind string
	job  job
	f    pdu.Function
	lun  uint64
	ref  *record
}

// job is an execution of a command that the target owes.
type job struct {
	r       *record
	replays int // which sending of the command it is
}

// record is what the world knows of a command.
type record struct {
	c         Command
	number    int // of the submission
	outcome   Outcome
	ended     int // time of the completion; 0: none
	completed int // how often
	executed  bool
	answered  bool // the status of the present sending was delivered
	revoked   bool
}

func (w *world) record(c *Command) *record { return w.all[c.ID] }

// Mover.

func (w *world) Connect() {
	if w.dialing || w.online {
		w.Fatal("two connections")
	}
	w.dialing = true
}

func (w *world) Drop() {
	w.online, w.dialing = false, false
	// The target may have received a part of what was on the wire.
	for range rapid.IntRange(0, len(w.wire)).Draw(w.T, "received before the end") {
		w.receive()
	}
	w.stale = append(w.stale, w.held...)
	w.wire, w.held, w.answers = nil, nil, nil
}

func (w *world) Send(c *Command, sn seq.Num) {
	r := w.record(c)
	switch {
	case !w.online:
		w.Fatal("a command without a connection")
	case sn != w.lastSN.Add(1):
		w.Fatalf("CmdSN %d follows %d", sn, w.lastSN)
	case sn.After(w.max):
		w.Fatalf("CmdSN %d, and the target takes up to %d", sn, w.max)
	case r.completed != 0:
		w.Fatalf("command %d has completed and is sent", r.number)
	case r.number < w.order[c.LUN]:
		w.Fatalf("command %d is sent behind %d of its unit", r.number, w.order[c.LUN])
	}
	w.lastSN, w.order[c.LUN] = sn, r.number
	// A command of the old connection that may still change the unit must be gone.
	for _, j := range w.stale {
		if j.r.c.LUN == c.LUN && Changes(&j.r.c.CDB) {
			w.Fatalf("command %d is sent while the target may still execute %d", r.number, j.r.number)
		}
	}
	w.wire = append(w.wire, packet{kind: "command", job: job{r, int(c.replays)}})
}

func (w *world) Revoke(c *Command) { w.record(c).revoked = true }

func (w *world) Manage(f pdu.Function, lun uint64, of *Command, ref, _ seq.Num) {
	p := packet{kind: "manage", f: f, lun: lun}
	if of != nil {
		p.ref = w.record(of)
	}
	w.wire = append(w.wire, p)
}

func (w *world) Ping(seq.Num)                { w.wire = append(w.wire, packet{kind: "ping"}) }
func (w *world) Fill(seq.Num)                { w.wire = append(w.wire, packet{kind: "fill"}) }
func (w *world) Acknowledge(uint64, seq.Num) {}
func (w *world) Logout(seq.Num)              { w.wire = append(w.wire, packet{kind: "logout"}) }

// Owner.

func (w *world) Completed(c *Command, o Outcome) {
	r := w.record(c)
	w.time++
	r.completed++
	r.outcome, r.ended = o, w.time
	switch {
	case r.completed > 1:
		w.Fatalf("command %d has completed twice, at last %v", r.number, o)
	case o == Done && !r.answered:
		w.Fatalf("command %d is done without a status", r.number)
	case o == Uncertain && Repeatable(&c.CDB) && c.replays < MaxReplays:
		w.Fatalf("command %d is repeatable and uncertain", r.number)
	}
}
func (w *world) Managed(uint64, uint8, bool) {}
func (w *world) Changed(State, error)        {}
func (w *world) Notice(*pdu.Header)          {}
func (w *world) Unprotected(lun uint64, _ uint8) {
	w.Fatalf("unit %d is unprotected, and this target refuses no reset", lun)
}

// execute is what the target does with a command.
func (w *world) execute(j job) {
	r := j.r
	if r.ended != 0 && r.outcome == Done && Changes(&r.c.CDB) {
		w.Fatalf("command %d is executed behind its status", r.number)
	}
	if r.ended != 0 && r.outcome == Uncertain {
		for _, later := range w.all {
			if later.c.LUN == r.c.LUN && later.number > r.ended && later.outcome == Done && later.ended != 0 && Changes(&r.c.CDB) {
				w.Fatalf("command %d is executed behind %d, which was submitted when %d had ended", r.number, later.number, r.number)
			}
		}
	}
	r.executed = true
}

// receive gives the target the oldest request on the wire.
func (w *world) receive() {
	p := w.wire[0]
	w.wire = w.wire[1:]
	switch p.kind {
	case "command", "fill":
		w.exp = w.exp.Add(1)
		if p.kind == "command" {
			w.held = append(w.held, p.job)
		}
	case "manage":
		w.manageUnit(p)
	case "ping":
		w.later(func() { w.s.Ponged() })
	case "logout":
		w.held = nil
		w.later(func() { w.s.LoggedOut(w.now, 0) })
	}
}

// later delivers an answer that is no status at once, if the connection is there.
func (w *world) later(deliver func()) {
	if w.online {
		deliver()
	}
}

func (w *world) manageUnit(p packet) {
	keep := func(list []job) (kept []job) {
		for _, j := range list {
			if p.ref != nil && j.r != p.ref || p.ref == nil && j.r.c.LUN != p.lun {
				kept = append(kept, j)
			}
		}
		return kept
	}
	w.held = keep(w.held)
	if p.ref == nil {
		w.stale = keep(w.stale)
	}
	w.answers = keep(w.answers) // no status of an affected command follows
	w.later(func() { w.s.Managed(w.now, pdu.FunctionComplete) })
}

// deliver gives the initiator the oldest status.
func (w *world) deliver() {
	j := w.answers[0]
	w.answers = w.answers[1:]
	j.r.answered = true
	w.s.Finished(&j.r.c)
}

// step does one random thing.
func (w *world) step() {
	pick := func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(w.T, what) }
	switch action := pick(20, "action"); {
	case action < 5:
		w.time++
		r := &record{number: w.time}
		op := []byte{write, write, read, compare, sync, odd}[pick(6, "operation")]
		r.c.ID, r.c.LUN, r.c.CDB[0] = uint64(len(w.all)), uint64(pick(unitCount, "unit")), op
		w.all = append(w.all, r)
		if w.s.Submit(&r.c) != nil {
			w.all = w.all[:len(w.all)-1]
		}
	case action < 9 && len(w.wire) > 0:
		w.receive()
	case action < 12 && len(w.held) > 0:
		i := pick(len(w.held), "execute")
		j := w.held[i]
		w.held = append(w.held[:i:i], w.held[i+1:]...)
		w.execute(j)
		w.answers = append(w.answers, j)
	case action < 15 && len(w.answers) > 0:
		w.deliver()
	case action == 15 && len(w.stale) > 0:
		w.execute(w.stale[pick(len(w.stale), "stale")]) // perhaps again and again
	case action == 16 && w.online:
		w.max = w.max.Add(seq.Len(pick(4, "window")))
		w.s.Heard(w.now, w.exp, w.max)
	case action == 17 && w.online && pick(3, "lose") == 0:
		w.s.Broken(w.now, fmt.Errorf("cable"))
	case action == 18 && len(w.all) > 0:
		w.s.Cancel(w.now, &w.all[pick(len(w.all), "cancel")].c)
	default:
		w.now = w.now.Add(time.Duration(pick(3000, "ms")) * time.Millisecond)
		w.s.Tick(w.now)
		if w.dialing {
			w.answerLogin(pick(3, "login"))
		}
	}
}

func (w *world) answerLogin(result int) {
	switch result {
	case 0:
		w.dialing = false
		w.s.Failed(w.now, fmt.Errorf("connection refused"))
	case 1:
		w.connect()
	}
}

func (w *world) connect() {
	w.dialing, w.online = false, true
	w.exp = seq.Num(rapid.SampledFrom([]uint32{1, 0xfffffffe}).Draw(w.T, "CmdSN"))
	w.max, w.lastSN = w.exp.Add(1), w.exp.Back(1)
	w.order = [unitCount]int{}
	w.s.Connected(w.now, login.Params{CmdSN: w.exp, MaxCmdSN: w.max, Time2Wait: 1})
}

// TestModel: whatever happens to the connection, every command completes once, in the
// numbers and within the window of the target; nothing is executed late; and commands of
// a unit keep their order.
func TestModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := &world{T: r, now: 1}
		w.s = New(Config{RecoveryTimeout: 20 * time.Second}, w, w)
		w.s.Open(w.now)
		w.connect()
		for range rapid.IntRange(1, 200).Draw(r, "steps") {
			w.step()
			if d := w.s.Deadline(); d != clock.Never && d.Add(time.Hour) < w.now {
				r.Fatalf("deadline %d at %d", d, w.now)
			}
		}
		w.settle()
	})
}

// settle lets the world work without faults until every command has ended.
func (w *world) settle() {
	for range 5000 {
		state, _ := w.s.State()
		if state == Lost || w.s.Len() == 0 {
			break
		}
		switch {
		case w.dialing:
			w.connect()
		case len(w.wire) > 0:
			w.receive()
		case len(w.held) > 0:
			w.execute(w.held[0])
			w.answers, w.held = append(w.answers, w.held[0]), w.held[1:]
		case len(w.answers) > 0:
			w.deliver()
		case w.online && w.max != w.exp.Add(9):
			w.max = w.exp.Add(9)
			w.s.Heard(w.now, w.exp, w.max)
		default:
			w.now = max(w.now, w.s.Deadline())
			w.s.Tick(w.now)
		}
	}
	for _, r := range w.all {
		if r.completed != 1 {
			w.Fatalf("command %d has completed %d times", r.number, r.completed)
		}
		if r.outcome == Done && !r.executed {
			w.Fatalf("command %d is done and was not executed", r.number)
		}
	}
	if w.s.Len() != 0 {
		w.Fatalf("%d commands are left", w.s.Len())
	}
}
