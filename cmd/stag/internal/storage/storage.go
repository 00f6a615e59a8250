// Package storage has the work of stag iscsi: discovery, questions to disks, copies and
// measurements as an initiator, and a target.
//
//	storage.go    how a command reaches a target
//	url.go        URLs without their secrets
//	chap.go       files of secrets
//	list.go       targets of a portal, and their logical units
//	ask.go        commands to a logical unit; inquiry.go, vpd.go, capacity.go
//	paths.go      disks that several sessions reach
//	copy.go       dd; ends.go, disk.go, file.go have its two ends
//	load.go       perf; loop.go, print.go
//	target.go     a target; medium.go has its disks
package storage

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/rdma"
)

// Options say how a command reaches targets.
type Options struct {
	Interfaces []string // interfaces whose connections are taken over; none: the kernel's TCP
	Generic    bool     // take connections over in generic mode
	carrier.Asked
	Initiator string // iSCSI name of this end; "": a name from the host's name
	Secrets   string // file of CHAP secrets; "": none
	Log       *slog.Logger

	// Recovery is how long a session that has lost its connection tries to log in again. 0:
	// it ends with its connection.
	Recovery time.Duration

	carried carrier.Fields // what carries connections, after open

	sessions int // most sessions at once, if they are more than two and the paths of one URL
}

// ErrInterrupted is the cause of a command that an interrupt has ended.
var ErrInterrupted = errors.New("interrupted")

// Path says over what the connections run. With a choice it is right after open.
func (o *Options) Path() string {
	if len(o.Interfaces) == 0 || o.carried.Carrier == rdma.CarrierKernel.String() {
		return "kernel port"
	}
	return strings.Join(o.Interfaces, ",")
}

// regionHeap is the size of the region heap in octets. A connection of iSER has its control
// PDUs there. A page takes memory only when it is used.
const regionHeap = 16 << 20

func (o *Options) open(regions int) (*rdma.Adapter, error) { return o.openHeap(regions, regionHeap) }

// openHeap opens an adapter with a region heap of heap octets.
func (o *Options) openHeap(regions int, heap uint64) (*rdma.Adapter, error) {
	a, err := o.Open(rdma.Config{
		Ports: o.Interfaces, KernelPort: len(o.Interfaces) == 0 && !o.Chooses(), Generic: o.Generic, RegionHeap: heap, MaxRegions: regions, Log: o.Log,
	})
	if err == nil {
		o.carried = carrier.Of(a)
	}
	return a, err
}

const (
	sessionRegions = 64 // table entries of a session besides those of its queues
	shallow        = 8  // depth of a session whose commands follow one another
)

// reach opens an adapter and calls f with the configuration for sessions of depth
// commands.
func (o *Options) reach(ctx context.Context, url string, depth int, f func(c iscsi.Config) error) (err error) {
	if err := o.setSecrets(url); err != nil {
		return err
	}
	sessions := max(2, o.sessions, count(url))
	a, err := o.open(2 * sessions * (depth + sessionRegions))
	if err != nil {
		return err
	}
	c := iscsi.Config{Adapter: a, InitiatorName: o.Initiator, Depth: depth, Log: o.Log, RecoveryTimeout: o.Recovery}
	if o.Recovery == 0 { // a command that waits two minutes for a target that is gone would seem to hang
		c.RecoveryTimeout = -1
	}
	err = f(c)
	if err != nil && ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		err = ErrInterrupted
	}
	return errors.Join(err, a.Close())
}
