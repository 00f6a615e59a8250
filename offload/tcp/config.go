package tcp

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/stag-rdma/stag/offload/seq"
)

// fill replaces zero fields of c by defaults. fill returns one error with every invalid
// field.
func (c Config) fill() (Config, error) {
	orU32 := func(v *uint32, d uint32) {
		if *v == 0 {
			*v = d
		}
	}
	orU32(&c.RcvBuf, 16<<20)
	orU32(&c.SndBuf, 16<<20)
	orU32(&c.SndSegs, 16384)
	orU32(&c.RcvSegs, 2048)
	if c.MinRTO == 0 {
		c.MinRTO = 200 * time.Millisecond
	}
	if c.MaxRTO == 0 {
		c.MaxRTO = 120 * time.Second
	}
	if c.Rings == nil {
		c.Rings = new(Rings)
	}
	var bad []error
	complain := func(wrong bool, format string, args ...any) {
		if wrong {
			bad = append(bad, fmt.Errorf(format, args...))
		}
	}
	complain(c.RcvBuf > 1<<30, "RcvBuf %d: at most 2^30 (RFC 7323 §2.2)", c.RcvBuf)
	complain(c.SndBuf > 1<<30, "SndBuf %d: at most 2^30", c.SndBuf)
	for _, r := range []struct {
		name string
		n    uint32
	}{{"SndSegs", c.SndSegs}, {"RcvSegs", c.RcvSegs}} {
		complain(bits.OnesCount32(r.n) != 1 || r.n < 4 || r.n > 1<<16,
			"%s %d: choose a power of two from 4 to 65536", r.name, r.n)
	}
	complain(c.MinRTO < time.Millisecond, "MinRTO %v: at least 1ms", c.MinRTO)
	complain(c.UserTimeout < 0, "UserTimeout is negative")
	complain(c.MaxRTO < c.MinRTO, "MaxRTO %v is below MinRTO %v", c.MaxRTO, c.MinRTO)
	return c, errors.Join(bad...)
}

// Check returns one error with every impossible field of st. New fails with the same
// errors. A take-over calls Check while the kernel still owns the connection.
func (st *State) Check() error {
	var bad []error
	complain := func(wrong bool, format string, args ...any) {
		if wrong {
			bad = append(bad, fmt.Errorf(format, args...))
		}
	}
	complain(len(st.Queue) > maxQueue, "Queue holds %d octets: at most %d", len(st.Queue), maxQueue)
	complain(len(st.Unread) > maxQueue, "Unread holds %d octets: at most %d", len(st.Unread), maxQueue)
	bad = append(bad, st.checkPhase()...)
	complain(st.RcvWup.After(st.RcvNxt), "RcvWup %d is after RcvNxt %d", st.RcvWup, st.RcvNxt)
	complain(st.SndScale > 14, "SndScale %d: at most 14 (RFC 7323 §2.3)", st.SndScale)
	complain(st.RcvScale > 14, "RcvScale %d: at most 14 (RFC 7323 §2.3)", st.RcvScale)
	complain(st.SndWnd > 1<<30, "SndWnd %d: at most 2^30", st.SndWnd)
	complain(st.MaxWnd > 1<<30, "MaxWnd %d: at most 2^30", st.MaxWnd)
	complain(st.RcvWnd > 1<<30, "RcvWnd %d: at most 2^30", st.RcvWnd)
	least := leastMTU(st.V6)
	complain(st.MTU < least, "MTU %d: at least %d", st.MTU, least)
	complain(st.MSS < LeastMSS, "MSS %d: at least %d, as Linux", st.MSS, LeastMSS)
	complain(st.LocalMSS != 0 && st.LocalMSS < LeastMSS, "LocalMSS %d: at least %d, as Linux", st.LocalMSS, LeastMSS)
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"TSTick", st.TSTick}, {"SRTT", st.SRTT}, {"MinRTT", st.MinRTT}, {"RTTVar", st.RTTVar}, {"RTO", st.RTO},
		{"KeepIdle", st.Keepalive.Idle}, {"KeepInterval", st.Keepalive.Interval}, {"UserTimeout", st.UserTimeout}} {
		complain(d.d < 0, "%s is negative", d.name)
	}
	complain(st.Keepalive.Count < 0, "KeepCount is negative")
	return errors.Join(bad...)
}

// checkPhase reports fields that contradict the Phase.
func (st *State) checkPhase() (bad []error) {
	sent, queued := st.SndUna.Until(st.SndNxt), seq.Len(len(st.Queue))
	mayFIN := st.Phase.finQueued()
	switch {
	case st.Phase >= Closed:
		bad = append(bad, fmt.Errorf("Phase is %v: choose one from ESTABLISHED to LAST-ACK", st.Phase))
	case st.FinSent && !mayFIN, !st.FinSent && st.Phase.finAcked():
		bad = append(bad, fmt.Errorf("FinSent is %v, but Phase is %v", st.FinSent, st.Phase))
	case st.Phase.finAcked() && (sent != 0 || queued != 0):
		bad = append(bad, fmt.Errorf("Phase is %v, but %d octets are not acknowledged: Queue must be empty, and SndNxt SndUna", st.Phase, max(sent, queued)))
	case st.FinSent && !st.Phase.finAcked() && sent != queued+1:
		bad = append(bad, fmt.Errorf("SndNxt is %d behind SndUna, but Queue holds %d octets and our FIN was sent: it must be %d", sent, queued, queued+1))
	case !st.FinSent && sent > queued:
		bad = append(bad, fmt.Errorf("SndNxt is %d behind SndUna, but Queue holds %d octets: all that was sent must be in it", sent, queued))
	}
	if m := st.Moved; m != nil && (m.FirstMTU < st.MTU || m.LinkMTU < st.MTU) {
		bad = append(bad, fmt.Errorf("MTU %d is above FirstMTU %d or LinkMTU %d", st.MTU, m.FirstMTU, m.LinkMTU))
	}
	if st.TSRecentAge < 0 {
		bad = append(bad, fmt.Errorf("TSRecentAge is negative"))
	}
	return bad
}
