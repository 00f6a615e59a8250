// Package ping implements the exchange of rping over stag's verbs, as client and as
// server. The messages are the same as those of librdmacm's rping, octet by octet, so
// that either end may be rping.
//
// A ping is seven messages. Each message is sent only after the previous one has arrived:
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
// The client ends the exchange by closing the connection. There is no private data. At
// most one RDMA Read is outstanding.
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

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/rdma"
)

// Defaults of rping, and the largest values that stag accepts.
const (
	DefaultPort = 7174
	DefaultSize = 64
	MaxSize     = 64 << 10
)

// Options are the options of a ping. Exactly one of Interfaces, KernelPort and Daemon is set,
// or none if the carrier is chosen.
type Options struct {
	Interfaces []string // interfaces whose connections are taken over
	KernelPort bool     // use the kernel's TCP instead of Interfaces
	Generic    bool     // take connections over in generic mode
	carrier.Asked
	Daemon string // socket of the daemon whose adapter is used instead of Interfaces

	Address string // host name or address that the client dials or the server listens at; "": the server listens at all addresses
	Port    int

	Count    uint64 // number of pings that the client does, or the most that the server answers on a connection; 0: no limit
	Size     int    // octets of data that the client sends, or the most octets that the server accepts
	Validate bool   // the client compares the data that it gets back; the server compares the data that it reads

	Interval time.Duration // client only: time from the beginning of a ping to the beginning of the next; 0: no pause

	Persistent bool // server only: serve any number of clients until an interrupt

	Data  io.Writer // gets a line with the data of each ping; nil: the data is not printed
	Each  io.Writer // client only: gets a line with the duration of each ping; nil: no lines
	Debug io.Writer // gets a line for each step; nil: no lines
	Log   io.Writer // gets a line with the server's address, and a line for each client that fails

	Adapter *slog.Logger // log of the adapter; nil: no log
}

// These are the values of Result.Role.
const (
	roleClient = "client"
	roleServer = "server"
)

// Result describes a run of pings, also a run that failed.
type Result struct {
	Role    string `json:"role"`
	Address string `json:"address"` // address that the client dialled or the server listened at
	carrier.Fields
	Path        string  `json:"path"`   // path of the last connection: "kernel port", or the interface and its mode
	Size        int     `json:"size"`   // octets of data in a ping
	Pings       uint64  `json:"pings"`  // number of complete pings
	Octets      uint64  `json:"octets"` // octets of data of all complete pings, counted once for both directions
	Validated   bool    `json:"validated"`
	Seconds     float64 `json:"seconds"`               // seconds since the first connection
	Exchange    *Times  `json:"exchange_us,omitempty"` // client only: durations of pings; nil before the first ping
	Clients     uint64  `json:"clients,omitempty"`     // server only: number of connections
	Failed      uint64  `json:"failed,omitempty"`      // server only: number of connections that ended with an error
	Interrupted bool    `json:"interrupted"`
	Error       string  `json:"error,omitempty"`
}

// Times are durations of complete pings, in microseconds. The percentiles are exact to
// three digits.
type Times struct {
	Min  float64 `json:"min"`
	Avg  float64 `json:"avg"`
	Max  float64 `json:"max"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
}

// params are the connection parameters of rping: see the package's comment.
var params = rdma.ConnParams{IRD: 1, ORD: 1, NoPeerToPeer: true}

// patience is how long a ping may continue after an interrupt, and how long the peer may
// take to close its side of the connection.
const patience = 2 * time.Second

// errDeaf means that the peer has not closed its side within patience.
var errDeaf = fmt.Errorf("the peer has not closed its side of the connection within %v", patience)

func (o Options) open() (*rdma.Adapter, error) {
	return o.Open(rdma.Config{Ports: o.Interfaces, KernelPort: o.KernelPort, Daemon: o.Daemon, Generic: o.Generic, Log: o.Adapter})
}

// params returns the connection parameters of rping: see the package's comment. A daemon
// chooses the first message itself.
func (o Options) params() rdma.ConnParams {
	p := params
	p.NoPeerToPeer = o.Daemon == ""
	return p
}

func (o Options) address() string { return net.JoinHostPort(o.Address, strconv.Itoa(o.Port)) }

// finish stores in r whether an interrupt or err ended the run.
func (r *Result) finish(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		r.Interrupted = true
		// An error that the interrupt has caused is not reported.
		if err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)) {
			err = nil
		}
	}
	if err != nil {
		r.Error = err.Error()
	}
	return err
}

// lasting returns a context that ends patience after ctx, so that a ping that has begun
// can complete.
func lasting(ctx context.Context) (context.Context, context.CancelFunc) {
	long, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(patience, func() { cancel(context.Cause(ctx)) })
	})
	return long, func() { stop(); cancel(context.Canceled) }
}
