//go:build interop

package interop

import (
	"context"
	"flag"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/backend"
	"github.com/stag-rdma/stag/test/libiscsi"
)

var update = flag.Bool("update", false, "write the lists of iscsi-test-cu's results instead of comparing with them")

// The lists have the results of iscsi-test-cu, a line for each test.
const (
	newSuiteList = "../../iscsi/testdata/iscsi-test-cu-1.20.txt"
)

// chapIQN is the target that demands CHAP.
const chapIQN = iqn + "-chap"

// suiteSize is the size of the disk in octets: the suite wants 128 MiB.
const suiteSize = 128 << 20

// serveSuite serves two disks in memory for iscsi-test-cu: a removable one that keeps persistent
// reservations, and a small one whose target demands CHAP. Both have portals for iSCSI and iSER.
func (r *rig) serveSuite(c carrier) {
	r.Helper()
	cfg := iscsi.ServerConfig{
		Adapter: r.open(c), Address: net.JoinHostPort(ourV4, portal),
		Portals: []iscsi.PortalConfig{{Address: "iser://" + net.JoinHostPort(ourV4, iserPort)}},
		Targets: []iscsi.TargetConfig{
			{Name: iqn, LUNs: map[uint16]iscsi.LUN{
				lun: {Backend: r.ram(suiteSize), Removable: true, Reservations: filepath.Join(r.TempDir(), "reservations")},
			}},
			{Name: chapIQN, Users: map[string]string{"alice": "alice-secret-12"}, LUNs: map[uint16]iscsi.LUN{lun: {Backend: r.ram(1 << 20)}}},
		},
	}
	var s *iscsi.Server
	r.Must(r.pair.Do(pair.A, func() (err error) {
		s, err = iscsi.Serve(context.Background(), cfg)
		return err
	}))
	r.Cleanup(func() { r.Check(s.Close()) })
}

// ram makes a medium of size octets.
func (r *rig) ram(size int64) *backend.RAM {
	r.Helper()
	m, err := backend.NewRAM(size)
	r.Must(err)
	r.Cleanup(func() { r.Check(m.Close()) })
	return m
}

// TestConformance runs iscsi-test-cu 1.20 of Debian 13 in the target's namespace. Package iscsi
// does the same with the version of Debian 12. In the family ALL, two tests of task management
// find their session closed by the test before and are skipped, so they run alone too. The tests
// of CHAP need a target that demands CHAP.
func TestConformance(t *testing.T) {
	row(t, "iscsi-test-cu 1.20, kernel port", about{"libiscsi 1.20", "238 tests"}, func(r *rig) {
		image, err := trixie()
		r.Must(err)
		h := libiscsi.Host{TB: r.TB, Net: r.pair, Side: pair.A, Programs: filepath.Join(image, "libiscsi")}
		r.serveSuite(carriers[0])
		url := fmt.Sprintf("iscsi://%s/%s/%d", net.JoinHostPort(ourV4, portal), iqn, lun)
		chap := fmt.Sprintf("iscsi://alice%%alice-secret-12@%s/%s/%d", net.JoinHostPort(ourV4, portal), chapIQN, lun)
		h.Suite(newSuiteList, *update,
			libiscsi.Run{Tests: "ALL", Args: []string{url}},
			libiscsi.Run{Label: "alone:", Tests: "ALL.iSCSITMF.LUNResetSimpleAsync", Args: []string{url}},
			libiscsi.Run{Label: "alone:", Tests: "ALL.iSCSITMF.LogoutDuringIOAsync", Args: []string{url}},
			libiscsi.Run{Label: "CHAP:", Tests: "ALL.iSCSICHAP", Args: []string{chap}},
			libiscsi.Run{Label: "2 paths:", Tests: "ALL.MultipathIO", Args: []string{url, url}})
	})
}
