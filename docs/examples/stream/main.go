// Command stream carries a stream of octets over RDMA messages, and is used as netcat is:
// what one end reads from its standard input, the other writes to its standard output.
// The program ends when the input has ended at both ends. Type Conn is a net.Conn, so that
// any program for TCP can use it.
//
//	go run ./docs/examples/stream listen 127.0.0.1:7471 </dev/null
//	echo hello | go run ./docs/examples/stream dial 127.0.0.1:7471
//
// With -i IFACE, or -i IFACE,IFACE, the command uses network interfaces, as root.
// Without -i it uses the kernel's TCP, and needs no rights.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/stag-rdma/stag/rdma"
)

const usage = "usage: stream [-i IFACE,...] listen ADDR | dial ADDR"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ifc := flag.String("i", "", "network interfaces, with commas between them; empty: the kernel's TCP")
	flag.Parse()
	if err := run(ctx, *ifc, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "stream:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, ifc string, args []string) error {
	config := rdma.Config{KernelPort: true}
	if ifc != "" {
		config = rdma.Config{Ports: strings.Split(ifc, ",")}
	}
	if len(args) != 2 {
		return errors.New(usage)
	}
	adapter, err := rdma.Open(config)
	if err != nil {
		return err
	}
	defer adapter.Close()
	var c *Conn
	switch args[0] {
	case "listen":
		c, err = acceptOne(ctx, adapter, args[1])
	case "dial":
		c, err = Dial(ctx, adapter, args[1])
	default:
		return errors.New(usage)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })() // Ctrl-C ends ctx
	return exchange(c, os.Stdin, os.Stdout)
}

// acceptOne waits for one connection.
func acceptOne(ctx context.Context, adapter *rdma.Adapter, address string) (*Conn, error) {
	l, err := Listen(ctx, adapter, address)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	fmt.Fprintln(os.Stderr, "listening on", l.Addr())
	c, err := l.Accept()
	if err != nil {
		return nil, err
	}
	return c.(*Conn), nil
}

// exchange copies in both directions until the input has ended at both ends.
func exchange(c *Conn, in io.Reader, out io.Writer) error {
	said := make(chan error, 3) // only the first error is used
	go func() {
		if _, err := io.Copy(c, in); err != nil {
			said <- err
		}
		said <- c.CloseWrite()
	}()
	go func() { // the copy from in may wait for input when the peer ends, so another goroutine calls CloseWrite
		<-c.ended
		said <- c.CloseWrite()
	}()
	_, err := io.Copy(out, c)
	if err == nil {
		err = <-said
	}
	switch {
	case errors.Is(err, net.ErrClosed):
		err = nil // Ctrl-C has ended ctx, which is no error
	case errors.Is(err, io.ErrClosedPipe):
		err = errors.New("the peer has closed the connection before the input has ended here")
	}
	return errors.Join(err, c.Close())
}
