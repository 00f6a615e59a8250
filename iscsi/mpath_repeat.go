package iscsi

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	isession "github.com/stag-rdma/stag/iscsi/session"
)

// stain notes that the target may execute a command late. Nothing is sent until the unit
// has been reset. The mark is there before the program can see that a path has died.
func (m *multipath) stain(c *scsi.CDB) {
	if isession.Changes(c) {
		m.dirty.Store(true)
		m.wakeManager()
	}
}

// elsewhere reports whether a command that has a status is to be sent again: the target has
// not executed it, because of the path or because of a change that is no concern of the
// program's.
func (m *multipath) elsewhere(l *pathLink, c *flow.Completion) bool {
	if c.Header.Response() != 0 && c.Header.Opcode() == pdu.OpResponse || scsi.Status(c.Status()) != scsi.CheckCondition {
		return false
	}
	if s, denied := accessOf(c.Status(), c.Sense); denied {
		m.cfg.Log.Debug("iscsi path", "path", l.path.name(), "refuses", s)
		m.doubt(l)
		return true
	}
	sense, err := scsi.ParseSense(c.Sense)
	if err != nil || sense.Key != scsi.UnitAttention {
		return false
	}
	switch {
	case sense.Code == scsi.AsymmetricAccessChanged:
		m.doubt(l)
		return true
	case sense.Code>>8 == scsi.PowerOn>>8, sense.Code == scsi.CommandsClearedByAnother:
		m.note(l.path, errors.New(sense.String()))
		return true
	}
	return false
}

// doubt keeps commands from a link until its access state is known, and asks for the states
// of all paths: where one has changed, others have too.
func (m *multipath) doubt(l *pathLink) {
	l.suspect.Store(true)
	l.retry()
	m.changed.Store(true)
	m.wakeManager()
}

// askAll asks for the access states of all paths.
func (m *multipath) askAll() {
	for _, l := range m.links() {
		l.retry()
	}
}

// notice is an event that manage is to tell, because telling waits for the program.
type notice struct {
	path *unitPath
	err  error
}

// note makes manage tell of a unit attention.
func (m *multipath) note(p *unitPath, err error) {
	m.noting.Lock()
	m.notices = append(m.notices, notice{p, err})
	m.noting.Unlock()
	m.wakeManager()
}

func (m *multipath) tellNotices() {
	m.noting.Lock()
	all := m.notices
	m.notices = nil
	m.noting.Unlock()
	for _, n := range all {
		m.tell(EventAttention, n.path, n.err)
	}
}

// manage sends the commands that are held, when it can, until the disk ends.
func (m *multipath) manage() {
	r := repeater{m: m}
	for m.life.Err() == nil {
		timer := time.NewTimer(r.step(time.Now()))
		select {
		case <-m.poke:
		case <-timer.C:
		case <-m.life.Done():
		}
		timer.Stop()
	}
	m.running.Wait()
	m.finish(r.began)
}

// repeater is the state of manage.
type repeater struct {
	m     *multipath
	began bool      // a path has worked
	since time.Time // when the last path has gone; zero: there is one
}

// Waits of manage.
const (
	idleTime        = time.Hour
	retryTime       = 100 * time.Millisecond
	defaultRecovery = 120 * time.Second
	accessTime      = 60 * time.Second // for a change of access states, if RecoveryTimeout is less than 0
)

// step does what can be done, and returns when to look again at the latest.
func (r *repeater) step(now time.Time) time.Duration {
	m := r.m
	m.tellNotices()
	if m.changed.Swap(false) {
		m.askAll()
	}
	if len(*m.choice.Load()) == 0 {
		return r.wait(now)
	}
	if !r.since.IsZero() {
		r.since = time.Time{}
		m.tell(EventUp, nil, nil)
	}
	r.began = true
	if m.dirty.Load() && !m.protect() {
		return retryTime
	}
	for _, q := range m.all() {
		q.flush()
	}
	return idleTime
}

// wait holds the commands while no path works.
func (r *repeater) wait(now time.Time) time.Duration {
	m := r.m
	if !r.began {
		return idleTime
	}
	if r.since.IsZero() {
		r.since = now
		m.tell(EventHeld, nil, errors.Join(errNoPath, m.reasons()))
	}
	limit := m.cfg.RecoveryTimeout
	switch links := m.links(); {
	case limit == 0:
		limit = defaultRecovery
	case limit < 0 && len(links) != 0:
		limit = accessTime
	}
	left := r.since.Add(limit).Sub(now)
	if left <= 0 {
		m.die(errors.Join(errNoPath, m.reasons()))
		return 0
	}
	m.promote()
	m.askAll()
	return min(left, time.Second)
}

