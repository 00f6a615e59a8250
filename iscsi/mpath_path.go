package iscsi

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/iscsi/scsi"
	"github.com/stag-rdma/stag/offload/clock"
)

// unitPath is a way to the unit. Its goroutine keeps a session there.
type unitPath struct {
	m     *multipath
	index int
	url   URL
	isid  pdu.ISID      // the same for each session, so that the target ends the one before
	tried chan struct{} // closed after the first attempt

	link *pathLink // nil: there is no session
	err  error     // why there is none
}

func (m *multipath) newPath(i int, u URL) (*unitPath, error) {
	p := &unitPath{m: m, index: i, url: u, tried: make(chan struct{})}
	p.isid[0] = 0x80 // type 10, random (RFC 7143 §11.12.5)
	if _, err := rand.Read(p.isid[1:4]); err != nil {
		return nil, err
	}
	return p, nil
}

// name names the path for a person.
func (p *unitPath) name() string { return fmt.Sprintf("%s, %s", p.url.Portal, p.url.Target) }

// Waits of a path between attempts.
const (
	leastWait = 100 * time.Millisecond
	mostWait  = 5 * time.Second
)

// run keeps the path up until the disk ends.
func (p *unitPath) run() {
	wait := leastWait
	first := true
	for p.m.life.Err() == nil {
		l, err := p.connect()
		if err == nil && !p.m.admit(l) {
			err = errors.Join(ErrClosed, l.session.Close())
		}
		if err != nil {
			p.failed(err)
		}
		if first {
			close(p.tried)
			first = false
		}
		if err == nil {
			p.m.tell(EventPathUp, p, nil)
			p.keep(l)
			wait = leastWait
			continue
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, mostWait)
		case <-p.m.life.Done():
		}
	}
}

// failed notes why there is no session. The program gets an event if the reason is new.
func (p *unitPath) failed(err error) {
	p.m.mu.Lock()
	again := p.err != nil && p.err.Error() == err.Error()
	p.err = err
	p.m.mu.Unlock()
	if !again && p.m.life.Err() == nil {
		p.m.tell(EventPathDown, p, err)
	}
}

