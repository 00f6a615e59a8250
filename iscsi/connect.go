package iscsi

import (
	"context"
	"fmt"

	"github.com/stag-rdma/stag/iscsi/flow"
)

// connPlace is where a login puts its connection: into a new session, or into one that is there.
type connPlace struct{ tsih, cid uint16 }

// connectAll logs in with n connections, or with as many as the target permits if the
// session is new. The leading login makes the session, and the others join it (RFC 7143
// §6.3.1).
func (s *Session) connectAll(ctx context.Context, n int) ([]*socket, error) {
	lead, err := s.connect(ctx, connPlace{}, s.url.Portal)
	if err != nil {
		return nil, err
	}
	socks := []*socket{lead}
	if most := int(lead.params.MaxConnections); n > most {
		if s.conns != nil {
			lead.Close()
			return nil, fmt.Errorf("the session had %d connections, and the target permits %d now", n, most)
		}
		n = most
	}
	for cid := 1; cid < n; cid++ {
		sock, err := s.connect(ctx, connPlace{lead.params.TSIH, uint16(cid)}, lead.portal)
		if err != nil {
			closeAll(socks)
			return nil, fmt.Errorf("connection %d of %d: %w", cid+1, n, err)
		}
		socks = append(socks, sock)
	}
	return socks, nil
}

func closeAll(socks []*socket) {
	for _, sock := range socks {
		sock.Close()
	}
}

// checkConnections reports a number of connections that cannot be.
func (c *Config) checkConnections() error {
	switch {
	case c.Connections < 1 || c.Connections > flow.MaxConnections:
		return fmt.Errorf("%d connections in a session: choose 1 to %d", c.Connections, flow.MaxConnections)
	case c.Connections > 1 && c.ErrorRecoveryLevel != 0:
		return fmt.Errorf("%d connections in a session and error recovery level %d: set Connections to 1, or ErrorRecoveryLevel to 0", c.Connections, c.ErrorRecoveryLevel)
	}
	return nil
}
