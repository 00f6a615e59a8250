package iscsi_test

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi/login"
	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// discoveryPortal is a target's end of logins and discovery sessions, over loopback.
type discoveryPortal struct {
	chap    *login.Verifier
	records []login.Record
}

func (p *discoveryPortal) Policy(r *login.Request) login.Policy   { return login.Policy{CHAP: p.chap} }
func (p *discoveryPortal) Existing(*login.Request) login.Existing { return login.Existing{} }
func (p *discoveryPortal) Enter(*login.Request, login.Action, *login.Params) (uint16, pdu.LoginStatus) {
	return 1, pdu.LoginSuccess
}

// phase is either end's machine of one phase.
type phase interface {
	Step(h *pdu.Header, data, out []byte) (_ []byte, done bool, err error)
}

// runPhase runs a machine over a connection to its end.
func runPhase(c net.Conn, in login.Inbox, m phase) error {
	for {
		for whole := false; !whole; {
			n, err := c.Read(in.Want())
			if err == nil {
				whole, err = in.Got(n)
			}
			if err != nil {
				return err
			}
		}
		out, done, err := m.Step(in.Header(), in.Data(), nil)
		if _, werr := c.Write(out); err != nil || done || werr != nil {
			return errors.Join(err, werr)
		}
		in.Reset()
	}
}

// session serves a login and the discovery session behind it.
func (p *discoveryPortal) session(c net.Conn) (login.Params, error) {
	defer c.Close()
	m, err := login.NewTarget(login.TargetConfig{Registry: p, Window: 8})
	if err == nil {
		err = runPhase(c, login.Inbox{}, m)
	}
	if err != nil {
		return login.Params{}, err
	}
	q := m.Params()
	d := login.NewDiscovered(q, func(string) []login.Record { return p.records })
	return q, runPhase(c, login.Inbox{Digests: q.Digests, Limit: q.MaxRecvLength}, d)
}

// TestDiscovered: iscsi-ls of libiscsi asks this target's machines, without CHAP, with it,
// and mutually.
func TestDiscovered(t *testing.T) {
	need.Tool(t, "iscsi-ls")
	const user, arguments = "alice%" + aliceSecret + "@", "?target_user=bob&target_password=" + bobSecret
	wrong := strings.Replace(user, "12@", "13@", 1)
	verifier := &login.Verifier{
		Secret: func(u string) (login.Secret, bool) { return login.Secret(aliceSecret), u == "alice" },
		User:   "bob", OwnSecret: login.Secret(bobSecret), Nonce: login.Nonce{200, 1, 2, 3},
	}
	for _, c := range []struct {
		name, before, after string
		chap                *login.Verifier
		targets             int
		user, peer          string
		refused             bool
	}{
		{name: "no CHAP", targets: 1},
		{name: "no targets", targets: 0},
		{name: "many targets", targets: 300},
		{name: "CHAP", before: user, chap: verifier, targets: 2, user: "alice"},
		{name: "mutual CHAP", before: user, after: arguments, chap: verifier, targets: 2, user: "alice", peer: "bob"},
		{name: "wrong secret", before: wrong, chap: verifier, refused: true},
		{name: "no user", chap: verifier, refused: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := net.Listen("tcp4", "127.0.0.1:0")
			rig.Must(t, err)
			defer l.Close()
			p := &discoveryPortal{chap: c.chap}
			for k := range c.targets {
				p.records = append(p.records, login.Record{Name: fmt.Sprintf("iqn.2026-01.test.stag:t%d", k), Portals: []login.Portal{{Address: l.Addr().String(), Group: 1}}})
			}
			var params login.Params
			served := make(chan error, 1)
			go func() {
				conn, err := l.Accept()
				if err == nil {
					params, err = p.session(conn)
				}
				served <- err
			}()
			out, err := exec.Command("iscsi-ls", fmt.Sprintf("iscsi://%s%v%s", c.before, l.Addr(), c.after)).CombinedOutput()
			l.Close() // the machines hear of a program that has not connected
			end := <-served
			var refused *login.Refused
			if c.refused {
				if err == nil || !errors.As(end, &refused) || refused.Status != pdu.AuthenticationFailure {
					t.Errorf("iscsi-ls: %v, target: %v: %s", err, end, out)
				}
				return
			}
			if err != nil || end != nil || params.User != c.user || params.PeerUser != c.peer || !params.Discovery {
				t.Fatalf("iscsi-ls: %v, target: %v, %+v: %s", err, end, params, out)
			}
			if n := strings.Count(string(out), "Target:iqn.2026-01.test.stag:t"); n != c.targets {
				t.Errorf("%d targets: %s", n, out)
			}
		})
	}
}
