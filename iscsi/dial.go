package iscsi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/rdma"
)

// Dial logs in to the target of a URL, and returns its logical unit. If the URL has further
// paths, Dial does what DialMultipath does. The caller must close the Disk, which ends the
// session.
func Dial(ctx context.Context, url string, c Config) (*Disk, error) {
	u, err := parseUnitURL(url)
	if err != nil {
		return nil, err
	}
	if len(u.Paths) != 0 {
		return dialMultipath(ctx, u.spread(), c)
	}
	s, err := dialTarget(ctx, u, c)
	if err != nil {
		return nil, err
	}
	d, err := s.open(ctx, s.url.LUN)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("iscsi: open LUN %d of %s: %w", s.url.LUN, s.url.Target, err), s.Close())
	}
	return d, nil
}

var errNoTarget = errors.New("iscsi URL: it names no target: add /iqn…/lun, or ask the portal with Discover")

// DialSession logs in to the target of a URL, and opens no logical unit. It is for programs
// that execute commands of their own by Session.Do. The caller must close the Session.
func DialSession(ctx context.Context, url string, c Config) (*Session, error) {
	u, err := parseUnitURL(url)
	if err != nil {
		return nil, err
	}
	if len(u.Paths) != 0 {
		return nil, errors.New("iscsi URL: a session has one path: leave out path=, or open the disk with Dial")
	}
	return dialTarget(ctx, u, c)
}

func dialTarget(ctx context.Context, u URL, c Config) (*Session, error) {
	s, err := dialSession(ctx, u, c)
	if err != nil {
		return nil, fmt.Errorf("iscsi: dial %s, %s: %w", u.Portal, u.Target, err)
	}
	return s, nil
}

// Target is what Discover finds.
type Target struct {
	Name    string
	Portals []string // host:port
}

