package handoff

import (
	"errors"
	"fmt"
)

// Reasons for which a connection cannot be taken over. The kernel's connection is
// unchanged or restored in all these cases.
var (
	ErrNotTCP         = errors.New("not a TCP socket")
	ErrMPTCP          = errors.New("a Multipath TCP socket cannot be taken over: call SetMultipathTCP(false) on the net.Dialer or net.ListenConfig")
	ErrNotEstablished = errors.New("not an established connection")
	ErrPending        = errors.New("an error is pending on the socket: read it first")
	ErrTLS            = errors.New("kernel TLS runs on the socket: take the connection over before TLS is set up, or leave it to the kernel")
	ErrULP            = errors.New("an upper-layer protocol of the kernel runs on the socket")
	ErrFilter         = errors.New("the socket's filter is locked: do not set SO_LOCK_FILTER")
	ErrMD5            = errors.New("the connection is signed with TCP-MD5 or TCP-AO, which the engine does not speak")
	ErrSegments       = errors.New("the peer's segments may be longer than a frame")
	ErrTiny           = errors.New("the peer accepts only tiny segments")
	ErrAccurateECN    = errors.New("the connection uses Accurate ECN (RFC 9768), which the engine does not speak: set net.ipv4.tcp_ecn to 0, 1 or 2, or use the kernel port (KernelPort)")
	ErrUrgent         = errors.New("urgent data is on its way: read it first")
	ErrOptions        = errors.New("IP options or IPv6 extension headers are set on the socket: clear them")
	ErrLocal          = errors.New("the peer is on this host: use the kernel port")
	ErrPermission     = errors.New("TCP_REPAIR is not permitted: CAP_NET_ADMIN is needed in the user namespace that owns the socket's network")
	ErrNoDiag         = errors.New("the kernel cannot say whether the connection is signed: load the tcp_diag module")
	ErrUnseen         = errors.New("no segment of the connection has reached the engine")
	ErrMoving         = errors.New("segments still reach the kernel although they are steered away: check that the XDP program sits on the interface that the connection arrives on")
	ErrWritten        = errors.New("the socket was written to while it was being taken over: wait for writers first")
	ErrNoBarrier      = errors.New("the kernel offers no global membarrier (it has none, or nohz_full is set)")
	ErrClosed         = errors.New("the socket has been closed or handed over")
)

// LostError is the error of a take-over that failed after the kernel had given its
// connection up. The connection no longer exists. The kernel resets the peer when the
// peer sends its next segment.
type LostError struct {
	Tuple Tuple
	Err   error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the connection from %v to %v is lost: %v", e.Tuple.Local, e.Tuple.Remote, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

// Step names the parts of a take-over, in their order.
type Step int

// The steps of a take-over. If a step up to StepRead fails, the kernel keeps the
// connection. If StepReplace or a later step fails, the connection is lost.
const (
	StepCheck Step = iota
	StepPark
	StepGrace
	StepHear
	StepRepair
	StepRead
	StepReplace
	StepInstall
)

var stepNames = [...]string{
	StepCheck:   "check the socket",
	StepPark:    "park its segments",
	StepGrace:   "wait for segments under way",
	StepHear:    "wait for a segment of the peer's",
	StepRepair:  "enter repair mode",
	StepRead:    "read its state",
	StepReplace: "replace it by a placeholder",
	StepInstall: "install it in the engine",
}

func (s Step) String() string { return stepNames[s] }

// stateNames is indexed by the kernel's number of a TCP state. The names are those of
// RFC 9293 §3.3.2.
var stateNames = [...]string{
	1: "ESTABLISHED", "SYN-SENT", "SYN-RECEIVED", "FIN-WAIT-1", "FIN-WAIT-2",
	"TIME-WAIT", "CLOSED", "CLOSE-WAIT", "LAST-ACK", "LISTEN", "CLOSING", "NEW-SYN-RECEIVED",
}

// established and closed are the two states that this package uses.
const (
	established = 1
	closed      = 7
)

func stateName(state uint8) string {
	if int(state) < len(stateNames) && stateNames[state] != "" {
		return stateNames[state]
	}
	return fmt.Sprintf("state %d", state)
}