// connect logs in, and makes sure that the path leads to the unit.
func (p *unitPath) connect() (*pathLink, error) {
	ctx, stop := context.WithTimeout(p.m.life, loginTime)
	defer stop()
	c := p.m.cfg
	c.RecoveryTimeout = -1
	c.Events = p.hear
	c.Depth += callSlots
	s, err := prepare(p.url, c)
	if err != nil {
		return nil, err
	}
	s.isid = p.isid
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	l := &pathLink{path: p, session: s, ask: make(chan struct{}, 1)}
	l.disk = &Disk{s: s, lun: p.url.LUN, by: &s.lead().manage}
	for err = errReset; errors.Is(err, errReset); {
		err = p.m.whileQuiet(ctx, l.identify)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return l, nil
}

// hear takes the events of a session.
func (p *unitPath) hear(e Event) {
	switch e.Kind {
	case EventAttention, EventMessage:
		p.m.tell(e.Kind, p, e.Err)
	case EventUp, EventHeld, EventLost, EventUnprotected: // those of the disk are others
	}
}

// errNameless: the unit of a path does not say which it is.
var errNameless = errors.New("the unit has no designator in VPD page 83h, so nothing shows that the paths lead to one unit: use one path")

// identify makes sure that the link leads to the unit, and asks for its access state. The
// first link says which unit that is.
func (l *pathLink) identify(ctx context.Context) error {
	d := l.disk
	if err := d.introduce(ctx); err != nil {
		return err
	}
	if len(d.names) == 0 && len(l.path.m.paths) > 1 {
		return errNameless
	}
	if err := l.askGroup(ctx); err != nil {
		return err
	}
	if err := l.refresh(ctx); err != nil {
		return err
	}
	return l.compare(ctx)
}

// compare compares the unit with the one of the first link. The size is known only if the
// path gives access.
func (l *pathLink) compare(ctx context.Context) error {
	m, d := l.path.m, l.disk
	if l.usable() && d.most == 0 {
		buf := make([]byte, 1024)
		if err := d.measure(ctx, buf); err != nil {
			return err
		}
		if err := d.inspect(ctx, buf); err != nil {
			return err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := d.most != 0
	if m.unit == nil && known {
		m.unit = d
	}
	if m.unit == nil {
		return nil
	}
	same := func(a, b scsi.Designator) bool { return bytes.Equal(a.Value, b.Value) }
	switch first := m.unit; {
	case !slices.EqualFunc(d.names, first.names, same):
		return fmt.Errorf("%w: page 83h says %v, and %v on the path %s", errOther, d.names, first.names, first.s.url.Portal)
	case !known:
	case d.Size() != first.Size() || d.BlockSize() != first.BlockSize():
		return fmt.Errorf("%w: it has %d octets in blocks of %d, and %d in blocks of %d on the path %s", errOther, d.Size(), d.BlockSize(), first.Size(), first.BlockSize(), first.s.url.Portal)
	}
	if known && !l.known {
		d.s.mu.Lock()
		d.s.disks = append(d.s.disks, d) // for reports
		d.s.mu.Unlock()
	}
	l.known = known
	return nil
}

// introduce asks the unit what it is. This works in every access state.
func (d *Disk) introduce(ctx context.Context) error {
	buf := make([]byte, 1024)
	if err := d.inquire(ctx, buf); err != nil {
		return err
	}
	var err error
	d.names, err = d.readNames(ctx, buf)
	return err
}

// checkTime limits a check. A target that answers pings, but not this, is given up.
const checkTime = 30 * time.Second

// errStuck: the unit does not answer.
var errStuck = fmt.Errorf("the unit has not answered for %v", checkTime)

// keep asks for the access state now and then, until the session has ended. Then it takes
// back the commands.
func (p *unitPath) keep(l *pathLink) {
	timer := time.NewTimer(p.m.cfg.PathCheck)
	defer timer.Stop()
	for {
		select {
		case <-l.session.Done():
		case <-p.m.life.Done():
			l.session.Close()
		case <-l.ask:
			p.check(l)
		case <-timer.C:
			p.check(l)
		}
		if err := l.session.Err(); err != nil {
			l.session.Close()
			p.m.dismiss(l, err)
			if p.m.life.Err() == nil {
				p.m.tell(EventPathDown, p, err)
			}
			return
		}
		timer.Reset(l.pause())
	}
}

// transitionTime is how often a path is asked that is in transition.
const transitionTime = 200 * time.Millisecond

// pause returns how long a path is not asked.
func (l *pathLink) pause() time.Duration {
	l.path.m.mu.Lock()
	defer l.path.m.mu.Unlock()
	if l.access == AccessTransitioning {
		return min(transitionTime, l.path.m.cfg.PathCheck)
	}
	return l.path.m.cfg.PathCheck
}

// check asks for the access state.
func (p *unitPath) check(l *pathLink) {
	ctx, stop := context.WithTimeout(p.m.life, checkTime)
	defer stop()
	before := l.state()
	err := p.m.whileQuiet(ctx, func(ctx context.Context) error {
		if err := l.refresh(ctx); err != nil {
			return err
		}
		return l.compare(ctx)
	})
	switch {
	case err == nil:
	case ctx.Err() != nil && p.m.life.Err() == nil:
		l.session.giveUp(errStuck)
		return
	case errors.Is(err, errOther):
		l.session.giveUp(err)
		return
	case errors.Is(err, errReset):
		l.retry()
		return
	default: // the session has ended, or the unit refuses: its other commands will say so
		return
	}
	l.suspect.Store(false)
	p.m.mu.Lock()
	p.m.choose()
	p.m.mu.Unlock()
	p.m.wakeManager()
	if now := l.state(); now != before {
		p.m.tell(EventAccess, p, fmt.Errorf("the path is %v, and was %v", now, before))
	}
}

// retry asks for another check.
func (l *pathLink) retry() {
	select {
	case l.ask <- struct{}{}:
	default:
	}
}

// giveUp ends a session without a logout.
func (s *Session) giveUp(cause error) {
	s.tell(func(now clock.Instant) { s.broken(now, cause) })
}