// reasons returns why the paths are down.
func (m *multipath) reasons() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, p := range m.paths {
		if p.err != nil {
			errs = append(errs, fmt.Errorf("path %s: %w", p.name(), p.err))
		}
	}
	return errors.Join(errs...)
}

// errReset ends questions to the unit, because a reset would end them without an answer.
var errReset = errors.New("the unit is being reset")

// whileQuiet runs f, which asks the unit, while nobody resets the unit. A reset ends ctx
// with errReset.
func (m *multipath) whileQuiet(ctx context.Context, f func(ctx context.Context) error) error {
	m.checks.RLock()
	defer m.checks.RUnlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.round.Load().ctx, func() { cancel(errReset) })()
	return f(ctx)
}

// round lasts from one reset to the next.
type round struct {
	ctx context.Context
	end context.CancelFunc
}

func newRound() *round {
	r := new(round)
	r.ctx, r.end = context.WithCancel(context.Background())
	return r
}

// Limits of protect.
const (
	drainTime = 15 * time.Second // for the answers of the target to commands in flight
	resetTime = 15 * time.Second // for the answer to a reset
)

// protect resets the unit, so that the target executes no command late that a path has
// lost. A reset ends the commands of all paths, so those in flight are waited for. protect
// returns false if the unit has not been reset.
//
// Departs from multipath drivers that repeat writes at once: a target may have the lost
// write in its queue, and would execute it behind a write of the program to the same place.
// That is so for every target: even one that ends a session before it answers the login that
// reinstates the session (endsSessions) keeps the session of the dead path while commands
// take another path.
func (m *multipath) protect() bool {
	begun := time.Now()
	m.round.Load().end()
	m.checks.Lock()
	defer m.checks.Unlock()
	defer m.round.Store(newRound())
	if !m.drain() {
		return false
	}
	links := *m.choice.Load()
	if len(links) == 0 {
		return false
	}
	response, err := links[0].reset(m.life)
	if err != nil {
		links[0].session.giveUp(fmt.Errorf("no answer to LOGICAL UNIT RESET: %w", err))
		return false
	}
	if response != pdu.FunctionComplete && response != pdu.LUNDoesNotExist {
		m.unprotected(links[0], response)
	}
	for _, l := range m.links() {
		ctx, stop := context.WithTimeout(m.life, resetTime)
		if err := l.disk.ready(ctx); err != nil {
			m.cfg.Log.Info("iscsi unit after its reset", "path", l.path.name(), "err", err)
		}
		stop()
	}
	m.dirty.Store(false)
	m.cfg.Log.Info("iscsi unit was reset", "path", links[0].path.name(), "after", time.Since(begun))
	return true
}

// drain waits until no command is in flight. A session that keeps commands for too long is
// given up.
func (m *multipath) drain() bool {
	for begun := time.Now(); m.life.Err() == nil; {
		flying := 0
		for _, q := range m.all() {
			flying += q.harvest()
		}
		if flying == 0 {
			return true
		}
		for _, l := range m.links() {
			l.session.link().Wake()
			if l.flying.Load() != 0 && time.Since(begun) > drainTime {
				l.session.giveUp(errors.New("the target does not answer commands"))
			}
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

// reset executes LOGICAL UNIT RESET.
func (l *pathLink) reset(ctx context.Context) (response uint8, err error) {
	ctx, stop := context.WithTimeout(ctx, resetTime)
	defer stop()
	var h pdu.Header
	h.Reset(pdu.OpTask)
	h.SetImmediate(true)
	h.SetFunction(pdu.LogicalUnitReset)
	h.SetLUN(uint64(scsi.LUNOf(l.path.url.LUN)))
	h.SetReferencedTaskTag(pdu.NoTag)
	got, err := l.session.lead().manage.do(ctx, flow.Command{Request: &h})
	if errors.Is(err, flow.Rejected) { // also an answer
		return pdu.FunctionRejected, nil
	}
	return got.Header.Response(), err
}

// unprotected completes the writes that would be repeated, because the target has refused
// the reset.
func (m *multipath) unprotected(l *pathLink, response uint8) {
	for _, q := range m.all() {
		q.drop(flow.Uncertain, func(s *pathSlot) bool {
			cdb := s.command()
			return s.replays > 0 && isession.Changes(&cdb)
		})
	}
	m.tell(EventUnprotected, l.path, fmt.Errorf("the target refused LUN RESET of unit %d with response %d", l.path.url.LUN, response))
}
