package iscsi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/adapter"
	"github.com/stag-rdma/stag/rdma"
)

// Dial logs in to the target of a URL, and returns its logical unit. The caller must close
// the Disk, which ends the session.
func Dial(ctx context.Context, url string, c Config) (*Disk, error) {
	s, err := DialSession(ctx, url, c)
	if err != nil {
		return nil, err
	}
	d, err := s.open(ctx, s.url.LUN)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("iscsi: open LUN %d of %s: %w", s.url.LUN, s.url.Target, err), s.Close())
	}
	return d, nil
}

// DialSession logs in to the target of a URL, and opens no logical unit. It is for programs
// that execute commands of their own by Session.Do. The caller must close the Session.
func DialSession(ctx context.Context, url string, c Config) (*Session, error) {
	u, err := ParseURL(url)
	if err != nil {
		return nil, err
	}
	if u.Target == "" {
		return nil, errors.New("iscsi URL: it names no target: add /iqn…/lun, or ask the portal with Discover")
	}
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
	sock, err := s.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("iscsi: discover targets of %s: %w", u.Portal, err)
	}
	defer sock.Close()
	asked := login.NewDiscovery(sock.params, 1)
	if err := converse(ctx, sock, sock.params.Digests, sock.params.MaxRecvLength, asked); err != nil {
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
	c, err := c.fill()
	if err != nil {
		return nil, fmt.Errorf("iscsi: %w", err)
	}
	s := &Session{url: u, cfg: c, portal: u.Portal, done: make(chan struct{}), news: make(chan struct{}, 1), asked: make(chan question)}
	if c.Adapter == nil {
		if s.own, err = rdma.Open(rdma.Config{KernelPort: true, NoControl: true, RegionHeap: 1 << 20, MaxRegions: c.Depth + callSlots + 16}); err != nil {
			return nil, err
		}
		c.Adapter = s.own
	}
	s.device = c.Adapter.Device().(*adapter.Adapter)
	if _, err := rand.Read(s.isid[1:4]); err != nil {
		return nil, errors.Join(err, s.letGo())
	}
	s.isid[0] = 0x80 // type 10, random (RFC 7143 §11.12.5)
	return s, nil
}

func dialSession(ctx context.Context, u URL, c Config) (*Session, error) {
	s, err := prepare(u, c)
	if err != nil {
		return nil, err
	}
	sock, err := s.connect(ctx)
	if err == nil {
		err = s.begin(ctx, sock)
	}
	if err != nil {
		return nil, errors.Join(err, s.letGo())
	}
	s.watch()
	return s, nil
}

// mostMoves is how often a session follows a target that has moved.
const mostMoves = 4

// socket is a connection that has logged in.
type socket struct {
	*adapter.Socket
	params login.Params
	portal string
}

// connect connects to the portal of the URL and logs in. It follows a target that has
// moved.
func (s *Session) connect(ctx context.Context) (*socket, error) {
	ctx, cancel := s.device.While(ctx)
	defer cancel()
	at := s.url.Portal
	for moves := 0; ; moves++ {
		sock, err := s.device.Dial(ctx, at, adapter.DialOptions{})
		if err != nil {
			return nil, err
		}
		params, err := s.login(ctx, sock)
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
func (s *Session) login(ctx context.Context, sock *adapter.Socket) (p login.Params, err error) {
	chap := s.url.chap
	if chap != nil && chap.PeerSecret != nil {
		mine := *chap
		if _, err := rand.Read(mine.Nonce[:]); err != nil {
			return p, err
		}
		chap = &mine
	}
	m, err := login.NewInitiator(login.InitiatorConfig{
		Name: s.cfg.InitiatorName, Target: s.url.Target, ISID: s.isid, Tag: 1, CmdSN: 1, Wishes: s.wishes(), CHAP: chap,
	})
	if err != nil {
		return p, err
	}
	if err := converse(ctx, sock, pdu.Digests{}, 0, m); err != nil {
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
		HeaderDigest: s.url.headerDigest, DataDigest: s.url.dataDigest,
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

// begin makes the machine of the session, and gives it its first connection.
func (s *Session) begin(ctx context.Context, sock *socket) error {
	done, err := s.device.Use()
	if err != nil {
		sock.Close()
		return err
	}
	defer done()
	if err := s.reserve(); err != nil {
		sock.Close()
		return err
	}
	s.flow = flow.NewInitiator(flow.Config{Params: sock.params, Tags: s.tags, Board: s.device.Board(), Keep: true})
	s.flow.News.Fire = s.wakeWatcher
	s.calls.init(s)
	if err := s.takeOver(ctx, sock); err != nil {
		s.freeEntries()
		return err
	}
	s.recovery.init(s, sock.params)
	return nil
}

// takeOver makes the Initiator the owner of a connection that has logged in.
func (s *Session) takeOver(ctx context.Context, sock *socket) error {
	c, err := sock.TakeOver(ctx, s.flow, adapter.TakeOver{Kind: bpf.KindISCSI})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.params, s.portal = sock.params, sock.portal
	s.mu.Unlock()
	s.conn.Store(c)
	s.cfg.Log.Info("iscsi session", "target", s.url.Target, "portal", sock.portal, "path", sock.Path(), "header_digest", sock.params.Digests.Header, "data_digest", sock.params.Digests.Data)
	return nil
}
