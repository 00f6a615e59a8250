package measure

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/rdma"
)

// Figures of many sessions.
const (
	TargetKiB    Figure = "target_kib_per_session"    // resident, of the target's process
	InitiatorKiB Figure = "initiator_kib_per_session" // resident, of this process
	Threads      Figure = "target_threads_per_session"
	LoginsPerS   Figure = "logins_per_s"
	Outstanding  Figure = "outstanding" // most commands in flight at a time
)

const (
	manySessions = 1000
	warmSessions = 32 // sessions that exist before memory is measured; the first allocate what all share
	sessionDepth = 10
)

func sessionsTable(o Options) *Table {
	t := &Table{
		Name:  "sessions",
		Title: fmt.Sprintf("iSCSI: %d sessions, idle and then with %d commands in flight each", manySessions, sessionDepth),
		About: `The initiators are in this process and share one adapter. The target is a process of
its own. Memory and threads: growth from 32 sessions on, while all are idle. Then each
session reads 4 KiB at a time from a disk in memory.`,
		Columns: []Column{{TargetKiB, "target KiB", 1, false}, {InitiatorKiB, "init. KiB", 1, false}, {Threads, "threads", 2, false},
			{LoginsPerS, "logins/s", 0, false}, {Outstanding, "in flight", 0, false}, {IOPS, "IOPS", 0, false}, {Busy, "busy", 2, false}},
	}
	for _, c := range []storageCase{
		{initiator: stagProgram, target: stagProgram, program: noXDP},
		{initiator: stagProgram, target: stagProgram, offload: true, threaded: true},
		{initiator: stagProgram, target: tgtdProgram, program: noXDP},
	} {
		if o.measures(t.Name) && !c.installed() {
			continue
		}
		c.octets, c.depth = 4<<10, sessionDepth
		r := Case{Name: c.title(), MTU: 1500, NAPI: napiName(c.threaded), Message: c.octets, Connections: manySessions, Depth: c.depth}
		t.Rows = append(t.Rows, &Row{Case: r, run: func(ctx context.Context) (Values, error) { return c.measureSessions(ctx, o) }})
	}
	return t
}

// sessions are the initiators of this process.
type sessions struct {
	adapter *rdma.Adapter
	disks   []*iscsi.Disk
}

// measureSessions logs many sessions in, measures them idle, and then lets them read.
func (c storageCase) measureSessions(ctx context.Context, o Options) (v Values, err error) {
	st, err := c.bed()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if _, err := stagCommand(ctx); err != nil { // a build takes its time
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	target, err := c.startTarget(ctx, st)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, target.close()) }()
	s := &sessions{}
	if err := s.open(st, c.offload); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if v, err = s.grow(ctx, st, target); err != nil {
		return nil, err
	}
	return v, s.read(ctx, st, c.octets, o.Time, v)
}

func (s *sessions) open(st *stage, offload bool) error {
	c := rdma.Config{KernelPort: true, NoControl: true, RegionHeap: 1 << 20, MaxRegions: manySessions * 160, MaxFlows: 2 * manySessions}
	if offload {
		c.KernelPort, c.Ports = false, []string{st.pair.Ends[from].Name}
	}
	return st.pair.Do(from, func() (err error) {
		s.adapter, err = rdma.Open(c)
		return err
	})
}

func (s *sessions) close() error {
	var errs []error
	for _, d := range s.disks {
		errs = append(errs, d.Close())
	}
	return errors.Join(append(errs, s.adapter.Close())...)
}

// grow logs in, and measures what idle sessions take.
func (s *sessions) grow(ctx context.Context, st *stage, target *diskServer) (Values, error) {
	if err := s.login(ctx, st, target, warmSessions); err != nil {
		return nil, err
	}
	before, err := footprintOf(target)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := s.login(ctx, st, target, manySessions-warmSessions); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	after, err := footprintOf(target)
	if err != nil {
		return nil, err
	}
	n := float64(manySessions - warmSessions)
	return Values{
		TargetKiB: float64(after.target-before.target) / n, InitiatorKiB: float64(after.own-before.own) / n,
		Threads: float64(after.threads-before.threads) / n, LoginsPerS: n / took.Seconds(),
	}, nil
}

