package engines

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/bpf"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/tpt"
)

// entry returns a flow entry of a process.
func entry(t *testing.T, id bpf.FlowID, pid uint32, alive bool) loader.PinnedFlow {
	t.Helper()
	key, err := bpf.NewFlowKey(netip.MustParseAddrPort("192.0.2.2:7174"), netip.MustParseAddrPort("192.0.2.1:99"), 100)
	if err != nil {
		t.Fatal(err)
	}
	return loader.PinnedFlow{Key: key, Flow: bpf.Flow{ID: id, Kind: bpf.KindRDMA, State: bpf.Live, Owner: bpf.NoOwner, Queue: bpf.NoOwner, PID: pid}, Alive: alive}
}

// TestPins: the source of an instance has only what no engine has already reported.
func TestPins(t *testing.T) {
	used := loader.PinnedPort{Index: 3, Found: true, Name: "eth1", ProgID: 12, MaxFlows: 64, Owner: loader.Owner{PID: 7}, InUse: true,
		Flows: []loader.PinnedFlow{entry(t, 1, 7, true)}}
	free := loader.PinnedPort{Index: 4, Found: true, Name: "eth2", Mode: loader.Generic, Space: "network namespace blue",
		Flows: []loader.PinnedFlow{entry(t, 2, 9, false), entry(t, 3, 9, false)}}
	free.Stats[bpf.NoSocket] = 5
	lost := loader.PinnedPort{Dir: "/pins/if", Index: 5, Stale: "its interface is gone"}
	for _, c := range []struct {
		name     string
		ports    []loader.PinnedPort
		answered int
		told     bool
		pid      int
		devices  string
		notes    string
	}{
		{"told", []loader.PinnedPort{used}, 7, true, 0, "", ""},
		{"another has answered", []loader.PinnedPort{used}, 8, false, 7, "eth1: pinned program, native, used by pid 7, which does not answer", ""},
		{"free", []loader.PinnedPort{free}, 7, false, 0, "eth2: pinned program, generic, no engine, in network namespace blue",
			"eth2: 2 of its flows belong to pid 9, which has ended: their peers are reset when they send, at the latest when a new engine opens the interface or stag unload --instance name detaches the program"},
		{"one of two", []loader.PinnedPort{used, free}, 7, false, 0, "eth2: pinned program, generic, no engine, in network namespace blue", "eth2: 2 of its flows"},
		{"stale", []loader.PinnedPort{lost}, 7, false, 0, "if5: pinned program, native, no engine, its interface is gone",
			"the program pinned at /pins/if cannot be used, because its interface is gone: run stag unload --instance name to remove it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := loader.Instance{Name: "name", Dir: "/pins", Ports: c.ports}
			s, told, err := idle(i, map[int]bool{c.answered: true})
			if err != nil || told != c.told || s.PID != c.pid || s.Instance != "/pins" {
				t.Errorf("told %v, pid %d, %v", told, s.PID, err)
			}
			var devices []string
			for _, d := range s.Devices {
				devices = append(devices, d.Name+": "+d.Path)
			}
			if got := strings.Join(devices, "; "); got != c.devices {
				t.Errorf("devices %q, want %q", got, c.devices)
			}
			var a Answer
			a.explain(i, s)
			if got := strings.Join(a.Notes, "; "); !strings.Contains(got, c.notes) || c.notes == "" && got != "" {
				t.Errorf("notes %q, want %q", got, c.notes)
			}
		})
	}
	s, _, _ := idle(loader.Instance{Ports: []loader.PinnedPort{free}}, nil)
	f := s.Flows[0]
	if f.State != "orphan" || f.Queue != -1 || f.ID != 2 || f.VLAN != 100 || f.Local.String() != "192.0.2.1:99" || s.LeftBy(f) != 9 {
		t.Errorf("%+v, left by %d", f, s.LeftBy(f))
	}
	if s.LeftBy(report.Flow{Device: "eth2", ID: 4}) != 0 {
		t.Error("a flow that is not there was left by somebody")
	}
	if !slices.Contains(s.Counters, report.Counter{Device: "eth2", Layer: "steer", Name: "no_socket", Value: 5}) {
		t.Errorf("counters %+v", s.Counters)
	}
}

// TestRegion: the row of an entry that no engine reports has what an engine would report.
func TestRegion(t *testing.T) {
	got := region(tpt.Info{
		STag: 0x0b42, Kind: tpt.KindRegion, Valid: true, PD: 3, QP: 4, Start: 5, Length: 6, Rights: tpt.LocalWrite | tpt.RemoteWrite, External: true,
		OneTouch: true, Touched: true, Windows: 1, PageSize: 4096, Pages: 2,
	})
	want := report.MR{
		STag: "0x00000b42", Kind: "region", Valid: true, PD: 3, QP: 4, Start: 5, Length: 6, Rights: []string{"local_write", "remote_write"},
		OneTouch: true, Touched: true, Windows: 1, PageSize: 4096, Pages: 2,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