// Discover asks the portal of a URL for its targets, over the kernel's TCP.
func Discover(ctx context.Context, url string, c Config) (targets []Target, err error) {
	u, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	u.Target = ""
	s, err := prepare(u, c)
	if err != nil {
		return nil, err
	}
	defer s.letGo()
	sock, err := s.connect(ctx, connPlace{}, s.url.Portal)
	if err != nil {
		return nil, fmt.Errorf("iscsi: discover targets of %s: %w", u.Portal, err)
	}
	defer sock.Close()
	asked := login.NewDiscovery(sock.params, 1)
	if err := sock.converse(ctx, sock.params.Digests, sock.params.MaxRecvLength, asked); err != nil {
		return nil, fmt.Errorf("iscsi: discover targets of %s: %w", u.Portal, err)
	}
	for _, r := range asked.Records() {
		t := Target{Name: r.Name}
		for _, p := range r.Portals {
			t.Portals = append(t.Portals, p.Address)
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// prepare makes a session without a connection. The caller must let it go.
func prepare(u URL, c Config) (*Session, error) {
	if u.connections != 0 {
		c.Connections = u.connections
	}
	if u.ISER && c.Connections > 1 {
		return nil, errISERConnections
	}
	c, err := c.fill()
	if err != nil {
		return nil, fmt.Errorf("iscsi: %w", err)
	}
	s := &Session{url: u, cfg: c, portal: u.Portal, done: make(chan struct{}), news: make(chan struct{}, 1), asked: make(chan question)}
	if c.Adapter == nil {
		if s.own, err = rdma.Open(ownAdapter(u, c.Connections*(c.Depth+callSlots+controlSlots))); err != nil {
			return nil, err
		}
		c.Adapter = s.own
	}
	s.adapter = c.Adapter
	s.device = s.adapter.Device().(*adapter.Adapter)
	if _, err := rand.Read(s.isid[1:4]); err != nil {
		return nil, errors.Join(err, s.letGo())
	}
	s.isid[0] = 0x80 // type 10, random (RFC 7143 §11.12.5)
	return s, nil
}

func dialSession(ctx context.Context, u URL, c Config) (*Session, error) {
	s, err := prepare(u, c)
	if err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// start makes the first connection. After an error nothing is left of the session.
func (s *Session) start(ctx context.Context) error {
	socks, err := s.connectAll(ctx, s.cfg.Connections)
	if err == nil {
		err = s.begin(ctx, socks)
	}
	if err != nil {
		return errors.Join(err, s.letGo())
	}
	s.watch()
	return nil
}

// mostMoves is how often a session follows a target that has moved.
const mostMoves = 4

// socket is a connection that has logged in.
type socket struct {
	wire
	params login.Params
	portal string
}

// connect connects to a portal and logs in. It follows a target that has moved.
func (s *Session) connect(ctx context.Context, p connPlace, at string) (*socket, error) {
	ctx, cancel := s.device.While(ctx)
	defer cancel()
	for moves := 0; ; moves++ {
		sock, err := s.reach(ctx, at)
		if err != nil {
			return nil, err
		}
		params, err := s.login(ctx, sock, p)
		if err == nil {
			return &socket{sock, params, at}, nil
		}
		sock.Close()
		var refused *login.Refused
		if !errors.As(err, &refused) || refused.Address == "" {
			return nil, err
		}
		if moves == mostMoves {
			return nil, fmt.Errorf("the target has moved %d times: %w", moves+1, err)
		}
		if at, err = portal(refused.Address); err != nil {
			return nil, err
		}
		s.cfg.Log.Info("iscsi target moved", "target", s.url.Target, "portal", at)
	}
}

// login logs in over a socket.
func (s *Session) login(ctx context.Context, sock wire, at connPlace) (p login.Params, err error) {
	chap := s.url.chap
	if chap != nil && chap.PeerSecret != nil {
		mine := *chap
		if _, err := rand.Read(mine.Nonce[:]); err != nil {
			return p, err
		}
		chap = &mine
	}
	m, err := login.NewInitiator(login.InitiatorConfig{
		Name: s.cfg.InitiatorName, Target: s.url.Target, ISID: s.isid, TSIH: at.tsih, CID: at.cid,
		Tag: 1, CmdSN: 1, Wishes: s.wishes(), CHAP: chap,
	})
	if err != nil {
		return p, err
	}
	if err := sock.converse(ctx, pdu.Digests{}, 0, m); err != nil {
		return p, hint(err, chap)
	}
	return m.Params(), nil
}

// hint adds to the error of a login what helps with targets that give the hashes of CHAP
// other numbers: tgtd takes the number of SHA-256 for SHA-1.
func hint(err error, chap *login.Credentials) error {
	var refused *login.Refused
	if chap == nil || chap.Algorithms != nil || !errors.As(err, &refused) || !refused.ByPeer || refused.Status != pdu.InitiatorError && refused.Status != pdu.AuthenticationFailure {
		return err
	}
	return fmt.Errorf("%w (if the target knows only MD5, add the argument auth=md5)", err)
}

// wishes returns what this end asks for in the login.
func (s *Session) wishes() login.Wishes {
	c := &s.cfg
	w := login.Wishes{
		MaxRecvDataSegmentLength: c.MaxRecvDataSegmentLength, MaxBurstLength: c.MaxBurstLength, FirstBurstLength: c.FirstBurstLength,
		MaxOutstandingR2T: c.MaxOutstandingR2T, RequireR2T: c.RequireR2T, NoImmediateData: c.NoImmediateData,
		HeaderDigest: s.url.headerDigest, DataDigest: s.url.dataDigest, ErrorRecoveryLevel: uint32(c.ErrorRecoveryLevel),
		MaxConnections: uint32(c.Connections),
	}
	if s.url.Target == "" {
		w.MaxConnections = 1
	}
	if s.url.ISER { // no digests, and no unsolicited Data-Out (RFC 7145 §6.1, §7.3.1)
		w.RDMA, w.RequireR2T, w.ErrorRecoveryLevel = true, true, 0
		w.InitiatorRecvLength, w.TargetRecvLength = answerLength, immediateLength
		return w
	}
	if w.HeaderDigest == nil && c.HeaderDigest {
		w.HeaderDigest = []login.Digest{login.CRC32C}
	}
	if w.DataDigest == nil && c.DataDigest {
		w.DataDigest = []login.Digest{login.CRC32C}
	}
	return w
}

// machine is a part of the login that a conversation runs.
type machine interface {
	Start(out []byte) []byte
	Step(h *pdu.Header, data, out []byte) (_ []byte, done bool, err error)
}

// converse runs a machine over a socket. It reads no octet behind the last PDU.
func converse(ctx context.Context, c net.Conn, d pdu.Digests, limit int, m machine) error {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if stop() {
			c.SetDeadline(time.Time{})
		}
	}()
	in := login.Inbox{Digests: d, Limit: limit}
	out := m.Start(nil)
	for {
		if _, err := c.Write(out); err != nil {
			return instead(ctx, err)
		}
		for whole := false; !whole; {
			n, err := c.Read(in.Want())
			if err != nil {
				return instead(ctx, ended(err))
			}
			if whole, err = in.Got(n); err != nil {
				return err
			}
		}
		var done bool
		var err error
		out, done, err = m.Step(in.Header(), in.Data(), out[:0])
		if err != nil {
			if len(out) != 0 {
				c.Write(out) // the reason for the target; the error is already there
			}
			return err
		}
		if done {
			return nil
		}
		in.Reset()
	}
}

// ended returns a clearer error for the end of a stream.
func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return errors.New("the target closed the connection during the login: see the target's log")
	}
	return err
}

// instead returns the cause of the end of ctx, if ctx has ended, and otherwise err.
func instead(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// begin makes the machine of the session, and gives it its first connections.
func (s *Session) begin(ctx context.Context, socks []*socket) error {
	done, err := s.device.Use()
	if err != nil {
		closeAll(socks)
		return err
	}
	defer done()
	if err := s.reserve(len(socks)); err != nil {
		closeAll(socks)
		return err
	}
	s.equip(socks)
	for i, c := range s.conns {
		if err := c.takeOver(ctx, socks[i]); err != nil {
			closeAll(socks[i+1:])
			s.giveBack(i)
			return err
		}
	}
	s.recovery.init(s, socks[0].params)
	return nil
}

// giveBack ends a session of which only the first n connections were taken over.
func (s *Session) giveBack(n int) {
	all := s.conns
	s.conns = all[:n]
	s.hangUp()
	s.conns = all
	for _, c := range all {
		c.seen.remove()
	}
	s.freeEntries()
}

// takeOver makes the Initiator the owner of a connection that has logged in.
func (c *sessionConn) takeOver(ctx context.Context, sock *socket) error {
	s := c.s
	c.seen.connecting(sock.Ends())
	l, path, err := sock.takeOver(ctx, c)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if c.params = sock.params; c.cid == 0 {
		s.params, s.portal = sock.params, sock.portal
	}
	s.mu.Unlock()
	again := c.conn.Swap(&l) != nil
	c.seen.linked(l, again)
	s.cfg.Log.Info("iscsi session", "target", s.url.Target, "portal", sock.portal, "cid", c.cid, "path", path, "header_digest", sock.params.Digests.Header, "data_digest", sock.params.Digests.Data)
	return nil
}
