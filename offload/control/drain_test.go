package control

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/rig"
)

// TestDrain: the port, the progress and the result pass the socket.
func TestDrain(t *testing.T) {
	at := netip.MustParseAddrPort("192.0.2.1:7174")
	want := report.Drain{Device: "eth0.7 &x", Done: true, Connections: 3, Moved: 1, Ended: 1, Stayed: 1, Stay: []report.Stay{{Flow: 7, Local: at, Remote: at, Why: "no \x1b[2J route\nat all"}}}
	var undone string
	e, _ := serve(t, fake{
		drain: func(_ context.Context, device string, progress func(report.Drain)) (report.Drain, error) {
			progress(report.Drain{Device: device, Connections: 3, Moved: 1}) // too early to be sent
			d := want
			d.Done, d.Device = false, device
			return d, nil
		},
		undrain: func(device string) (report.Drain, error) {
			undone = device
			return report.Drain{Device: device, Stay: []report.Stay{}}, nil
		},
	})
	got, err := e.Drain(rig.Context(t), want.Device, func(d report.Drain) { t.Errorf("progress %+v", d) })
	rig.Must(t, err)
	if strings.ContainsAny(got.Stay[0].Why, "\n\x1b") {
		t.Errorf("said %q", got.Stay[0].Why)
	}
	got.Stay[0].Why = want.Stay[0].Why
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	got, err = e.Undrain(rig.Context(t), "eth1")
	rig.Must(t, err)
	if undone != "eth1" || !got.Done || got.Device != "eth1" {
		t.Errorf("%q, %+v", undone, got)
	}
}

// TestDrainTells: a drain that takes long tells how far it is.
func TestDrainTells(t *testing.T) {
	told := make(chan struct{})
	e, _ := serve(t, fake{drain: func(ctx context.Context, device string, progress func(report.Drain)) (report.Drain, error) {
		for n := 1; ; n++ {
			progress(report.Drain{Device: device, Connections: 9, Moved: n})
			select {
			case <-told:
				return report.Drain{Device: device}, nil
			case <-ctx.Done():
				return report.Drain{}, ctx.Err()
			default:
			}
		}
	}})
	calls := 0
	_, err := e.Drain(rig.Context(t), "eth0", func(d report.Drain) {
		if calls++; calls == 1 {
			close(told)
		}
		if d.Done || d.Connections != 9 || d.Moved == 0 {
			t.Errorf("%+v", d)
		}
	})
	rig.Must(t, err)
	if calls == 0 {
		t.Error("no progress")
	}
}

// TestDrainFails: the reason of a refusal reaches the caller. A request by GET is refused,
// so that nothing that only reads can drain a port.
func TestDrainFails(t *testing.T) {
	e, _ := serve(t, fake{drain: func(context.Context, string, func(report.Drain)) (report.Drain, error) {
		return report.Drain{}, errors.New("no port eth7:\nthe adapter has eth0")
	}})
	_, err := e.Drain(rig.Context(t), "eth7", nil)
	rig.Says(t, err, nil, "no port eth7:; the adapter has eth0")
	_, err = e.Drain(rig.Context(t), "", nil)
	rig.Says(t, err, nil, "name the port")
	_, err = e.get(rig.Context(t), "/v1/drain?device=eth7")
	rig.Says(t, err, nil, "Method Not Allowed")
}

// TestDrainStops: the end of the caller's context ends the drain.
func TestDrainStops(t *testing.T) {
	stopped := make(chan struct{})
	begun := make(chan struct{})
	e, _ := serve(t, fake{drain: func(ctx context.Context, _ string, _ func(report.Drain)) (report.Drain, error) {
		close(begun)
		<-ctx.Done()
		close(stopped)
		return report.Drain{}, context.Cause(ctx)
	}})
	enough := errors.New("enough")
	ctx, cancel := context.WithCancelCause(rig.Context(t))
	go func() {
		<-begun
		cancel(enough)
	}()
	_, err := e.Drain(ctx, "eth0", nil)
	rig.Says(t, err, enough)
	<-stopped
}