// login makes n more sessions, one after the other.
func (s *sessions) login(ctx context.Context, st *stage, target *diskServer, n int) error {
	return st.pair.Do(from, func() error {
		for range n {
			name := fmt.Sprintf("iqn.2026-01.test.stag:i%d", len(s.disks))
			d, err := iscsi.Dial(ctx, target.url(""), iscsi.Config{Adapter: s.adapter, InitiatorName: name, RecoveryTimeout: -1})
			if err != nil {
				return fmt.Errorf("session %d: %w", len(s.disks)+1, err)
			}
			s.disks = append(s.disks, d)
		}
		return nil
	})
}

// footprint is resident memory in KiB, and threads of the target.
type footprint struct{ own, target, threads int }

// settleTime is how long a Go target has to collect garbage and to give it back.
const settleTime = 3 * time.Second

func footprintOf(target *diskServer) (f footprint, err error) {
	time.Sleep(settleTime)
	m, err := readMemory()
	if err != nil {
		return f, err
	}
	f.own = m.resident
	status := fmt.Sprintf("/proc/%d/status", target.cmd.Process.Pid)
	if f.target, err = kibibytes(status, "VmRSS:"); err != nil {
		return f, err
	}
	f.threads, err = threadsOf(target.cmd.Process.Pid)
	return f, err
}

// sessionReader is the queue of a session with its reads.
type sessionReader struct {
	*iscsi.Queue
	ios []iscsi.IO
}

// read lets all sessions read for d, and adds what it finds to v.
func (s *sessions) read(ctx context.Context, st *stage, octets int, d time.Duration, v Values) error {
	all := make([]sessionReader, len(s.disks))
	memory := make([]byte, octets*len(all)*sessionDepth)
	for i := range all {
		q, err := s.disks[i].Queue(sessionDepth)
		if err != nil {
			return err
		}
		all[i].Queue = q
		for j := range sessionDepth {
			at := (i*sessionDepth + j) * octets
			lba := uint64(at%targetSize) / blockSize
			all[i].ios = append(all[i].ios, iscsi.IO{ID: uint64(j), LBA: lba, Buffers: [][]byte{memory[at:][:octets]}})
		}
	}
	m, err := startMeter(st.pair, false)
	if err != nil {
		return err
	}
	begin := time.Now()
	done, most, err := readAll(ctx, all, begin.Add(d))
	if err != nil {
		return err
	}
	used, err := m.since()
	v[IOPS], v[Outstanding], v[Busy] = float64(done)/time.Since(begin).Seconds(), float64(most), used.busy
	return err
}

// readAll keeps all queues full until a time, and then waits for all that is in flight. It
// returns how many reads were done, and how many were in flight at most.
func readAll(ctx context.Context, all []sessionReader, until time.Time) (done, most int, err error) {
	flying := 0
	for i := range all {
		n, err := all[i].Post(all[i].ios...)
		if err != nil || n != len(all[i].ios) {
			return 0, 0, fmt.Errorf("posted %d of %d reads: %w", n, len(all[i].ios), err)
		}
		flying += n
	}
	most = flying
	var got [sessionDepth]iscsi.Completion
	for flying > 0 {
		if ctx.Err() != nil {
			return done, most, fmt.Errorf("%d reads have not completed: %w", flying, context.Cause(ctx))
		}
		more := time.Now().Before(until)
		for i := range all {
			n := all[i].Poll(got[:])
			flying, done = flying-n, done+n
			for _, c := range got[:n] {
				if c.Err != nil {
					return done, most, c.Err
				}
				if !more {
					continue
				}
				if _, err := all[i].Post(all[i].ios[c.ID]); err != nil {
					return done, most, err
				}
				flying++
			}
		}
	}
	return done, most, nil
}

// sessionGoals limits the memory of an idle session.
func sessionGoals(r *Report) (list []Goal) {
	t := r.table("sessions")
	if t == nil {
		return nil
	}
	for _, row := range t.Rows {
		if row.Name == stagProgram+" > "+tgtdProgram {
			continue
		}
		for _, end := range []struct {
			name   string
			figure Figure
		}{{"target", TargetKiB}, {"initiator", InitiatorKiB}} {
			if v, ok := row.Median[end.figure]; ok {
				list = append(list, Goal{What: fmt.Sprintf("KiB of the %s for each idle session, %s", end.name, row.Name), Want: 32, Most: true, Have: v})
			}
		}
	}
	return list
}
