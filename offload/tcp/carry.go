package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
	"github.com/stag-rdma/stag/offload/seq"
)

// This file encodes a State and a TimeWait for another process. The octets begin with the
// version and the kind, and then contain records of fixed size. A State ends with Queue and
// Unread, each after its length. All numbers are little endian. Instants are ages, because
// each process has a clock of its own.

// carryVersion is the version of the encoding. It must rise with every change of the
// records: Stats and all structs below are part of them.
const carryVersion = 1

// Kinds of encoded states.
const (
	carriedState    = 1
	carriedTimeWait = 2
)

// ErrEncoding is returned for octets that are no state of this version.
var ErrEncoding = errors.New("not a state of a connection that this version knows")

// age is how long before the time of the encoding an instant was. It is negative for
// deadlines. ageNever stands for clock.Never.
type age int64

const ageNever = age(-1 << 63)

// longestAge limits ages that are decoded. No host has been up for so long.
const longestAge = age(100 * 365 * 24 * time.Hour)

func ageOf(t, now clock.Instant) age {
	if t == clock.Never {
		return ageNever
	}
	return age(now.Sub(t))
}

// at returns the instant in the clock of the process that decodes.
func (a age) at(now clock.Instant) clock.Instant {
	if a == ageNever {
		return clock.Never
	}
	if t := now.Add(-time.Duration(a)); t != clock.Never {
		return t
	}
	return clock.Never - 1
}

func (a age) sane() bool { return a == ageNever || a >= -longestAge && a <= longestAge }

// stateRecord is the part of a State that every connection has.
type stateRecord struct {
	At                                age
	SndUna, SndNxt                    seq.Num
	SndWnd                            uint32
	SndWL1                            seq.Num
	MaxWnd                            uint32
	RcvNxt, RcvWup                    seq.Num
	RcvWnd                            uint32
	SndScale, RcvScale                uint8
	MSS, MTU, LocalMSS                uint16
	V6, SACK, Timestamps, ECN         bool
	TSNow                             uint32
	TSTick, SRTT, RTTVar, MinRTT, RTO time.Duration
	Cwnd, Ssthresh                    uint32
	Congestion                        [16]byte // the kernel limits the name to this (TCP_CA_NAME_MAX)
	Keep                              keepRecord
	UserTimeout                       time.Duration
	NoDelay                           bool
	Phase                             Phase
	FinSent, HasTSRecent, Lost, Fresh bool
	TSRecent                          uint32
	TSRecentAge                       time.Duration
	HasMoved                          bool
	QueueOctets, UnreadOctets         uint32
}

// keepRecord is a Keepalive.
type keepRecord struct {
	Idle, Interval time.Duration
	Count          int32
}

// movedRecord is Moved without Control.
type movedRecord struct {
	AckAt, RTOAt, PersistAt, KeepAt, WaitUntil age
	ProbeTail                                  bool
	Backoff, PersistBackoff                    uint8
	Retries, Probes                            uint32
	ProgressAt, HeardAt, StalledAt, SentAt     age
	Recovering, Repairing, Hole, FinLost       bool
	Missing, Resent, DupAcks                   uint32
	AckNow, Arrived, Bounds                    bool
	ECNEcho, ECNReduced, ECNHeld               bool
	FirstMTU, LinkMTU                          uint16
	WidenAt                                    age
	WidenPause                                 time.Duration
	RcvSize, RcvMost                           uint32
	Stats                                      Stats
	Control                                    controlRecord
}

// timeWaitRecord is a TimeWait.
type timeWaitRecord struct {
	SndNxt, RcvNxt, Edge seq.Num
	Scale                uint8
	Until                age
	Stamps               bool
	TSNow                uint32 // timestamp clock at the time of the encoding
	TSPart               time.Duration
	TSTick               time.Duration
	TSRecent             uint32
	HasTSRecent          bool
	TSHeard              age
	PureAt               age
	Seed                 uint64 // for the limit of challenge ACKs
}

