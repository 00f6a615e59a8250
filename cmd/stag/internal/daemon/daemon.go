// Package daemon implements `stag daemon`: one process owns the adapter, and other processes
// use it.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/rdma/daemon"
	"github.com/stag-rdma/stag/rdma/proto"
)

// Options are the options of a daemon.
type Options struct {
	Interfaces []string // ports of the adapter
	KernelPort bool
	carrier.Asked
	Generic   bool
	Socket    string // path; "": see Socket
	Group     string // group whose users may connect; "": see DefaultGroup
	Quota     daemon.Quota
	Version   string
	Attendant *Attendant // of a daemon that `stag run` has started

	Log     io.Writer    // gets lines for people
	Adapter *slog.Logger // log of the adapter and of the daemon
}

// Result describes a run, also a run that failed.
type Result struct {
	Socket string `json:"socket"`
	carrier.Fields
	Clients     uint64  `json:"clients"` // clients that were served
	Seconds     float64 `json:"seconds"`
	Interrupted bool    `json:"interrupted"`
	Error       string  `json:"error,omitempty"`
}

// DefaultGroup is the group whose users may use RDMA devices on Linux.
const DefaultGroup = "rdma"

// Socket returns the socket of the daemon that programs use if nothing else is said: that of
// the environment, that of the machine, or the user's own.
func Socket() string {
	if path := os.Getenv(proto.SocketVariable); path != "" {
		return path
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); os.Geteuid() != 0 && dir != "" && !daemon.Serves(proto.DefaultSocket) {
		return filepath.Join(dir, "stag", "stagd.sock")
	}
	return proto.DefaultSocket
}

// closing limits the time for the end of the clients.
const closing = 10 * time.Second

// Serve serves clients until ctx ends.
func Serve(ctx context.Context, o Options) (r Result, err error) {
	began := time.Now()
	defer func() {
		r.Seconds, r.Interrupted = time.Since(began).Seconds(), ctx.Err() != nil
		if err != nil {
			r.Error = err.Error()
		}
	}()
	l, err := listen(o)
	if err != nil {
		return r, err
	}
	defer l.Close()
	r.Socket = l.Addr().String()
	a, err := o.Open(rdma.Config{Ports: o.Interfaces, KernelPort: o.KernelPort, Generic: o.Generic, Log: o.Adapter})
	if err != nil {
		return r, err
	}
	r.Fields = carrier.Of(a)
	if c, _ := a.Carrier(); c == rdma.CarrierKernel {
		o.KernelPort = true
	}
	d, err := daemon.New(daemon.Config{Adapter: a, Listener: l, Quota: o.Quota, Version: o.Version, Log: o.Adapter})
	if err != nil {
		return r, errors.Join(err, a.Close())
	}
	err = serve(ctx, d, o, r.Socket)
	r.Clients = d.Served()
	return r, errors.Join(err, a.Close())
}

// serve runs the daemon, and ends it.
func serve(ctx context.Context, d *daemon.Daemon, o Options, socket string) error {
	_, err := fmt.Fprintf(o.Log, "serving %s at %s\n", ports(o), socket)
	served := make(chan error, 1)
	go func() { served <- d.Serve() }()
	o.Attendant.say(Ready)
	ctx = o.Attendant.until(ctx, d)
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-served:
		}
	}
	limit, cancel := context.WithTimeout(context.Background(), closing)
	defer cancel()
	return errors.Join(err, d.Close(limit))
}

func ports(o Options) string {
	if o.KernelPort {
		return "the kernel port"
	}
	return strings.Join(o.Interfaces, ", ")
}

// listen makes the socket, or takes that of systemd.
func listen(o Options) (*net.UnixListener, error) {
	if l, err := activated(); l != nil || err != nil {
		return l, err
	}
	path := o.Socket
	if path == "" {
		path = Socket()
	}
	gid, err := groupOf(o)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	l, err := daemon.Listen(path, gid)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%w: programs can use that daemon; choose another --socket for a second one", err)
	}
	return l, err
}

// groupOf returns the number of the group whose users may connect, or -1.
func groupOf(o Options) (int, error) {
	name := o.Group
	if name == "" {
		if os.Geteuid() != 0 {
			return -1, nil
		}
		name = DefaultGroup
	}
	g, err := user.LookupGroup(name)
	if err != nil && o.Group == "" {
		fmt.Fprintf(o.Log, "there is no group %s, so that only root can use the daemon: choose a --group, or groupadd --system %s\n", name, name)
		return -1, nil
	}
	if err != nil {
		return -1, fmt.Errorf("--group: %w", err)
	}
	return strconv.Atoi(g.Gid)
}

// firstPassed is the first descriptor that systemd passes (sd_listen_fds(3)).
const firstPassed = 3

// activated returns the socket that systemd has passed, or nil.
func activated() (*net.UnixListener, error) {
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	count := os.Getenv("LISTEN_FDS")
	os.Unsetenv("LISTEN_PID")
	os.Unsetenv("LISTEN_FDS")
	if count != "1" {
		return nil, fmt.Errorf("systemd has passed %s sockets: want one (LISTEN_FDS)", count)
	}
	file := os.NewFile(firstPassed, "socket of systemd")
	defer file.Close()
	return daemon.FromFile(file, false)
}
