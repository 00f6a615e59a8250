package rdma

import (
	"container/list"
	"net"
	"net/netip"
)

// greeting is a peer that has connected and has not sent its Request yet.
type greeting struct {
	c      *net.TCPConn
	number uint64     // position among the Listener's TCP connections, from 1
	from   netip.Addr // source of the peer, as sourceOf returns it
	at     *list.Element
}

// greetings are the peers of a Listener that have not sent their Request, by source. If
// there are too many, the oldest peer of the source with the most peers is evicted (RFC
// 5042 §6.4.2). A host that opens connections and sends nothing then evicts only its
// own connections. Such a host does not evict peers that are farther away and take
// longer for their Request.
type greetings struct {
	most    int
	count   int
	sources map[netip.Addr]*list.List // lists of *greeting, oldest first; no list is empty
}

func newGreetings(most int) greetings {
	return greetings{most: most, sources: map[netip.Addr]*list.List{}}
}

// sourceOf returns the part of a that identifies one host: an IPv4 address, or the
// first 64 bits of an IPv6 address. For a link-local address it returns the whole
// address, because the first 64 bits are the same on all hosts.
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

// add adds a peer. If g is full, add removes another peer and returns it as evicted.
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

// greediest returns the list of the source with the most peers. If several have equally
// many, it returns the one whose oldest peer has been silent longest.
func (g *greetings) greediest() (most *list.List) {
	for _, l := range g.sources {
		if most == nil || l.Len() > most.Len() ||
			l.Len() == most.Len() && l.Front().Value.(*greeting).number < most.Front().Value.(*greeting).number {
			most = l
		}
	}
	return most
}

// remove removes a peer, unless it has been removed already.
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

// all calls fn for each peer.
func (g *greetings) all(fn func(*greeting)) {
	for _, l := range g.sources {
		for e := l.Front(); e != nil; e = e.Next() {
			fn(e.Value.(*greeting))
		}
	}
}

// drop resets the connection of a peer that gets no answer. A reset is needed because a
// peer that never closes its side would leave a socket in FIN-WAIT-2 here for each
// connection that it makes.
func drop(c *net.TCPConn) {
	c.SetLinger(0)
	c.Close()
}
