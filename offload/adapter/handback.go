package adapter

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// ErrKernelRuns is returned by HandBack for a connection that no engine runs.
var ErrKernelRuns = errors.New("the kernel's TCP runs the connection already")

// HandBack gives the connection back to the kernel, as nic.Flow.HandBack does. The ULP
// gets nic.ErrHandedBack. On error the connection continues as before, or has ended. A QP
// and an iSCSI session cannot go back: HandBack fails with nic.ErrNoOctets. Over the
// kernel's TCP HandBack fails with ErrKernelRuns.
func (c *Conn) HandBack(ctx context.Context) (*net.TCPConn, error) {
	if c.flow == nil {
		return nil, fmt.Errorf("hand a connection back to the kernel: %w", ErrKernelRuns)
	}
	return c.flow.HandBack(ctx)
}
