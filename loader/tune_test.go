package loader_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// gro returns the GRO setting of side A's interface, whatever its name is. threaded
// returns the NAPI setting.
func gro(t *testing.T, p *pair.Pair) (value string) {
	t.Helper()
	netns.In(t, p, pair.A, func() (err error) {
		value, err = loader.ReadSetting(linkOf(t, p), "gro")
		return err
	})
	return value
}

func threaded(t *testing.T, p *pair.Pair) (value string) {
	t.Helper()
	netns.In(t, p, pair.A, func() (err error) {
		value, err = loader.ReadThreaded(linkOf(t, p))
		return err
	})
	return value
}

// linkOf returns the present name of side A's interface. The calling thread must be in
// its namespace.
func linkOf(t *testing.T, p *pair.Pair) string {
	t.Helper()
	l, err := netlink.LinkByIndex(p.Ends[pair.A].Index)
	if err != nil {
		t.Fatal(err)
	}
	return l.Attrs().Name
}

func setGRO(t *testing.T, p *pair.Pair, on bool) {
	t.Helper()
	netns.In(t, p, pair.A, func() error { return loader.SetGRO(linkOf(t, p), on) })
}

// settingsFiles returns the settings files that loads have left.
func settingsFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(loader.RuntimeDir + "/settings-*")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// said checks that one of the changes has this text.
func said(t *testing.T, list []loader.Change, text string) {
	t.Helper()
	if !slices.ContainsFunc(list, func(c loader.Change) bool { return strings.Contains(c.String(), text) }) {
		t.Errorf("%v: nothing says %q", list, text)
	}
}

