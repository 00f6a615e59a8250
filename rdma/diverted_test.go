package rdma

import (
	"net"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
)

// TestRouteLeadsAway: when the route to a QP's peer changes to another interface, or
// disappears, the application gets an event, the report says so, and the connection
// continues. When the route is back, the event and the report say that too.
func TestRouteLeadsAway(t *testing.T) {
	for name, kind := range map[string]int{"elsewhere": unix.RTN_UNICAST, "nowhere": unix.RTN_UNREACHABLE} {
		t.Run("offloaded/"+name, func(t *testing.T) {
			r := newHosts(t, pairConfig)
			second := netns.SecondCable(t, r.pair)
			x, y := r.connect(wants{})
			if got := r.diverted(x.qp); got != "" {
				r.Fatalf("the report says %q before anything has changed", got)
			}

			to := r.pair.Ends[pair.B].V4.Addr()
			away := &netlink.Route{Dst: &net.IPNet{IP: to.AsSlice(), Mask: net.CIDRMask(32, 32)}, Type: kind}
			want := "no route"
			if kind == unix.RTN_UNICAST {
				away.Gw, want = second.Hosts[pair.B].AsSlice(), second.Names[pair.A]
			}
			r.Must(r.pair.Do(pair.A, func() error { return netlink.RouteAdd(away) }))
			e := r.event(r.a, RouteAway)
			if e.QP != x.qp || e.Port != r.pair.Ends[pair.A].Name || !strings.Contains(e.Err.Error(), want) {
				r.Errorf("%+v, want %q", e, want)
			}
			if got := r.diverted(x.qp); !strings.Contains(got, want) {
				r.Errorf("the report says %q, want %q", got, want)
			}
			transferBothWays(r, x, y, 10000)

			r.Must(r.pair.Do(pair.A, func() error { return netlink.RouteDel(away) }))
			if e := r.event(r.a, RouteBack); e.QP != x.qp || e.Port != r.pair.Ends[pair.A].Name || e.Err != nil {
				r.Errorf("%+v", e)
			}
			if got := r.diverted(x.qp); got != "" {
				r.Errorf("the report still says %q", got)
			}
			transferBothWays(r, x, y, 10000)
		})
	}
}

// diverted returns what the report says about the route of a QP's connection. The next
// hop of the connection is the peer itself.
func (r *rig) diverted(qp *QP) string {
	r.Helper()
	report, err := r.a.Report(r.Ctx())
	r.Must(err)
	for _, f := range report.Flows {
		if f.QP != qp.Number() {
			continue
		}
		end := r.pair.Ends[pair.B]
		if f.NextHop != end.V4.Addr().String() || f.NextHopMAC != end.MAC.String() {
			r.Errorf("the next hop is %s at %s, want %v at %v", f.NextHop, f.NextHopMAC, end.V4.Addr(), end.MAC)
		}
		return f.Diverted
	}
	r.Fatal("the report has no such flow")
	return ""
}
