package handoff

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/tcp"
)

// Bits of tcpi_options (linux/tcp.h).
const (
	optTimestamps = 1
	optSACK       = 2
	optScale      = 4
	optECN        = 8
	optUsecTS     = 64
)

// readInfo reads the values that only TCP_INFO contains.
func (s *Socket) readInfo(st *tcp.State, i tcpInfo) (err error) {
	if i.State != established {
		return fmt.Errorf("%w any more: it is in %s", ErrNotEstablished, stateName(i.State))
	}
	// In repair mode TCP_MAXSEG is the MSS option of the peer.
	mss, err := unix.GetsockoptInt(s.fd, unix.SOL_TCP, unix.TCP_MAXSEG)
	if err != nil {
		return fmt.Errorf("read TCP_MAXSEG: %w", err)
	}
	if mss < tcp.LeastMSS {
		return fmt.Errorf("%w: its MSS option is %d, and the engine's segments have room for %d or more", ErrTiny, mss, tcp.LeastMSS)
	}
	st.MSS = uint16(min(mss, 0xffff))
	st.MTU = uint16(min(i.Pmtu, 0xffff))
	st.V6 = !s.tuple.Remote.Addr().Is4()
	st.LocalMSS = i.announced()
	st.SACK = i.Options&optSACK != 0
	st.Timestamps = i.Options&optTimestamps != 0
	st.ECN = i.Options&optECN != 0
	if i.Options&optScale != 0 {
		st.SndScale, st.RcvScale = i.sndScale, i.rcvScale
	}
	st.TSTick = time.Millisecond
	if i.Options&optUsecTS != 0 {
		st.TSTick = time.Microsecond
	}
	st.SRTT = time.Duration(i.Rtt) * time.Microsecond
	if i.Min_rtt < math.MaxUint32 { // otherwise no round trip was measured yet
		st.MinRTT = time.Duration(i.Min_rtt) * time.Microsecond
	}
	st.RTTVar = time.Duration(i.Rttvar) * time.Microsecond
	st.RTO = time.Duration(i.Rto) * time.Microsecond
	st.Cwnd = inOctets(i.Snd_cwnd, i.Snd_mss)
	if i.Snd_ssthresh < noThreshold {
		st.Ssthresh = inOctets(i.Snd_ssthresh, i.Snd_mss)
	}
	if st.Congestion, err = unix.GetsockoptString(s.fd, unix.SOL_TCP, unix.TCP_CONGESTION); err != nil {
		return fmt.Errorf("read TCP_CONGESTION: %w", err)
	}
	return nil
}

// timestampLen is the length in octets of timestamps in each segment. If timestamps are
// agreed on, the kernel subtracts this length from the MSS that it announced.
const timestampLen = 12

// announced returns the MSS option that the kernel sent to the peer.
func (i tcpInfo) announced() uint16 {
	mss := i.Advmss
	if i.Options&optTimestamps != 0 {
		mss += timestampLen
	}
	return uint16(min(mss, 0xffff))
}

// noThreshold is the slow start threshold of a connection without losses
// (TCP_INFINITE_SSTHRESH in the kernel's net/tcp.h).
const noThreshold = 0x7fffffff

// inOctets returns a window in octets. The kernel counts windows in segments of its
// MSS.
func inOctets(segments, mss uint32) uint32 { return uint32(min(uint64(segments)*uint64(mss), 1<<30)) }

// readSettings reads the socket options that the application has set. Keepalive and
// user timeout are switched off already. Their values are in s.saved.
func (s *Socket) readSettings(st *tcp.State) error {
	var idle, interval, count, noDelay int
	for _, o := range []struct {
		name int
		dst  *int
	}{
		{unix.TCP_KEEPIDLE, &idle},
		{unix.TCP_KEEPINTVL, &interval},
		{unix.TCP_KEEPCNT, &count},
		{unix.TCP_NODELAY, &noDelay},
	} {
		v, err := unix.GetsockoptInt(s.fd, unix.SOL_TCP, o.name)
		if err != nil {
			return fmt.Errorf("read TCP option %d: %w", o.name, err)
		}
		*o.dst = v
	}
	st.NoDelay = noDelay != 0
	st.UserTimeout = time.Duration(s.saved.userTimeout) * time.Millisecond
	if s.saved.keepalive != 0 {
		st.Keepalive.Idle = time.Duration(idle) * time.Second
		st.Keepalive.Interval = time.Duration(interval) * time.Second
		st.Keepalive.Count = count
	}
	return nil
}

// saved holds the values of a socket's settings from before repair mode, which changes
// these settings.
type saved struct {
	keepalive, userTimeout, reuse int
}

