// Command drill does every operation of the verbs over connections between two adapters, and
// compares the hashes of all octets. It runs in guests and beside them. Both ends do the same
// at the same time.
//
//	drill -listen 192.0.2.1:7000 -kernel-port
//	drill -dial 192.0.2.1:7000 -port eth0 -zero-copy -connections 4 -rounds 8
//
// The dialling end ends after -times adapters, which it opens and closes one after the other.
// The listening end serves until it is killed. The exit code is 0 only if everything went well.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// options are the flags of one end.
type options struct {
	listen, dial string
	config       rdma.Config
	connections  int  // at the same time
	plan         plan // of each connection
	times        int  // adapters, one after the other
	patience     time.Duration
}

func main() {
	o, err := parse(os.Args[1:])
	if err == nil {
		err = run(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "drill:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	var port string
	var zero bool
	var frames int
	f := flag.NewFlagSet("drill", flag.ContinueOnError)
	f.StringVar(&o.listen, "listen", "", "address and port to serve at")
	f.StringVar(&o.dial, "dial", "", "address and port of the other end")
	f.StringVar(&port, "port", "", "interface of the adapter")
	f.BoolVar(&o.config.KernelPort, "kernel-port", false, "use the kernel's TCP")
	f.BoolVar(&zero, "zero-copy", false, "fail without zero copy")
	f.IntVar(&frames, "frames", 0, "receive chunks and transmit chunks of each queue; 0 means the default")
	f.IntVar(&o.connections, "connections", 1, "connections at the same time")
	f.IntVar(&o.plan.rounds, "rounds", 1, "rounds of each connection")
	f.IntVar(&o.plan.size, "size", 96<<10, "octets that each end writes and reads in a round")
	f.IntVar(&o.times, "times", 1, "adapters to open, one after the other")
	f.DurationVar(&o.patience, "patience", 2*time.Minute, "time for the connections of one adapter")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if (o.listen == "") == (o.dial == "") || o.plan.size < sendLen || o.plan.size > mostSize {
		return o, fmt.Errorf("say either -listen or -dial, and a -size from %d to %d", sendLen, mostSize)
	}
	if port != "" {
		o.config.Ports = []string{port}
	}
	if zero {
		o.config.ZeroCopy = rdma.ZeroCopyRequire
	}
	o.config.RxFrames, o.config.TxFrames = uint32(frames), uint32(frames)
	return o, nil
}

func run(o options) error {
	if o.listen != "" {
		return serve(o)
	}
	for n := range o.times {
		if err := once(o, n); err != nil {
			return fmt.Errorf("adapter %d: %w", n+1, err)
		}
		fmt.Printf("drill: adapter %d is done\n", n+1)
	}
	fmt.Printf("drill: %d adapters, %d connections, %d rounds, all octets verified\n", o.times, o.times*o.connections, o.times*o.connections*o.plan.rounds)
	return nil
}

// once opens an adapter, does the rounds of all connections, and closes the adapter.
func once(o options, turn int) (err error) {
	a, err := rdma.Open(o.config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	ctx, cancel := context.WithTimeoutCause(context.Background(), o.patience, fmt.Errorf("not done after %v", o.patience))
	defer cancel()
	return all(o.connections, func(i int) error {
		e, err := newEnd(ctx, a, o.plan.size, fmt.Sprintf("client %d.%d", turn, i))
		if err != nil {
			return err
		}
		p := rdma.ConnParams{PrivateData: e.offer(o.plan), Extensions: rdma.ExtRFC7306}
		if err := e.qp.Dial(ctx, o.dial, p); err != nil {
			return errors.Join(err, e.close())
		}
		if err = e.accept(e.qp.Conn().PrivateData); err == nil {
			err = e.rounds(o.plan.rounds)
		}
		if err == nil {
			err = e.qp.Disconnect(ctx)
		}
		return errors.Join(err, e.close())
	})
}

// all calls f for n connections at the same time, and waits for all of them.
func all(n int, f func(i int) error) error {
	errs := make([]error, n)
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			if err := f(i); err != nil {
				errs[i] = fmt.Errorf("connection %d: %w", i, err)
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// serve serves every connection. A connection that fails ends the program.
func serve(o options) error {
	a, err := rdma.Open(o.config)
	if err != nil {
		return err
	}
	defer a.Close()
	ctx := context.Background()
	l, err := a.Listen(ctx, o.listen, rdma.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Printf("drill: listens at %v\n", l.Addr())
	for n := 0; ; n++ {
		req, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		go func() {
			if err := answer(ctx, a, req, n); err != nil {
				fmt.Fprintln(os.Stderr, "drill: server:", err)
				os.Exit(1)
			}
		}()
	}
}

// answer does the rounds that the other end asks for.
func answer(ctx context.Context, a *rdma.Adapter, req *rdma.ConnRequest, n int) (err error) {
	p, err := planOf(req.PrivateData())
	if err != nil {
		return errors.Join(err, req.Close())
	}
	e, err := newEnd(ctx, a, p.size, fmt.Sprintf("server %d", n))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.close()) }()
	if err := e.accept(req.PrivateData()); err != nil {
		return err
	}
	if err := req.Accept(ctx, e.qp, rdma.ConnParams{PrivateData: e.offer(p), Extensions: rdma.ExtRFC7306}); err != nil {
		return err
	}
	if err := e.rounds(p.rounds); err != nil {
		return err
	}
	<-e.qp.Done()
	return e.qp.Err()
}
