package demo

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/offload/report"
)

// ISCSIResult is the result of a demonstration of iSCSI.
type ISCSIResult struct {
	Offloaded  bool           `json:"offloaded"`
	Reason     string         `json:"reason,omitempty"` // the reason why the connections were not taken over
	MTU        int            `json:"mtu,omitempty"`
	Disk       int64          `json:"disk_octets"`
	Operations []ISCSIMove    `json:"operations"`
	Refusals   []ISCSIRefusal `json:"refusals"`
	Paths      [2]string      `json:"paths"`
}

// ISCSIMove is the result of moving octets between side A and the disk of side B.
type ISCSIMove struct {
	Name     string    `json:"operation"` // write or read
	From     string    `json:"from"`
	To       string    `json:"to"` // side that received the octets; each octet was checked there
	Octets   uint64    `json:"octets"`
	Commands uint64    `json:"commands"`
	Placed   uint64    `json:"placed_by_tag"` // octets that the receiver placed by the tag of their command
	Seconds  float64   `json:"seconds"`       // duration, with the time to generate and to check the octets
	Gbps     float64   `json:"goodput_gbps"`
	Frames   *[2]Count `json:"frames,omitempty"` // number of frames of each side; nil with the kernel port
}

// ISCSIRefusal is a PDU that must be refused, and what became of its command.
type ISCSIRefusal struct {
	Tried     string `json:"tried"`
	By        string `json:"refused_by"` // side that refused the PDU
	Counter   string `json:"counter"`    // reason, as the name of its counter
	Reason    string `json:"reason"`
	Command   string `json:"command"` // what became of the command: completed, failed or canceled
	Untouched bool   `json:"memory_untouched"`
}

const (
	demoTarget    = "iqn.2026-01.test.stag:demo"
	demoInitiator = "iqn.2026-01.test.stag:demo-a"
	demoLUN       = 1
)

// mostDisk limits the size of the disk. More octets overwrite the disk several times.
const mostDisk = 256 << 20

// RunISCSI makes an initiator and a target, moves octets to and from the target's disk,
// tries what must be refused, and removes everything that it made, also after an error. It
// stops soon after ctx ends.
func RunISCSI(ctx context.Context, o Options) (ISCSIResult, error) {
	if os.Getenv("GOMAXPROCS") == "" {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2 * runtime.NumCPU())) // see Run
	}
	r, err := o.fill().runISCSI(ctx)
	if ctx.Err() != nil {
		err = errInterrupted
	}
	return r, err
}

// san is the two ends of the demonstration of iSCSI.
type san struct {
	*stage
	disk   *backend.RAM
	server *iscsi.Server
}

func (o Options) runISCSI(ctx context.Context) (r ISCSIResult, err error) {
	s := &san{stage: o.bare()}
	defer func() { err = and(err, s.close()) }()
	if err := s.open(ctx, o); err != nil {
		return r, err
	}
	r = ISCSIResult{Offloaded: s.offloaded(), Reason: s.why, Disk: s.disk.Size()}
	if s.offloaded() {
		r.MTU = o.MTU
	}
	if r.Operations, err = o.moves(ctx, s); err != nil {
		return ISCSIResult{}, err
	}
	if r.Refusals, err = s.lies(ctx); err != nil {
		return ISCSIResult{}, err
	}
	for i, a := range s.adapters {
		at, err := a.Attributes()
		if err != nil {
			return ISCSIResult{}, fmt.Errorf("side %v: %w", pair.Side(i), err)
		}
		r.Paths[i] = at.Ports[0].Path
	}
	return r, nil
}

// open makes the two hosts and the target.
func (s *san) open(ctx context.Context, o Options) error {
	host, err := s.hosts(o)
	if err != nil {
		return err
	}
	if s.disk, err = backend.NewRAM(int64(min(o.Octets, mostDisk))); err != nil {
		return err
	}
	s.server, err = iscsi.Serve(ctx, iscsi.ServerConfig{
		Adapter: s.adapters[pair.B], Address: net.JoinHostPort(host, "0"), Log: o.log(pair.B),
		Targets: []iscsi.TargetConfig{{Name: demoTarget, LUNs: map[uint16]iscsi.LUN{demoLUN: {Backend: s.disk}}}},
	})
	if err != nil {
		return fmt.Errorf("side B: %w", err)
	}
	_, err = fmt.Fprintf(o.Out, "Side B serves a disk of %d octets as iscsi://%v/%s/%d. Side A logs in; the kernels connect.\n%s\n",
		s.disk.Size(), s.server.Addr(), demoTarget, demoLUN, s.owner())
	return err
}

func (s *san) close() error {
	var err error
	if s.server != nil {
		err = s.server.Close()
	}
	if failed := s.stage.close(); err == nil {
		err = failed
	}
	if s.disk != nil {
		if failed := s.disk.Close(); err == nil {
			err = failed
		}
	}
	return err
}

// url returns the URL of the demonstration's unit at an address.
func (s *san) url(at netip.AddrPort) string {
	return fmt.Sprintf("iscsi://%v/%s/%d", at, demoTarget, demoLUN)
}

// config returns the configuration of side A's sessions.
func (s *san) config() iscsi.Config {
	return iscsi.Config{Adapter: s.adapters[pair.A], InitiatorName: demoInitiator, RecoveryTimeout: -1}
}

// counter returns the sum of a counter of iSCSI at one side, over all of its sessions so far.
func (s *san) counter(ctx context.Context, side pair.Side, part, name string) (n uint64, err error) {
	e, err := s.adapters[side].Report(ctx)
	if err != nil {
		return 0, fmt.Errorf("side %v: %w", side, err)
	}
	role := []string{report.Initiator, report.Target}[side]
	for _, c := range e.Counters {
		if c.Layer == strings.TrimSuffix("iscsi_"+role+"_"+part, "_") && c.Name == name {
			n += c.Value
		}
	}
	return n, nil
}