// enterRepair enters repair mode. Before that, it switches off keepalive and user
// timeout, which could end the connection during the take-over. On failure it restores
// the socket.
func (s *Socket) enterRepair() error {
	for _, o := range s.savedOptions() {
		v, err := unix.GetsockoptInt(s.fd, o.level, o.name)
		if err != nil {
			return fmt.Errorf("read %s: %w", o.text, err)
		}
		*o.value = v
	}
	err := s.stopTimers()
	if err == nil {
		err = unix.SetsockoptInt(s.fd, unix.SOL_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_ON)
	}
	if err != nil {
		s.restore()
		return fmt.Errorf("TCP_REPAIR: %w", err)
	}
	return nil
}

func (s *Socket) stopTimers() error {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 0); err != nil {
		return err
	}
	return unix.SetsockoptInt(s.fd, unix.SOL_TCP, unix.TCP_USER_TIMEOUT, 0)
}

// leaveRepair returns the connection to the kernel. leaveRepair suppresses the window
// probe that the kernel normally sends at the end of repair mode.
func (s *Socket) leaveRepair() error {
	err := unix.SetsockoptInt(s.fd, unix.SOL_TCP, unix.TCP_REPAIR, unix.TCP_REPAIR_OFF_NO_WP)
	if err != nil {
		return fmt.Errorf("leave repair mode: %w", err)
	}
	return s.restore()
}

// restore sets the settings that enterRepair has saved. restore also sets SO_REUSEADDR
// again, because repair mode clears it.
func (s *Socket) restore() error {
	for _, o := range s.savedOptions() {
		if err := unix.SetsockoptInt(s.fd, o.level, o.name, *o.value); err != nil {
			return fmt.Errorf("restore %s: %w", o.text, err)
		}
	}
	return nil
}

type savedOption struct {
	level, name int
	text        string
	value       *int
}

func (s *Socket) savedOptions() []savedOption {
	return []savedOption{
		{unix.SOL_SOCKET, unix.SO_REUSEADDR, "SO_REUSEADDR", &s.saved.reuse},
		{unix.SOL_TCP, unix.TCP_USER_TIMEOUT, "TCP_USER_TIMEOUT", &s.saved.userTimeout},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, "SO_KEEPALIVE", &s.saved.keepalive},
	}
}

// readIP reads the values that the kernel puts into IP headers.
func (s *Socket) readIP(*tcp.State) (err error) {
	type option struct{ level, name int }
	ttl, tos, discover := option{unix.SOL_IP, unix.IP_TTL}, option{unix.SOL_IP, unix.IP_TOS}, option{unix.SOL_IP, unix.IP_MTU_DISCOVER}
	if !s.tuple.Remote.Addr().Is4() {
		ttl = option{unix.SOL_IPV6, unix.IPV6_UNICAST_HOPS}
		tos = option{unix.SOL_IPV6, unix.IPV6_TCLASS}
		discover = option{unix.SOL_IPV6, unix.IPV6_MTU_DISCOVER}
	}
	var v [3]int
	for i, o := range []option{ttl, tos, discover} {
		if v[i], err = unix.GetsockoptInt(s.fd, o.level, o.name); err != nil {
			return fmt.Errorf("read IP option %d: %w", o.name, err)
		}
	}
	const ecn = 3 // the ECN bits of the traffic class, which the application does not set (RFC 3168 §5)
	df := v[2] == unix.IP_PMTUDISC_WANT || v[2] == unix.IP_PMTUDISC_DO || v[2] == unix.IP_PMTUDISC_PROBE
	s.ip = IP{TTL: uint8(v[0]), TOS: uint8(v[1]) &^ ecn, DF: df}
	return nil
}

var bigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// Values of tcpi_ecn_mode (linux/tcp.h, Linux 7.0).
const (
	ecnAccurate = 2 // Accurate ECN, RFC 9768
	ecnPending  = 3 // Accurate ECN was requested and is not settled
)

// ecnMode returns tcpi_ecn_mode of a struct tcp_info with the kernel's length. The
// field is two bits of a word: the lowest on a little-endian machine and the highest on
// a big-endian one. Linux 6.18 stores failures of Accurate ECN there. Such failures do
// not matter to a connection without Accurate ECN.
func ecnMode(info []byte) uint8 {
	switch {
	case len(info) < int(ecnModeAt)+4:
		return 0
	case bigEndian:
		return info[ecnModeAt] >> 6
	}
	return info[ecnModeAt] & 3
}

// accurateECN reports whether the ECN bits of the connection's segments have the
// meaning of RFC 9768.
func (i tcpInfo) accurateECN() bool { return i.ecnMode == ecnAccurate || i.ecnMode == ecnPending }
