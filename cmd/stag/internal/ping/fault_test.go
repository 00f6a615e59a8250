package ping

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/rig"
)

// offer tells the server where memory is, and waits for its answer.
func (c *client) offer(t *testing.T, i info) error {
	rig.Must(t, c.post(message(i)))
	_, err := c.hear(t.Context())
	return err
}

// faults are errors of clients, each with the message that the server prints.
var faults = map[string]struct {
	do   func(*testing.T, *client)
	says string
}{
	"the data of another ping": {func(t *testing.T, c *client) { c.exchangeOf(t, 1) },
		"octet 10 of the data of ping 0 is 0x31, want 0x30"},
	"no octets": {func(t *testing.T, c *client) { c.offer(t, info{}) }, "offers 0 octets"},
	"more than there are": {func(t *testing.T, c *client) { i := infoOf(c.source); i.octets++; c.offer(t, i) },
		"RDMA Read"},
	"more than the server takes": {func(t *testing.T, c *client) { i := infoOf(c.source); i.octets = 1 << 31; c.offer(t, i) },
		"2147483648 octets, this server takes 1 to 65536"},
	"a small sink": {func(t *testing.T, c *client) {
		fill(c.source.Bytes(), 0)
		rig.Must(t, c.offer(t, infoOf(c.source)))
		i := infoOf(c.sink)
		i.octets--
		c.offer(t, i)
	}, "the sink has 63 octets, the source had 64"},
	"another protocol": {func(t *testing.T, c *client) {
		rig.Must(t, c.post(rdma.SendWR{Op: rdma.WRSend, Flags: rdma.Signaled, Inline: []byte("hello")}))
		c.hear(t.Context())
	}, "a message of 5 octets came, want 16"},
	"leaving early": {func(t *testing.T, c *client) {
		fill(c.source.Bytes(), 0)
		rig.Must(t, c.offer(t, infoOf(c.source)))
		rig.Must(t, c.disconnect(t.Context()))
	}, "left in the middle of ping 0"},
	// The reset arrives before or after the connection has been taken over.
	"a reset": {func(t *testing.T, c *client) { c.qp.Abort() }, "reset|ended the connection before"},
}

func TestFaultsOfClients(t *testing.T) {
	for name, f := range faults {
		t.Run(name, func(t *testing.T) {
			s := serve(t, Options{Validate: true})
			c := connected(t, s, 64)
			f.do(t, c)
			r, err := s.end()
			rig.Says(t, err, nil, "client 127.0.0.1:")
			if !regexp.MustCompile(f.says).MatchString(err.Error()) {
				t.Errorf("error %v, want one that says %s", err, f.says)
			}
			clients := uint64(1)
			if strings.Contains(err.Error(), "before it was taken over") {
				clients = 0 // the server never accepted it as a client
			}
			if r.Failed != 1 || r.Clients != clients || r.Pings != 0 || r.Error != err.Error() {
				t.Errorf("%+v", r)
			}
		})
	}
}

// hostile starts a server that runs do for one client.
func hostile(t *testing.T, do func(context.Context, *caller) error) (*rdma.Listener, chan error) {
	t.Helper()
	a, err := rdma.Open(rdma.Config{KernelPort: true})
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, a.Close()) })
	l, err := a.Listen(t.Context(), "127.0.0.1:0", rdma.ListenConfig{})
	rig.Must(t, err)
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			req, err := l.Accept(t.Context())
			if err != nil {
				return err
			}
			c, err := newCaller(a, Options{Size: MaxSize})
			if err != nil {
				return err
			}
			if err := req.Accept(t.Context(), c.qp, params); err != nil {
				return err
			}
			return errors.Join(do(t.Context(), c), c.close())
		}()
	}()
	return l, done
}

// spoils answers pings, and changes the last but one octet of ping 2.
func spoils(ctx context.Context, c *caller) error {
	for n := uint64(0); ; n++ {
		source, err := c.hear(ctx)
		if err != nil {
			return nil // the client ends the connection when it finds the changed octet
		}
		if err := c.fetch(ctx, n, source); err != nil {
			return err
		}
		if n == 2 {
			c.data.Bytes()[source.octets-2] ^= 1
		}
		if err := c.giveBack(ctx, source); err != nil {
			return err
		}
	}
}

// TestSpoiled: the client finds the changed octet with -V, and does not find it without -V.
func TestSpoiled(t *testing.T) {
	for _, validate := range []bool{true, false} {
		l, done := hostile(t, spoils)
		r, err := Client(t.Context(), Options{Count: 5, Size: 64, Validate: validate}.at(l.Addr()))
		if validate {
			rig.Says(t, err, nil, "octet 62 of the data of ping 2 is 0x75, want 0x74")
			if r.Pings != 2 || r.Error == "" {
				t.Errorf("%+v", r)
			}
		} else if err != nil || r.Pings != 5 {
			t.Errorf("%+v: %v", r, err)
		}
		rig.Must(t, <-done)
	}
}

// TestSilentServer: an interrupt also ends a ping that gets no answer.
func TestSilentServer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, done := hostile(t, func(ctx context.Context, c *caller) error {
		if _, err := c.hear(ctx); err != nil {
			return err
		}
		cancel()
		_, err := c.await(ctx, rdma.WCRecv)
		return err
	})
	r, err := Client(ctx, Options{}.at(l.Addr()))
	rig.Must(t, err)
	if !r.Interrupted || r.Pings != 0 || r.Path == "" {
		t.Errorf("%+v", r)
	}
	if err := <-done; err == nil {
		t.Error("the client is still there")
	}
}
