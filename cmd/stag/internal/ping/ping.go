// Package ping is rping's exchange over stag's verbs, in both roles. It is the
// exchange of librdmacm's program to the octet, so that either end may be that.
//
// A ping is seven messages, which nobody sends before the last has come:
//
//	client                                     server
//	Send: where the source is              ->
//	                                       <-  RDMA Read of the source
//	RDMA Read Response: the data           ->
//	                                       <-  Send: go ahead
//	Send: where the sink is                ->
//	                                       <-  RDMA Write of the data to the sink
//	                                       <-  Send: go ahead
//
// The client ends it by closing the connection. There is no private data, and
// one RDMA Read at a time.
package ping

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"time"

	"github.com/stag-rdma/stag/rdma"
)

// Defaults of rping, and the largest values that stag accepts.
const (
	DefaultPort = 7174
	DefaultSize = 64
	MaxSize     = 64 << 10
)

// Options of a ping. Exactly one of Interfaces and KernelPort is set.
type Options struct {
	Interfaces []string // whose connections are taken over
	KernelPort bool     // the kernel's TCP instead
	Generic    bool     // take connections over in generic mode

	Address string // host name or address: the client dials it, the server listens there; empty: everywhere
	Port    int

	Count    uint64 // pings of a connection: the client does so many, the server takes no more; 0: any number
	Size     int    // octets: the client's data; what the server takes at most
	Validate bool   // the client compares what comes back, the server what it reads

	Interval time.Duration // of the client, from the beginning of a ping to that of the next; 0: no pause

	Persistent bool // the server: any number of clients, until it is interrupted

	Data  io.Writer // gets a line with the data of each ping; nil: nobody does
	Each  io.Writer // of the client: gets a line with how long each ping took; nil: nobody does
	Debug io.Writer // gets a line for each step; nil: nobody does
	Log   io.Writer // gets a line where a server listens, and one for each client that fails

	Adapter *slog.Logger // what the adapter logs; nil: nothing
}

// The two ends, as in Result.
const (
	roleClient = "client"
	roleServer = "server"
)

// Result of pings, also of those that failed.
type Result struct {
	Role        string  `json:"role"`
	Address     string  `json:"address"` // dialled, or listened at
	Path        string  `json:"path"`    // of the last connection: "kernel port", or the interface and how it is used
	Size        int     `json:"size"`    // octets
	Pings       uint64  `json:"pings"`   // whole ones
	Octets      uint64  `json:"octets"`  // of their data, which went there and back
	Validated   bool    `json:"validated"`
	Seconds     float64 `json:"seconds"`               // from the first connection on
	Exchange    *Times  `json:"exchange_us,omitempty"` // of the client, when there was a ping
	Clients     uint64  `json:"clients,omitempty"`     // of the server: connections
	Failed      uint64  `json:"failed,omitempty"`      // of the server: those that ended badly
	Interrupted bool    `json:"interrupted"`
	Error       string  `json:"error,omitempty"`
}

// Times are how long whole pings took, microseconds. The percentiles are exact to
// three digits.
type Times struct {
	Min  float64 `json:"min"`
	Avg  float64 `json:"avg"`
	Max  float64 `json:"max"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
}

// params are those of rping: see the package's comment.
var params = rdma.ConnParams{IRD: 1, ORD: 1, NoPeerToPeer: true}

// patience is how long a ping may continue after the interrupt, and how long the peer
// may take to close its side.
const patience = 2 * time.Second

// errDeaf says that patience has passed.
var errDeaf = fmt.Errorf("the peer has not closed its side of the connection within %v", patience)

func (o Options) open() (*rdma.Adapter, error) {
	return rdma.Open(rdma.Config{Ports: o.Interfaces, KernelPort: o.KernelPort, Generic: o.Generic, Log: o.Adapter})
}

func (o Options) address() string { return net.JoinHostPort(o.Address, strconv.Itoa(o.Port)) }

// finish completes r with how it ended: err, or an interrupt.
func (r *Result) finish(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		r.Interrupted = true
		// A failure that the interrupt has caused is not reported.
		if err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)) {
			err = nil
		}
	}
	if err != nil {
		r.Error = err.Error()
	}
	return err
}

// lasting returns a context that ends some time after ctx, so that a ping that has begun
// can end in good order.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	long, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(patience, func() { cancel(context.Cause(ctx)) })
	})
	return long, func() { stop(); cancel(context.Canceled) }
}
