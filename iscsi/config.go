package iscsi

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/rdma"
)

// Config is the configuration of a session. The zero Config works.
type Config struct {
	// Adapter is the adapter whose ports or kernel port the connection uses. nil: Dial
	// opens an adapter over the kernel's TCP, and Close closes it. That adapter has no control
	// socket, so `stag show` does not see it.
	Adapter *rdma.Adapter

	// InitiatorName is the iSCSI name of this end. "" means a name from the host's name.
	InitiatorName string

	// HeaderDigest and DataDigest ask for digests. What the URL says comes before. A
	// connection of iSER has none: the CRC of MPA protects every octet.
	HeaderDigest, DataDigest bool

	// Depth is how many commands all Queues of the session can have in flight together, 1
	// to 4096. 0 means 128.
	Depth int

	// Connections is how many connections the session has (MC/S), 1 to 16, if the target
	// permits as many. 0 means 1. What the URL says comes before. Commands take the connection
	// with the fewest, so they reach the unit in any order: wait for a command on whose effect
	// the next depends. If one connection ends, the session logs in again with all of them. A
	// session of iSER, or of error recovery level 1, has one connection.
	Connections int

	// The next fields are lengths that this end offers in the login, in octets. 0 means the
	// default in parentheses.
	MaxRecvDataSegmentLength uint32 // (262144)
	MaxBurstLength           uint32 // (1048576)
	FirstBurstLength         uint32 // (65536)
	MaxOutstandingR2T        uint32 // (1); at most 8
	RequireR2T               bool   // InitialR2T=Yes: no unsolicited Data-Out
	NoImmediateData          bool   // ImmediateData=No

	// ErrorRecoveryLevel is what this end offers, 0 or 1. At level 1 data that arrives damaged
	// is sent again, and the command goes on; at level 0 the command fails, or the session
	// logs in again (RFC 7143 §7.1.4). It needs digests, and a target that has it. LIO of
	// Linux 6.1 has it for the data of reads. If the data of a write reaches it damaged, LIO
	// frees the command twice.
	ErrorRecoveryLevel int

	// Ping is how long the target may be silent before this end asks whether it is there,
	// and how long it may take to answer. 0 means 5 s.
	Ping time.Duration

	// RecoveryTimeout is how long a session that has lost its connection tries to log in
	// again. 0 means 120 s. Less than 0 means that the session ends with its connection.
	RecoveryTimeout time.Duration

	// Policy says which path of DialMultipath a command takes. PathCheck is how often each
	// path is asked for its access state; 0 means 5 s.
	Policy    Policy
	PathCheck time.Duration

	// Events, if set, is called for what happens to the session. It runs on goroutines of
	// the session, one call at a time. It must not block, and must not call the session.
	Events func(Event)

	Log *slog.Logger // nil: no log
}

const (
	defaultDepth = 128
	maxDepth     = 4096
	defaultPing  = 5 * time.Second
	defaultBurst = 1 << 20
)

// fill sets the defaults. The error has every mistake.
func (c Config) fill() (Config, error) {
	var errs []error
	if c.Depth == 0 {
		c.Depth = defaultDepth
	}
	if c.Depth < 1 || c.Depth > maxDepth {
		errs = append(errs, fmt.Errorf("a Depth of %d: choose 1 to %d", c.Depth, maxDepth))
	}
	if c.Connections == 0 {
		c.Connections = 1
	}
	if err := c.checkConnections(); err != nil {
		errs = append(errs, err)
	}
	if c.MaxOutstandingR2T > 8 {
		errs = append(errs, fmt.Errorf("a MaxOutstandingR2T of %d: choose 1 to 8", c.MaxOutstandingR2T))
	}
	if c.ErrorRecoveryLevel < 0 || c.ErrorRecoveryLevel > 1 {
		errs = append(errs, fmt.Errorf("an ErrorRecoveryLevel of %d: choose 0 or 1", c.ErrorRecoveryLevel))
	}
	if c.MaxBurstLength == 0 {
		c.MaxBurstLength = defaultBurst
	}
	if c.Ping == 0 {
		c.Ping = defaultPing
	}
	if c.Ping < 0 {
		errs = append(errs, fmt.Errorf("a Ping of %v: choose more than 0", c.Ping))
	}
	if c.PathCheck == 0 {
		c.PathCheck = defaultPathCheck
	}
	if c.PathCheck < 0 {
		errs = append(errs, fmt.Errorf("a PathCheck of %v: choose more than 0", c.PathCheck))
	}
	if int(c.Policy) >= len(policies) {
		errs = append(errs, fmt.Errorf("there is no Policy %d", c.Policy))
	}
	if c.InitiatorName == "" {
		c.InitiatorName = ownName()
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, errors.Join(errs...)
}

// ownName returns an iSCSI name that tells hosts apart (RFC 7143 §4.2.7.4).
func ownName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "localhost"
	}
	return "iqn.2026-01.dev.stag:" + strings.ToLower(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, host))
}

// Causes of errors, for errors.Is.
var (
	// ErrClosed: the program has closed the session, its adapter, or the queue.
	ErrClosed = errors.New("closed")
	// ErrSessionLost: the session has ended. The commands that had not completed may have
	// been executed or not.
	ErrSessionLost = errors.New("the iSCSI session has ended")
	// ErrUncertain: the connection was lost before the answer. The target may have executed
	// the command or not. The session goes on, but the command must not be repeated blindly:
	// COMPARE AND WRITE, RESERVE, PERSISTENT RESERVE OUT and commands that this package does
	// not know. Also commands for the medium of a unit of which the session has no Disk.
	ErrUncertain error = flow.Uncertain
	// ErrAlignment: an offset or a length is no multiple of the block size.
	ErrAlignment = errors.New("not a multiple of the block size")
)

// StatusError is the error of a command that the target has not completed with GOOD.
type StatusError struct {
	Status uint8  // SCSI status (SAM-5 §5.3.1)
	Sense  []byte // sense data, if there is any (SPC-4 §4.5)
	text   string
}

func (e *StatusError) Error() string { return e.text }
