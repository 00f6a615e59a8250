package iscsi

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"

	"github.com/stag-rdma/stag/rdma"
)

// schemeISER begins the address of a portal for iSER.
const schemeISER = "iser://"

// entrance is an address at which a Server accepts connections: of TCP (socket), or of iSER.
type entrance struct {
	socket *net.TCPListener
	iser   *rdma.Listener
	addr   netip.AddrPort
	group  uint16 // tag of the target portal group; 0: that of the target
}

// allPortals returns ServerConfig.Address and Portals.
func (c *ServerConfig) allPortals() []PortalConfig {
	return append([]PortalConfig{{Address: c.Address}}, c.Portals...)
}

// hasISER reports whether a portal accepts connections of iSER.
func (c *ServerConfig) hasISER() bool {
	for _, p := range c.allPortals() {
		if strings.HasPrefix(p.Address, schemeISER) {
			return true
		}
	}
	return false
}

// listen opens the portals.
func (s *Server) listen(ctx context.Context) error {
	for _, c := range s.cfg.allPortals() {
		p := &entrance{group: c.Group}
		if err := p.open(ctx, s, c.Address); err != nil {
			return errors.Join(err, s.closePortals())
		}
		s.portals = append(s.portals, p)
	}
	return nil
}

func (p *entrance) open(ctx context.Context, s *Server, address string) (err error) {
	if host, iser := strings.CutPrefix(address, schemeISER); iser {
		if p.iser, err = s.cfg.Adapter.Listen(ctx, host, rdma.ListenConfig{}); err == nil {
			p.addr = p.iser.Addr()
		}
		return err
	}
	if p.socket, err = s.adapter.Listen(ctx, address, 0); err == nil {
		p.addr = s.adapter.ListenerAddr(p.socket)
	}
	return err
}

// serve accepts connections until the Server closes.
func (p *entrance) serve(s *Server) {
	if p.iser != nil {
		s.acceptISER(p)
	} else {
		s.acceptAll(p)
	}
}

func (p *entrance) close() error {
	if p.iser != nil {
		return p.iser.Close()
	}
	if err := p.socket.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// closePortals closes the portals, unless they are closed.
func (s *Server) closePortals() (err error) {
	for _, p := range s.portals {
		err = errors.Join(err, p.close())
	}
	return err
}

// Addr returns the address of the first portal, ServerConfig.Address.
func (s *Server) Addr() netip.AddrPort { return s.portals[0].addr }

// Addrs returns the addresses of all portals: ServerConfig.Address, and then Portals in
// order.
func (s *Server) Addrs() (all []netip.AddrPort) {
	for _, p := range s.portals {
		all = append(all, p.addr)
	}
	return all
}
