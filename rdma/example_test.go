package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/stag-rdma/stag/rdma"
)

// side is one end: an adapter, and an endpoint with a region of 64 KiB.
type side struct {
	a *rdma.Adapter
	*rdma.Endpoint
}

// newSide makes one end over the kernel's TCP, which needs no rights. For a network card
// the configuration is rdma.Config{Ports: []string{"eth1"}}; everything else is the same.
func newSide() *side {
	a, err := rdma.Open(rdma.Config{KernelPort: true})
	check(err)
	e, err := a.CreateEndpoint(rdma.EndpointConfig{Access: rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead})
	check(err)
	return &side{a, e}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// connect lets client dial server.
func connect(client, server *side) {
	ctx := context.Background()
	l, err := server.a.Listen(ctx, "127.0.0.1:0", rdma.ListenConfig{})
	check(err)
	defer l.Close()
	accepted := make(chan error)
	go func() {
		req, err := l.Accept(ctx)
		if err == nil {
			err = server.Accept(ctx, req, rdma.ConnParams{})
		}
		accepted <- err
	}()
	check(client.Dial(ctx, l.Addr().String(), rdma.ConnParams{}))
	check(<-accepted)
}

// A Send and its receive: the receiver posts memory for the message before it is sent.
func Example() {
	client, server := newSide(), newSide()
	defer client.a.Close()
	defer server.a.Close()

	_, err := server.QP.PostRecv(rdma.RecvWR{ID: 1, SGL: []rdma.SGE{server.MR.SGE(0, 100)}})
	check(err)
	connect(client, server)
	_, err = client.QP.PostSend(rdma.SendWR{ID: 2, Op: rdma.WRSend, Inline: []byte("hello")})
	check(err)

	c, err := server.Received(context.Background())
	check(err)
	fmt.Printf("%v %d: %v, %q\n", c.Op, c.ID, c.Status, server.MR.Bytes()[:c.Length])
	// Output: Receive 1: success, "hello"
}

// One end writes to the other's memory and reads it back. The application of the other
// end gives away the RKey and takes no further part.
func ExampleQP_PostSend() {
	client, server := newSide(), newSide()
	defer client.a.Close()
	defer server.a.Close()
	connect(client, server)

	n := copy(client.MR.Bytes(), "written from afar")
	_, err := client.QP.PostSend(
		rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{client.MR.SGE(0, n)}, RemoteAddr: 1000, RKey: server.MR.RKey()},
		rdma.SendWR{ID: 2, Op: rdma.WRRead, Flags: rdma.Signaled, SGL: []rdma.SGE{client.MR.SGE(2000, n)},
			RemoteAddr: 1000, RKey: server.MR.RKey()})
	check(err)

	c, err := client.Sent(context.Background()) // the completion of the Read, which sees the Write before it
	check(err)
	fmt.Printf("%v: %v, %d octets: %q\n", c.Op, c.Status, c.Length, client.MR.Bytes()[2000:2000+n])
	fmt.Printf("at the other end: %q\n", server.MR.Bytes()[1000:1000+n])
	// Output:
	// RDMA Read: success, 17 octets: "written from afar"
	// at the other end: "written from afar"
}

// Both ends can pass private data, such as an RKey, while they connect.
func ExampleQP_Dial() {
	client, server := newSide(), newSide()
	defer client.a.Close()
	defer server.a.Close()
	ctx := context.Background()

	l, err := server.a.Listen(ctx, "127.0.0.1:0", rdma.ListenConfig{})
	check(err)
	done := make(chan bool)
	go func() {
		req, err := l.Accept(ctx)
		check(err)
		fmt.Printf("asked: %s\n", req.PrivateData())
		check(server.Accept(ctx, req, rdma.ConnParams{PrivateData: []byte("welcome"), IRD: 8}))
		close(done)
	}()
	check(client.Dial(ctx, l.Addr().String(), rdma.ConnParams{PrivateData: []byte("is anybody there?")}))
	<-done

	conn := client.QP.Conn()
	fmt.Printf("answered: %s; %d Reads at a time\n", conn.PrivateData, conn.ORD)
	check(client.QP.Disconnect(ctx))
	fmt.Println("closed:", client.QP.Err())
	// Output:
	// asked: is anybody there?
	// answered: welcome; 8 Reads at a time
	// closed: <nil>
}

// A server rejects a connection and tells the client why.
func ExampleConnRequest_Reject() {
	client, server := newSide(), newSide()
	defer client.a.Close()
	defer server.a.Close()
	ctx := context.Background()

	l, err := server.a.Listen(ctx, "127.0.0.1:0", rdma.ListenConfig{})
	check(err)
	go func() {
		req, err := l.Accept(ctx)
		check(err)
		check(req.Reject([]byte("come back tomorrow")))
	}()
	err = client.Dial(ctx, l.Addr().String(), rdma.ConnParams{})
	var rejected *rdma.RejectedError
	if errors.As(err, &rejected) {
		fmt.Printf("rejected: %s\n", rejected.PrivateData)
	}
	// Output: rejected: come back tomorrow
}

// A loop sleeps until there is a completion, and ends with the connection.
func ExampleCQ_Arm() {
	client, server := newSide(), newSide()
	defer client.a.Close()
	defer server.a.Close()
	for id := range uint64(3) {
		_, err := server.QP.PostRecv(rdma.RecvWR{ID: id})
		check(err)
	}
	connect(client, server)
	done := make(chan bool)
	go func() {
		_, err := client.QP.PostSend(rdma.SendWR{Op: rdma.WRSend}, rdma.SendWR{Op: rdma.WRSend})
		check(err)
		check(client.QP.Disconnect(context.Background()))
		close(done)
	}()

	var dst [16]rdma.Completion
	for over := false; !over; {
		server.RecvCQ.Arm(false)
		// Poll once more, for completions that came before Arm.
		n := server.RecvCQ.Poll(dst[:])
		for _, c := range dst[:n] {
			fmt.Println(c.ID, c.Status)
			over = over || c.Status != rdma.Success
		}
		if n == 0 {
			<-server.RecvCQ.Notify()
		}
	}
	<-done
	// Output:
	// 0 success
	// 1 success
	// 2 flushed
}

// A server with many connections posts its receives to one shared receive queue. When the
// limit's event comes, the server posts more.
func ExampleSRQ() {
	client, server := newSide(), newSide()
	defer client.a.Close()
	defer server.a.Close()

	srq, err := server.PD.CreateSRQ(rdma.SRQConfig{Depth: 64})
	check(err)
	e, err := server.a.CreateEndpoint(rdma.EndpointConfig{MR: server.MR, QP: rdma.QPConfig{SRQ: srq}}) // and more of these
	check(err)
	for i := range 8 {
		_, err = srq.PostRecv(rdma.RecvWR{ID: uint64(i), SGL: []rdma.SGE{server.MR.SGE(100*i, 100)}})
		check(err)
	}
	check(srq.SetLimit(8)) // one receive fewer than now
	connect(client, &side{server.a, e})

	_, err = client.QP.PostSend(rdma.SendWR{Op: rdma.WRSend, Inline: []byte("hello")})
	check(err)
	c, err := e.Received(context.Background())
	check(err)
	fmt.Printf("%s by QP %v\n", server.MR.Bytes()[100*c.ID:][:c.Length], c.QP == e.QP.Number())
	event := <-server.a.Events()
	fmt.Println(event.Type, event.SRQ.Posted())
	// Output:
	// hello by QP true
	// SRQ limit reached 7
}
