package libiscsi_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/libiscsi"
	"github.com/stag-rdma/stag/test/rig"
)

// TestParse reads what iscsi-test-cu 1.19 says of tgtd 1.0.85 with a file of 128 MiB.
func TestParse(t *testing.T) {
	b, err := os.ReadFile("testdata/tgtd.txt")
	rig.Must(t, err)
	r, err := libiscsi.Parse(string(b))
	rig.Must(t, err)
	if passed, skipped, failed := r.Count(libiscsi.Passed), r.Count(libiscsi.Skipped), r.Count(libiscsi.Failed); passed+skipped+failed != 230 || failed != 8 {
		t.Errorf("%d passed, %d skipped, %d failed", passed, skipped, failed)
	}
	for _, want := range []libiscsi.Result{
		{"CompareAndWrite.Simple", libiscsi.Skipped, "COMPAREANDWRITE is not implemented."},
		{"GetLBAStatus.Simple", libiscsi.Passed, ""},
		{"GetLBAStatus.BeyondEol", libiscsi.Failed, "GET_LBA_STATUS successful but should have failed with ILLEGAL_REQUEST(0x05)/LBA_OUT_OF_RANGE(0x2100)"},
		{"MultipathIO.CompareAndWriteAsync", libiscsi.Skipped, "Multipath unavailable. Skipping test"},
	} {
		found := false
		for _, got := range r {
			if got.Name == want.Name {
				found = true
				if got != want {
					t.Errorf("%+v, want %+v", got, want)
				}
			}
		}
		if !found {
			t.Errorf("no %s", want.Name)
		}
	}
	if s := r.String(); !strings.HasPrefix(s, "230 tests: ") || strings.Count(s, "\nfailed") != 8 {
		t.Error(s)
	}
}

// TestParseBroken: a program that dies, or that counts otherwise, is no success.
func TestParseBroken(t *testing.T) {
	b, err := os.ReadFile("testdata/tgtd.txt")
	rig.Must(t, err)
	whole := string(b)
	died, _, _ := strings.Cut(whole, "Suite: iSCSITMF")
	if _, err := libiscsi.Parse(died); err == nil || !strings.Contains(err.Error(), "did not come to its end") {
		t.Errorf("died: %v", err)
	}
	less := strings.Replace(whole, "  Test: AllocLength ...passed\n", "", 1)
	if _, err := libiscsi.Parse(less); err == nil || !strings.Contains(err.Error(), "totals") {
		t.Errorf("a test is missing: %v", err)
	}
	if _, err := libiscsi.Parse(""); err == nil {
		t.Error("nothing is a success")
	}
}
