package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"syscall"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/attach"
	"github.com/stag-rdma/stag/iscsi/nbd"
	"github.com/stag-rdma/stag/rdma"
)

// LocalOptions describe a disk that other programs of this host use.
type LocalOptions struct {
	Options
	URL      string
	ReadOnly bool
	Recovery time.Duration // how long requests wait for a target that is gone
	Notice   func(string)  // gets what happens to the session
}

// ExportOptions describe an NBD export of a disk.
type ExportOptions struct {
	LocalOptions
	Socket string // path
	Name   string // of the export
}

// Exported says what an NBD server exports.
type Exported struct {
	URL  string `json:"url"`
	Path string `json:"path"`
	carrier.Fields
	NBD       string `json:"nbd"`
	Octets    int64  `json:"octets"`
	BlockSize int    `json:"block_size"`
	ReadOnly  bool   `json:"read_only"`
}

// Print prints what a server exports.
func (e Exported) Print(w io.Writer) error {
	_, err := fmt.Fprintf(w, "Export of %s over %s at %s until Ctrl-C.\n%s", e.URL, e.Path, e.NBD, shapeLine(e.Octets, e.BlockSize, e.ReadOnly))
	return err
}

func shapeLine(octets int64, block int, readOnly bool) string {
	text := fmt.Sprintf("%d octets, blocks of %d", octets, block)
	if readOnly {
		text += ", read only"
	}
	return text + "\n"
}

// The most connections to an export, and the requests of one of them that are in progress.
const (
	exportConnections = 8
	exportDepth       = 64
)

// Export serves a disk to NBD clients until ctx ends. It calls ready when they can connect.
func Export(ctx context.Context, o ExportOptions, ready func(Exported) error) error {
	return o.use(ctx, exportConnections*exportDepth, func(d *iscsi.Disk, a *rdma.Adapter, v *attach.Volume) (err error) {
		l, err := listen(o.Socket)
		if err != nil {
			return err
		}
		s, err := nbd.Serve(l, nbd.Config{Volume: v, Name: o.Name, Connections: exportConnections, Depth: exportDepth, Log: o.Log})
		if err != nil {
			return errors.Join(err, l.Close())
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		shape := v.Shape()
		e := Exported{
			URL: public(o.URL), Path: o.Path(), Fields: o.carried, NBD: fmt.Sprintf("nbd+unix:///%s?socket=%s", url.PathEscape(o.Name), o.Socket),
			Octets: shape.Size, BlockSize: shape.Block, ReadOnly: shape.ReadOnly,
		}
		if err := ready(e); err != nil {
			return err
		}
		return lastsWith(ctx, a, d, nil)
	})
}

// use logs in to the disk, and calls f with it. The session waits for a target that is gone.
func (o *LocalOptions) use(ctx context.Context, depth int, f func(d *iscsi.Disk, a *rdma.Adapter, v *attach.Volume) error) error {
	return o.reach(ctx, o.URL, depth, func(c iscsi.Config) error {
		c.RecoveryTimeout = o.Recovery
		c.Events = o.event
		d, err := iscsi.Dial(ctx, o.URL, c)
		if err != nil {
			return err
		}
		v, err := attach.NewVolume(ctx, d, o.ReadOnly)
		if err == nil {
			err = f(d, c.Adapter, v)
		}
		return errors.Join(err, d.Close())
	})
}

// event tells what happens to the session.
func (o *LocalOptions) event(e iscsi.Event) {
	switch e.Kind {
	case iscsi.EventHeld:
		o.Notice(fmt.Sprintf("the connection to the target is lost, and requests wait: %v", e.Err))
	case iscsi.EventUp:
		o.Notice("the session has logged in again")
	case iscsi.EventPathUp:
		o.Notice(fmt.Sprintf("the path %s works", e.Path))
	case iscsi.EventPathDown:
		o.Notice(fmt.Sprintf("the path %s is down: %v", e.Path, e.Err))
	case iscsi.EventUnprotected:
		o.Notice(fmt.Sprintf("writes without an answer fail: %v", e.Err))
	}
}

// lastsWith returns when ctx ends or done is closed, or with an error when the session or
// the adapter has ended.
func lastsWith(ctx context.Context, a *rdma.Adapter, d *iscsi.Disk, done <-chan struct{}) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-done:
			return nil
		case <-d.Done():
			return d.Err()
		case e := <-a.Events():
			if e.Type == rdma.DeviceFatal {
				return e.Err
			}
		}
	}
}

// listen makes a Unix socket that only this user may use. A socket that a dead process has
// left is replaced.
func listen(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("%s is there, and is no socket: choose another --socket", path)
		}
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, fmt.Errorf("another process listens at %s: choose another --socket", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	old := syscall.Umask(0o177)
	l, err := net.Listen("unix", path)
	syscall.Umask(old)
	return l, err
}
