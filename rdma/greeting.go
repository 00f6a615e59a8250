package rdma

import (
	"container/list"
	"net"
	"net/netip"
)

// greeting is a peer that has connected and has not sent its Request yet.
type greeting struct {
	c      *net.TCPConn
	number uint64     // of the Listener's TCP connections, from 1
	from   netip.Addr // its source
	at     *list.Element
}

// greetings are a Listener's, by source. When there are too many, the oldest of the
// source with the most has to go (RFC 5042 §6.4.2): a host that opens connections and
// says nothing drives out its own, not those of peers that are farther away and take
// longer for their Request.
type greetings struct {
	most    int
	count   int
	sources map[netip.Addr]*list.List // of *greeting, oldest first; none is empty
}

func newGreetings(most int) greetings {
	return greetings{most: most, sources: map[netip.Addr]*list.List{}}
}

// sourceOf is what one host can have: an IPv4 address, 64 bits of IPv6. Link-local
// addresses have the same 64 bits for everybody.
func sourceOf(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if a.Is4() || a.IsLinkLocalUnicast() {
		return a
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}

// add enters a peer. evicted, if not nil, has to go for it.
func (g *greetings) add(c *net.TCPConn, remote netip.Addr, number uint64) (mine, evicted *greeting) {
	if g.count >= g.most {
		evicted = g.greediest().Front().Value.(*greeting)
		g.remove(evicted)
	}
	mine = &greeting{c: c, number: number, from: sourceOf(remote)}
	l := g.sources[mine.from]
	if l == nil {
		l = list.New()
		g.sources[mine.from] = l
	}
	mine.at = l.PushBack(mine)
	g.count++
	return mine, evicted
}

// greediest has the most; among equals the one that has been silent longest.
func (g *greetings) greediest() (most *list.List) {
	for _, l := range g.sources {
		if most == nil || l.Len() > most.Len() ||
			l.Len() == most.Len() && l.Front().Value.(*greeting).number < most.Front().Value.(*greeting).number {
			most = l
		}
	}
	return most
}

// remove takes a peer out, unless it is out already.
func (g *greetings) remove(p *greeting) {
	if p.at == nil {
		return
	}
	l := g.sources[p.from]
	l.Remove(p.at)
	if p.at = nil; l.Len() == 0 {
		delete(g.sources, p.from)
	}
	g.count--
}

// all calls fn for each.
func (g *greetings) all(fn func(*greeting)) {
	for _, l := range g.sources {
		for e := l.Front(); e != nil; e = e.Next() {
			fn(e.Value.(*greeting))
		}
	}
}

// drop closes the connection of a peer that has said too little to be answered: by a
// reset, because a peer that never closes its side would leave a socket in FIN-WAIT-2
// here for each connection that it makes.
func drop(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}
