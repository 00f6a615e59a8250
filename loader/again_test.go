package loader_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// TestLoadAgain checks that a program that suits the options stays unchanged, and that
// LoadAgain sets the wanted settings. The unload restores everything.
func TestLoadAgain(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	setGRO(t, p, true)
	again := func(o loader.Options) (found loader.PinnedPort, changes []loader.Change, err error) {
		o.Link = p.Ends[pair.A].Name
		netns.In(t, p, pair.A, func() error {
			found, changes, err = loader.LoadAgain(o)
			return nil
		})
		return found, changes, err
	}
	_, _, err := again(loader.Options{})
	rig.Says(t, err, loader.ErrNotPinned)

	s := mustLoad(t, p, loader.Options{Pin: instance, MaxFlows: 100})
	for _, o := range []loader.Options{{}, {Pin: instance}, {MaxFlows: 100}, {Queues: 1}} {
		found, changes, err := again(o)
		if err != nil || found.ProgID != s.ProgID() || found.MaxFlows != 100 || len(changes) != 0 {
			t.Errorf("%+v: %+v, %v, %v", o, found, changes, err)
		}
	}
	for says, o := range map[string]loader.Options{
		"room for 100 flows": {MaxFlows: 101}, "native mode": {Generic: true}, "queues as 1": {Queues: 2},
		"as instance " + filepath.Base(instance): {Pin: instance + "2"},
	} {
		_, _, err := again(o)
		rig.Says(t, err, loader.ErrAlreadyLoaded, says, "stag unload "+p.Ends[pair.A].Name+" first")
	}
	for _, turn := range []struct {
		tune loader.Tune
		want string
	}{{loader.TuneBasics, "0"}, {loader.TuneThroughput, "1"}, {loader.TuneThroughput, "1"}, {loader.TuneLatency, "0"}, {loader.TuneThroughput, "1"}} {
		if _, _, err := again(loader.Options{Tune: turn.tune}); err != nil {
			t.Fatal(err)
		}
		if got := threaded(t, p); got != turn.want {
			t.Errorf("tuned for %s, threaded is %s", turn.tune, got)
		}
	}
	for wait, want := range map[time.Duration]time.Duration{3 * time.Second: 3 * time.Second, loader.NoOrphanWait: 0} {
		again(loader.Options{OrphanWait: wait})
		if found, _, err := again(loader.Options{}); err != nil || found.OrphanWait != want {
			t.Errorf("told to wait %v, waits %v: %v", wait, found.OrphanWait, err)
		}
	}
	netns.In(t, p, pair.A, unload)
	if got := threaded(t, p); got != "0" {
		t.Errorf("unloaded, threaded is %s", got)
	}
	if left := settingsFiles(t); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