// AppendTo appends the state to b for DecodeState in another process. now is the present
// time. Queue and Unread are copied. A congestion control that is not stag's own is left
// out: the other process makes a new one from Cwnd and Ssthresh.
func (st *State) AppendTo(b []byte, now clock.Instant) ([]byte, error) {
	if err := st.Check(); err != nil {
		return nil, fmt.Errorf("encode connection: %w", err)
	}
	r := stateRecord{
		At: ageOf(st.At, now), SndUna: st.SndUna, SndNxt: st.SndNxt, SndWnd: st.SndWnd, SndWL1: st.SndWL1, MaxWnd: st.MaxWnd,
		RcvNxt: st.RcvNxt, RcvWup: st.RcvWup, RcvWnd: st.RcvWnd, SndScale: st.SndScale, RcvScale: st.RcvScale,
		MSS: st.MSS, MTU: st.MTU, LocalMSS: st.LocalMSS, V6: st.V6, SACK: st.SACK, Timestamps: st.Timestamps, ECN: st.ECN,
		TSNow: st.TSNow, TSTick: st.TSTick, SRTT: st.SRTT, RTTVar: st.RTTVar, MinRTT: st.MinRTT, RTO: st.RTO,
		Cwnd: st.Cwnd, Ssthresh: st.Ssthresh,
		Keep:        keepRecord{st.Keepalive.Idle, st.Keepalive.Interval, int32(st.Keepalive.Count)},
		UserTimeout: st.UserTimeout, NoDelay: st.NoDelay, Phase: st.Phase, FinSent: st.FinSent, HasTSRecent: st.HasTSRecent,
		Lost: st.Lost, Fresh: st.Fresh, TSRecent: st.TSRecent, TSRecentAge: st.TSRecentAge,
		HasMoved: st.Moved != nil, QueueOctets: uint32(len(st.Queue)), UnreadOctets: uint32(len(st.Unread)),
	}
	if copy(r.Congestion[:], st.Congestion) < len(st.Congestion) {
		return nil, fmt.Errorf("encode connection: the name %q of a congestion control is too long", st.Congestion)
	}
	b, err := appendRecord(append(b, carryVersion, carriedState), &r)
	if err == nil && st.Moved != nil {
		m := st.Moved.record(now)
		b, err = appendRecord(b, &m)
	}
	if err != nil {
		return nil, fmt.Errorf("encode connection: %w", err)
	}
	return append(append(b, st.Queue...), st.Unread...), nil
}

func appendRecord(b []byte, record any) ([]byte, error) {
	return binary.Append(b, binary.LittleEndian, record)
}

func (m *Moved) record(now clock.Instant) movedRecord {
	return movedRecord{
		AckAt: ageOf(m.AckAt, now), RTOAt: ageOf(m.RTOAt, now), PersistAt: ageOf(m.PersistAt, now), KeepAt: ageOf(m.KeepAt, now),
		WaitUntil: ageOf(m.WaitUntil, now), ProbeTail: m.ProbeTail,
		Backoff: m.Backoff, PersistBackoff: m.PersistBackoff, Retries: m.Retries, Probes: m.Probes,
		ProgressAt: ageOf(m.ProgressAt, now), HeardAt: ageOf(m.HeardAt, now), StalledAt: ageOf(m.StalledAt, now), SentAt: ageOf(m.SentAt, now),
		Recovering: m.Recovering, Repairing: m.Repairing, Hole: m.Hole, FinLost: m.FinLost,
		Missing: m.Missing, Resent: m.Resent, DupAcks: m.DupAcks, AckNow: m.AckNow, Arrived: m.Arrived, Bounds: m.Bounds,
		ECNEcho: m.ECNEcho, ECNReduced: m.ECNReduced, ECNHeld: m.ECNHeld,
		FirstMTU: m.FirstMTU, LinkMTU: m.LinkMTU, WidenAt: ageOf(m.WidenAt, now), WidenPause: m.WidenPause,
		RcvSize: m.RcvSize, RcvMost: m.RcvMost, Stats: m.Stats, Control: controlRecordOf(m.Control, now),
	}
}

// DecodeState reverses AppendTo. now is the time of the encoding in the clock of this
// process. DecodeState checks everything that New relies on, and returns an error for octets
// of another version, for missing and for surplus octets. Queue and Unread are parts of b.
func DecodeState(b []byte, now clock.Instant) (State, error) {
	st, err := decodeState(b, now)
	if err != nil {
		return State{}, fmt.Errorf("decode connection: %w", err)
	}
	return st, nil
}

