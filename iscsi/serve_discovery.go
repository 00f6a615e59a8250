package iscsi

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/seq"
)

// discoveryTimeout is how long a discovery session may be silent.
const discoveryTimeout = time.Minute

// discovery is a discovery session (RFC 7143 §4.3). The kernel keeps its connection, unless
// it is one of iSER.
type discovery struct {
	greeting *greeting
	params   login.Params
	write    func(octets []byte) error // sends PDUs
	rest     []byte                    // text of the answer that has not been sent
	expCmd   seq.Num
	stat     seq.Num
}

// discover serves a discovery session. last is the final Login Response.
func (s *Server) discover(c *net.TCPConn, g *greeting, last []byte) {
	defer func() {
		c.Close()
		<-s.asking
	}()
	d := g.discovery(func(octets []byte) error { _, err := c.Write(octets); return err })
	if d.write(last) != nil {
		return
	}
	in := login.Inbox{Digests: d.params.Digests, Limit: d.params.MaxRecvLength}
	for s.life.Err() == nil {
		c.SetDeadline(time.Now().Add(discoveryTimeout))
		if receive(c, &in) != nil {
			return
		}
		if over, err := d.serve(in.Header(), in.Data()); over || err != nil {
			return
		}
		in.Reset()
	}
}

func (g *greeting) discovery(write func([]byte) error) *discovery {
	return &discovery{greeting: g, params: g.params, write: write, expCmd: g.params.CmdSN, stat: g.params.StatSN}
}

// serve answers a request.
func (d *discovery) serve(h *pdu.Header, data []byte) (over bool, err error) {
	if h.AdvancesCmdSN() {
		if h.CmdSN() != d.expCmd {
			return false, nil
		}
		d.expCmd = d.expCmd.Add(1)
	}
	switch h.Opcode() {
	case pdu.OpText:
		return false, d.text(h, data)
	case pdu.OpNOPOut:
		if h.InitiatorTaskTag() == pdu.NoTag {
			return false, nil
		}
		r := d.reply(pdu.OpNOPIn, h)
		r.SetTargetTransferTag(pdu.NoTag)
		return false, d.send(r, data[:min(len(data), d.params.MaxSendLength)])
	case pdu.OpLogout:
		return true, d.send(d.reply(pdu.OpLogoutResponse, h), nil)
	}
	return false, d.reject(h)
}

func (d *discovery) reject(h *pdu.Header) error {
	r := d.reply(pdu.OpReject, h)
	r.SetInitiatorTaskTag(pdu.NoTag)
	r.SetRejectReason(pdu.RejectProtocolError)
	return d.send(r, h[:])
}

// moreText is the Target Transfer Tag of an answer that is longer than a PDU.
const moreText pdu.Tag = 1

// text answers a Text Request, in as many PDUs as the answer needs (RFC 7143 §11.11).
func (d *discovery) text(h *pdu.Header, data []byte) error {
	if h.TargetTransferTag() == pdu.NoTag {
		answer, ok := login.Answer(data, &d.params, d.records)
		if !ok || h.Has(pdu.Continue) {
			return d.reject(h)
		}
		d.rest = answer
	}
	n := min(len(d.rest), d.params.MaxSendLength)
	part := d.rest[:n]
	d.rest = d.rest[n:]
	r := d.reply(pdu.OpTextResponse, h)
	r.SetTargetTransferTag(pdu.NoTag)
	if len(d.rest) != 0 {
		r.SetFlags(pdu.Continue)
		r.SetTargetTransferTag(moreText)
	}
	return d.send(r, part)
}

// records returns the targets that the initiator may use, or the one with the name.
func (d *discovery) records(name string) (list []login.Record) {
	g := d.greeting
	r := login.Request{InitiatorName: d.params.InitiatorName, User: d.params.User}
	for _, t := range g.server.targets {
		if (name == "" || name == t.Name) && t.admits(&r, g.remote.Addr(), true) {
			list = append(list, g.server.record(t, g.local, g.iser))
		}
	}
	slices.SortFunc(list, func(a, b login.Record) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// record is the target in an answer to SendTargets, with the portals of the transport that
// the initiator uses: the answer cannot name another one. local is the end of the connection
// that asks: a portal that listens at every address is told with the address of local.
func (s *Server) record(t *target, local netip.AddrPort, iser bool) login.Record {
	r := login.Record{Name: t.Name}
	for _, p := range s.portals {
		at := p.addr
		if at.Addr().IsUnspecified() {
			at = netip.AddrPortFrom(local.Addr(), at.Port())
		}
		if iser == (p.iser != nil) {
			r.Portals = append(r.Portals, login.Portal{Address: at.String(), Group: t.at(p.group)})
		}
	}
	return r
}

// reply begins a response.
func (d *discovery) reply(op pdu.Opcode, h *pdu.Header) *pdu.Header {
	r := new(pdu.Header)
	r.Reset(op)
	r.SetFlags(pdu.Final)
	r.SetInitiatorTaskTag(h.InitiatorTaskTag())
	r.SetStatSN(d.stat)
	d.stat = d.stat.Add(1)
	r.SetExpCmdSN(d.expCmd)
	r.SetMaxCmdSN(d.expCmd)
	return r
}

// send writes a PDU.
func (d *discovery) send(h *pdu.Header, data []byte) error {
	h.SetDataLength(len(data))
	out := append([]byte(nil), h[:]...)
	if d.params.Digests.Header {
		out = append(out, 0, 0, 0, 0)
		pdu.PutDigest(out[pdu.HeaderLen:], pdu.HeaderDigest(h, nil))
	}
	out = append(out, data...)
	out = append(out, make([]byte, pdu.Pad(len(data)))...)
	if d.params.Digests.Data && len(data) != 0 {
		out = append(out, 0, 0, 0, 0)
		pdu.PutDigest(out[len(out)-4:], pdu.DataDigest(data))
	}
	return d.write(out)
}
