package nic_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/test/netns"
)

// echo connects through an interface, takes the connection over and sends back
// what arrives on it until the peer closes.
func echo(ctx context.Context, link, address string) error {
	card, err := nic.Open(nic.Config{Link: link}) // steering program, sockets, engines
	if err != nil {
		return err
	}
	defer card.Close()

	conn, err := net.Dial("tcp", address) // the kernel's own
	if err != nil {
		return err
	}
	upper := octets.NewEcho()
	flow, err := card.Take(ctx, conn.(*net.TCPConn), upper, nic.DefaultOptions)
	if err != nil {
		conn.Close() // still open, unless the error is a *handoff.LostError
		return err
	}
	<-flow.Done() // the engine has run the connection to its end
	fmt.Printf("%v: %d octets echoed\n", card.Path(), upper.Echoed())
	return flow.Err()
}

// TestEcho: the example program for newcomers to this package works.
func TestEcho(t *testing.T) {
	p := netns.XDPPair(t, pair.Config{})
	var listener net.Listener
	netns.In(t, p, pair.B, func() (err error) {
		listener, err = net.Listen("tcp", p.Ends[pair.B].V4.Addr().String()+":0")
		return err
	})
	defer listener.Close()
	peer := make(chan error, 1)
	go func() { peer <- expectEcho(listener) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := p.Do(pair.A, func() error { return echo(ctx, p.Ends[pair.A].Name, listener.Addr().String()) })
	if err != nil {
		t.Errorf("the program: %v", err)
	}
	listener.Close() // if echo has never connected
	if err := <-peer; err != nil {
		t.Errorf("its peer: %v", err)
	}
}

// expectEcho accepts a connection, sends a pattern and checks that it comes back.
func expectEcho(l net.Listener) error {
	c, err := l.Accept()
	if err != nil {
		return err
	}
	return exchange(c.(*net.TCPConn), 1<<20)
}

// exchange sends n octets, checks that they come back, and closes c.
func exchange(c *net.TCPConn, n int) error {
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	const pattern octets.Pattern = 7
	sent := make([]byte, n)
	pattern.Fill(sent, 0)
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		if err == nil {
			err = c.CloseWrite()
		}
		wrote <- err
	}()
	back, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if i := pattern.Differs(back, 0); len(back) != len(sent) || i >= 0 {
		return fmt.Errorf("%d octets came back of %d, wrong from %d on", len(back), len(sent), i)
	}
	return <-wrote
}