func decodeState(b []byte, now clock.Instant) (st State, err error) {
	var r stateRecord
	if b, err = openRecord(b, carriedState, &r); err != nil {
		return st, err
	}
	if !r.At.sane() || r.At == ageNever {
		return st, fmt.Errorf("%w: an instant is out of range", ErrEncoding)
	}
	st = r.state(now)
	if r.HasMoved {
		var m movedRecord
		if b, err = takeRecord(b, &m); err != nil {
			return st, err
		}
		if st.Moved, err = m.moved(&st, &r, now); err != nil {
			return st, err
		}
	}
	if uint64(len(b)) != uint64(r.QueueOctets)+uint64(r.UnreadOctets) {
		return st, fmt.Errorf("%w: %d octets of data, and %d and %d are announced", ErrEncoding, len(b), r.QueueOctets, r.UnreadOctets)
	}
	if r.QueueOctets != 0 {
		st.Queue = b[:r.QueueOctets:r.QueueOctets]
	}
	if r.UnreadOctets != 0 {
		st.Unread = b[r.QueueOctets:]
	}
	return st, st.Check()
}

// openRecord checks the version and the kind, and reads the record behind them.
func openRecord(b []byte, kind uint8, record any) (rest []byte, err error) {
	switch {
	case len(b) < 2:
		return nil, fmt.Errorf("%w: %d octets", ErrEncoding, len(b))
	case b[0] != carryVersion:
		return nil, fmt.Errorf("%w: version %d, and this stag has %d", ErrEncoding, b[0], carryVersion)
	case b[1] != kind:
		return nil, fmt.Errorf("%w: kind %d, want %d", ErrEncoding, b[1], kind)
	}
	return takeRecord(b[2:], record)
}

func takeRecord(b []byte, record any) (rest []byte, err error) {
	n, err := binary.Decode(b, binary.LittleEndian, record)
	if err != nil {
		return nil, fmt.Errorf("%w: %d octets are too few", ErrEncoding, len(b))
	}
	return b[n:], nil
}

// state returns the State without Moved and without octets.
func (r *stateRecord) state(now clock.Instant) State {
	return State{
		At: r.At.at(now), SndUna: r.SndUna, SndNxt: r.SndNxt, SndWnd: r.SndWnd, SndWL1: r.SndWL1, MaxWnd: r.MaxWnd,
		RcvNxt: r.RcvNxt, RcvWup: r.RcvWup, RcvWnd: r.RcvWnd, SndScale: r.SndScale, RcvScale: r.RcvScale,
		MSS: r.MSS, MTU: r.MTU, LocalMSS: r.LocalMSS, V6: r.V6, SACK: r.SACK, Timestamps: r.Timestamps, ECN: r.ECN,
		TSNow: r.TSNow, TSTick: r.TSTick, SRTT: r.SRTT, RTTVar: r.RTTVar, MinRTT: r.MinRTT, RTO: r.RTO,
		Cwnd: r.Cwnd, Ssthresh: r.Ssthresh, Congestion: name(r.Congestion[:]),
		Keepalive:   Keepalive{Idle: r.Keep.Idle, Interval: r.Keep.Interval, Count: int(r.Keep.Count)},
		UserTimeout: r.UserTimeout, NoDelay: r.NoDelay, Phase: r.Phase, FinSent: r.FinSent, HasTSRecent: r.HasTSRecent,
		Lost: r.Lost, Fresh: r.Fresh, TSRecent: r.TSRecent, TSRecentAge: r.TSRecentAge,
	}
}