// TestTune checks that NAPI runs in threads while stag is loaded. /sys shows another
// namespace than that of the interface.
func TestTune(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	setGRO(t, p, true) // without GRO a veth has no NAPI after the program is detached
	s := mustLoad(t, p, loader.Options{Pin: instance, Tune: loader.TuneThroughput})
	said(t, s.Tuned(), "threaded of "+s.Link().Port+": 0 -> 1  (")
	if got := threaded(t, p); got != "1" {
		t.Errorf("threaded is %s", got)
	}
	if got := gro(t, p); got != "on" {
		t.Errorf("gro is %s in native mode", got)
	}
	var done []loader.Unloaded
	netns.In(t, p, pair.A, func() (err error) {
		done, err = loader.Unload(loader.UnloadOptions{Instance: instance})
		return err
	})
	said(t, done[0].Settings, "threaded of "+s.Link().Port+": 1 -> 0")
	if got := threaded(t, p); got != "0" {
		t.Errorf("unloaded, threaded is %s", got)
	}
	if left := settingsFiles(t); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestTuneGeneric checks that a load turns off the offloads that generic mode cannot
// use. The unload turns them on again, wherever the interface is by then.
func TestTuneGeneric(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	setGRO(t, p, true)
	s := mustLoad(t, p, loader.Options{Pin: instance, Generic: true, Tune: loader.TuneThroughput})
	said(t, s.Tuned(), "gro of "+s.Link().Port+": on -> off  (")
	said(t, s.Tuned(), "ethtool -K PEER tso off gso off")
	if got := gro(t, p); got != "off" {
		t.Errorf("gro is %s", got)
	}
	s.Close()
	rename(t, p, pair.A, "tuned0")
	o := startOther(t, p, pair.A, "stay") // a process in the namespace makes it possible to find the namespace
	done, err := loader.Unload(loader.UnloadOptions{Instance: instance})
	if err != nil || len(done) != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	said(t, done[0].Settings, "gro of tuned0: off -> on  (as before stag)")
	if got := gro(t, p); got != "on" {
		t.Errorf("unloaded, gro is %s", got)
	}
	o.kill(t)
}

// TestTunePeer checks that the other end of a veth is tuned if it can be seen.
func TestTunePeer(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	netns.In(t, p, pair.A, func() error {
		at := netlink.NewLinkAttrs()
		at.Name = "near0"
		veth := netlink.NewVeth(at)
		veth.PeerName = "far0"
		if err := netlink.LinkAdd(veth); err != nil {
			return err
		}
		s, err := loader.Load(loader.Options{Link: "near0", Pin: instance, Generic: true, Tune: loader.TuneBasics})
		if err != nil {
			return err
		}
		s.Close()
		said(t, s.Tuned(), "tso of far0: on -> off  (")
		if value, err := loader.ReadSetting("far0", "tso"); value != "off" || err != nil {
			t.Errorf("segmentation offload of the peer: %v, %v", value, err)
		}
		if on, err := loader.TxChecksum("far0"); !on || err != nil {
			t.Errorf("checksum offload of the peer, which does no harm: %v, %v", on, err)
		}
		if err := unload(); err != nil {
			return err
		}
		value, err := loader.ReadSetting("far0", "tso")
		if value != "on" {
			t.Error("the peer's segmentation offload was not put back")
		}
		return err
	})
}

// TestTuneChangedSince checks that the unload leaves a setting that an operator has
// changed after the load. Every setting has only two values here, so the test edits the
// value that stag has recorded.
func TestTuneChangedSince(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	setGRO(t, p, true)
	mustLoad(t, p, loader.Options{Pin: instance, Tune: loader.TuneThroughput})
	editSettings(t, `"is": "1"`, `"is": "2"`)
	var done []loader.Unloaded
	netns.In(t, p, pair.A, func() (err error) {
		done, err = loader.Unload(loader.UnloadOptions{Instance: instance})
		return err
	})
	said(t, done[0].Settings, "left at 1  (somebody has set it since; before stag it was 0)")
	if got := threaded(t, p); got != "1" {
		t.Errorf("threaded is %s", got)
	}
}

// editSettings replaces old in the only file of settings.
func editSettings(t *testing.T, old, next string) {
	t.Helper()
	files := settingsFiles(t)
	if len(files) != 1 {
		t.Fatalf("files of settings: %v", files)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("no %s in %s", old, text)
	}
	if err := os.WriteFile(files[0], []byte(strings.Replace(string(text), old, next, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTuneLost checks the unload of an interface whose namespace cannot be found. The
// unload reports the settings that it did not restore.
func TestTuneLost(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	mustLoad(t, p, loader.Options{Pin: instance, Tune: loader.TuneThroughput})
	done, err := loader.Unload(loader.UnloadOptions{Instance: instance})
	if err != nil || len(done) != 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	said(t, done[0].Settings, "left at 1  (not restored: its network namespace cannot be found or entered)")
}

// TestTuneWithoutPin checks that Tune needs Pin, because only an unload restores the
// settings.
func TestTuneWithoutPin(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	_, err := load(p, loader.Options{Tune: loader.TuneThroughput})
	rig.Says(t, err, nil, "pin it")
}

// TestTuneOfFailedLoad checks that a failed load changes nothing.
func TestTuneOfFailedLoad(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	setGRO(t, p, true)
	foreign(t, p, "somebody")
	_, err := load(p, loader.Options{Pin: instance, Generic: true, Tune: loader.TuneThroughput})
	rig.Says(t, err, loader.ErrForeignProgram)
	if got := gro(t, p); got != "on" {
		t.Errorf("gro is %s", got)
	}
	unpinned(t)
	if left := settingsFiles(t); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestLoadKilled kills a load after each of its steps. Sweep removes what is left and
// restores the settings, or the next load succeeds in spite of it.
func TestLoadKilled(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	for _, step := range []string{"directories", "noted gro", "attached", "config", "shared maps", "maps", "link"} {
		for _, sweep := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, swept %v", step, sweep), func(t *testing.T) { loadKilled(t, step, sweep) })
		}
	}
}

func loadKilled(t *testing.T, step string, sweep bool) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	setGRO(t, p, true)
	dies(t, p, "load until "+step)
	whole := step == "link"
	if !whole {
		if i := instanceIn(t, p, pair.A); len(i.Ports) != 1 || i.Ports[0].Stale == "" || i.Ports[0].InUse {
			t.Errorf("killed at %s: %+v", step, i)
		}
	}
	if whole {
		s, err := adopt(p)
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		netns.In(t, p, pair.A, unload)
	} else if sweep {
		netns.In(t, p, pair.A, func() error {
			done, err := loader.Sweep()
			if text := strings.Join(done, "\n"); !strings.Contains(text, instance) || !strings.Contains(text, "interrupted") {
				t.Errorf("swept: %q", text)
			}
			return err
		})
	}
	if whole || sweep {
		unpinned(t)
		if got := gro(t, p); got != "on" {
			t.Errorf("gro is %s", got)
		}
		if left := settingsFiles(t); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
	}
	s := mustLoad(t, p, loader.Options{Pin: instance, Generic: true, Tune: loader.TuneThroughput})
	said(t, s.Tuned(), "gro of "+s.Link().Port+": on -> off")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	netns.In(t, p, pair.A, unload)
	unpinned(t)
	if got := gro(t, p); got != "on" {
		t.Errorf("gro is %s", got)
	}
	netns.In(t, p, pair.A, func() error {
		_, err := loader.Sweep()
		return err
	})
	if left, _ := filepath.Glob(loader.RuntimeDir + "/*"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestSettingsOfAnotherBoot checks that settings from before a reboot are not restored,
// and that their file is removed.
func TestSettingsOfAnotherBoot(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	setGRO(t, p, true)
	dies(t, p, "load until maps")
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	editSettings(t, strings.TrimSpace(string(boot)), "another")
	netns.In(t, p, pair.A, func() error {
		_, err := loader.Sweep()
		return err
	})
	if got := gro(t, p); got != "off" {
		t.Errorf("gro is %s: restored from another boot's", got)
	}
	if left := settingsFiles(t); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestSettingsUnreadable checks that a file that cannot be parsed is kept.
func TestSettingsUnreadable(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	l := lookup(t, p, pair.A)
	file := fmt.Sprintf("%s/settings-%d-%d", loader.RuntimeDir, l.Netns, l.PortIndex)
	if err := os.MkdirAll(loader.RuntimeDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file)
	_, err := load(p, loader.Options{Pin: instance})
	rig.Says(t, err, nil, file)
	_, err = loader.Sweep()
	rig.Says(t, err, nil, file)
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// TestSettingsUnwritable checks that a load changes nothing if it cannot record a
// setting.
func TestSettingsUnwritable(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	need.XDP(t)
	unloadAfter(t)
	setGRO(t, p, true)
	l := lookup(t, p, pair.A)
	inTheWay := fmt.Sprintf("%s/settings-%d-%d.new", loader.RuntimeDir, l.Netns, l.PortIndex)
	if err := os.MkdirAll(inTheWay+"/x", 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(inTheWay)
	_, err := load(p, loader.Options{Pin: instance, Generic: true, Tune: loader.TuneThroughput})
	rig.Says(t, err, nil, "settings-")
	if got := gro(t, p); got != "on" {
		t.Errorf("gro is %s", got)
	}
	unpinned(t)
	setGRO(t, p, false)
	mustLoad(t, p, loader.Options{Pin: instance, Generic: true})
}

// TestSweepBlind checks that Sweep keeps the settings of loaded interfaces if it cannot
// see the pins.
func TestSweepBlind(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	unloadAfter(t)
	setGRO(t, p, true)
	mustLoad(t, p, loader.Options{Pin: instance, Generic: true, Tune: loader.TuneThroughput}).Close()
	if o := startOther(t, p, pair.A, "sweep without a BPF file system"); !strings.Contains(o.said, "mount -t bpf") {
		t.Errorf("said %q", o.said)
	}
	if o := startOther(t, p, pair.A, "sweep with another BPF file system"); o.said != "ready" {
		t.Errorf("said %q", o.said)
	}
	if o := startOther(t, p, pair.A, "sweep with another BPF file system, without CAP_SYS_ADMIN"); o.said != "ready" {
		t.Errorf("said %q", o.said)
	}
	if got := gro(t, p); got != "off" || len(settingsFiles(t)) != 1 {
		t.Errorf("gro is %s, files %v", got, settingsFiles(t))
	}
	netns.In(t, p, pair.A, unload)
	if got := gro(t, p); got != "on" {
		t.Errorf("gro is %s", got)
	}
}

// TestClaimWhileSweeping checks that a process can take over the claim of a dead
// process while other processes remove that claim.
func TestClaimWhileSweeping(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	l := lookup(t, p, pair.A)
	file := fmt.Sprintf("%s/%d-%d-3", loader.RuntimeDir, l.Netns, l.PortIndex)
	stop := make(chan struct{})
	swept := make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				swept <- nil
				return
			default:
			}
			if _, err := loader.Sweep(); err != nil {
				swept <- err
				return
			}
		}
	}()
	for range 100 {
		if err := os.WriteFile(file, []byte("1 1\n"), 0o644); err != nil {
			t.Error(err)
		}
		c, err := loader.NewClaim(l, 3)
		if err != nil {
			t.Error(err)
			continue
		}
		c.Close()
	}
	close(stop)
	if err := <-swept; err != nil {
		t.Error(err)
	}
}

// TestSweep checks that Sweep removes deleted interfaces, instances without interfaces,
// and claims of dead processes. It keeps all that is loaded or in use.
func TestSweep(t *testing.T) {
	p, q := netns.Pair(t, pair.Config{}), netns.Pair(t, pair.Config{})
	unloadAfter(t)
	mustLoad(t, p, loader.Options{Pin: instance}).Close()
	netns.In(t, q, pair.A, func() error {
		s, err := loader.Load(loader.Options{Link: q.Ends[pair.A].Name, Pin: instance})
		if err == nil {
			s.Close()
		}
		return err
	})
	o := startOther(t, p, pair.A, "claim")
	if o.said != "ready" {
		t.Fatal(o.said)
	}
	mustClaim(t, lookup(t, q, pair.A), 7)
	sweep := func() string {
		done, err := loader.Sweep()
		if err != nil {
			t.Error(err)
		}
		return strings.Join(done, "\n")
	}
	if text := sweep(); text != "" {
		t.Errorf("nothing is stale, and yet: %q", text)
	}
	o.kill(t)
	p.Close() // deletes one interface with its namespace
	text := sweep()
	for _, want := range []string{"interface is gone", "claim of a process that is gone"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q does not say %q", text, want)
		}
	}
	if got := onePort(t, instanceIn(t, q, pair.A)); got.Name != q.Ends[pair.A].Name || !got.InUse {
		t.Errorf("%+v", got)
	}
	q.Close()
	if text := sweep(); !strings.Contains(text, instance) {
		t.Errorf("the last one: %q", text)
	}
	unpinned(t)
	if text := sweep(); text != "" {
		t.Errorf("swept twice: %q", text)
	}
}
