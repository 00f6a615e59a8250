package doctor_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/doctor"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// withoutCap calls f while the calling thread lacks a capability. The caller has locked
// the thread.
func withoutCap(t *testing.T, bit int, f func()) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var had, has [2]unix.CapUserData
	rig.Must(t, unix.Capget(&header, &had[0]))
	has = had
	has[bit/32].Effective &^= 1 << (bit % 32)
	rig.Must(t, unix.Capset(&header, &has[0]))
	defer func() { rig.Must(t, unix.Capset(&header, &had[0])) }()
	f()
}

// TestUnseenProgram: without the right to see whose program is on the hook, doctor says
// that it does not know, and does not advise to take the program off.
func TestUnseenProgram(t *testing.T) {
	need.XDP(t)
	for name, attach := range map[string]func(*testing.T, *pair.Pair){
		"another's": foreign,
		"stag's, to stay": func(t *testing.T, p *pair.Pair) {
			unloadAfter(t)
			rig.Must(t, mustLoad(t, p, loader.Options{Pin: instance}).Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := netns.Pair(t, pair.Config{})
			attach(t, p)
			var probes []doctor.Probe
			netns.In(t, p, pair.A, func() (err error) {
				withoutCap(t, unix.CAP_SYS_ADMIN, func() { probes, err = doctor.Interface(p.Ends[pair.A].Name, doctor.Needs{}) })
				return err
			})
			wellFormed(t, probes)
			got := named(t, probes, "XDP hook")
			if got.Outcome != doctor.Unknown || !strings.Contains(got.Fix, "root") || strings.Contains(got.Fix, "xdp off") || !slices.Equal(got.Lacks, []string{"CAP_SYS_ADMIN"}) {
				t.Errorf("%+v, want unknown for lack of CAP_SYS_ADMIN", got)
			}
		})
	}
}

// TestUnreadableLimit: a limit on locked memory that cannot be read may be high enough.
func TestUnreadableLimit(t *testing.T) {
	need.XDP(t)
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	refuse(t, unix.SYS_GETRLIMIT, unix.SYS_PRLIMIT64)
	var probes []doctor.Probe
	withoutCap(t, unix.CAP_IPC_LOCK, func() {
		var err error
		probes, err = doctor.Host(doctor.Needs{})
		rig.Must(t, err)
	})
	wellFormed(t, probes)
	if got := named(t, probes, "locked memory"); got.Outcome != doctor.Unknown || !strings.Contains(got.Detail, "cannot be read") {
		t.Errorf("%+v, want unknown", got)
	}
}