// name returns the octets before the first zero.
func name(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// moved checks m, and returns it as Moved.
func (m *movedRecord) moved(st *State, r *stateRecord, now clock.Instant) (*Moved, error) {
	for _, a := range []age{m.AckAt, m.RTOAt, m.PersistAt, m.KeepAt, m.WaitUntil, m.ProgressAt, m.HeardAt, m.StalledAt, m.SentAt, m.WidenAt} {
		if !a.sane() {
			return nil, fmt.Errorf("%w: an instant is out of range", ErrEncoding)
		}
	}
	switch {
	case m.Missing > r.QueueOctets || m.Resent > r.QueueOctets:
		return nil, fmt.Errorf("%w: %d octets are lost and %d sent again, of %d", ErrEncoding, m.Missing, m.Resent, r.QueueOctets)
	case m.WidenPause < 0 || st.Phase == InTimeWait && m.WaitUntil == ageNever:
		return nil, fmt.Errorf("%w: a timer is out of range", ErrEncoding)
	}
	control, err := m.Control.control(now)
	if err != nil {
		return nil, err
	}
	return &Moved{
		AckAt: m.AckAt.at(now), RTOAt: m.RTOAt.at(now), PersistAt: m.PersistAt.at(now), KeepAt: m.KeepAt.at(now),
		WaitUntil: m.WaitUntil.at(now), ProbeTail: m.ProbeTail,
		Backoff: m.Backoff, PersistBackoff: m.PersistBackoff, Retries: m.Retries, Probes: m.Probes,
		ProgressAt: m.ProgressAt.at(now), HeardAt: m.HeardAt.at(now), StalledAt: m.StalledAt.at(now), SentAt: m.SentAt.at(now),
		Recovering: m.Recovering, Repairing: m.Repairing, Hole: m.Hole, FinLost: m.FinLost,
		Missing: m.Missing, Resent: m.Resent, DupAcks: m.DupAcks, AckNow: m.AckNow, Arrived: m.Arrived, Bounds: m.Bounds,
		ECNEcho: m.ECNEcho, ECNReduced: m.ECNReduced, ECNHeld: m.ECNHeld,
		FirstMTU: m.FirstMTU, LinkMTU: m.LinkMTU, WidenAt: m.WidenAt.at(now), WidenPause: m.WidenPause,
		RcvSize: m.RcvSize, RcvMost: m.RcvMost, Stats: m.Stats, Control: control,
	}, nil
}

// AppendTo appends the record to b for DecodeTimeWait in another process.
func (w *TimeWait) AppendTo(b []byte, now clock.Instant) ([]byte, error) {
	r := timeWaitRecord{
		SndNxt: w.sndNxt, RcvNxt: w.rcvNxt, Edge: w.edge, Scale: w.scale, Until: ageOf(w.until, now),
		Stamps: w.stamp.on, TSTick: w.stamp.tick, TSRecent: w.stamp.recent, HasTSRecent: w.stamp.known, TSHeard: ageOf(w.stamp.heard, now),
		PureAt: ageOf(w.limit.pureAt, now), Seed: w.limit.state,
	}
	if w.stamp.on {
		r.TSPart = now.Sub(w.stamp.at) % w.stamp.tick
		r.TSNow = w.stamp.now(now)
	}
	b, err := appendRecord(append(b, carryVersion, carriedTimeWait), &r)
	if err != nil {
		return nil, fmt.Errorf("encode TIME-WAIT: %w", err)
	}
	return b, nil
}

// DecodeTimeWait reverses TimeWait.AppendTo, as DecodeState does for a State.
func DecodeTimeWait(b []byte, now clock.Instant) (TimeWait, error) {
	var r timeWaitRecord
	b, err := openRecord(b, carriedTimeWait, &r)
	switch {
	case err != nil:
	case len(b) != 0:
		err = fmt.Errorf("%w: %d octets are left", ErrEncoding, len(b))
	case r.Scale > 14 || !r.Until.sane() || !r.TSHeard.sane() || !r.PureAt.sane() || r.Until == ageNever:
		err = fmt.Errorf("%w: an instant or a shift is out of range", ErrEncoding)
	case r.Stamps && (r.TSTick <= 0 || r.TSPart < 0 || r.TSPart >= r.TSTick):
		err = fmt.Errorf("%w: a timestamp clock with a tick of %v", ErrEncoding, r.TSTick)
	}
	if err != nil {
		return TimeWait{}, fmt.Errorf("decode TIME-WAIT: %w", err)
	}
	return TimeWait{
		sndNxt: r.SndNxt, rcvNxt: r.RcvNxt, edge: r.Edge, scale: r.Scale, until: r.Until.at(now),
		stamp: stamps{on: r.Stamps, base: r.TSNow, at: now.Add(-r.TSPart), tick: r.TSTick,
			recent: r.TSRecent, known: r.HasTSRecent, heard: r.TSHeard.at(now)},
		limit: limiter{state: r.Seed, renewAt: now, pureAt: r.PureAt.at(now)},
	}, nil
}
