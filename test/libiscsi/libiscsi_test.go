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
		{Name: "CompareAndWrite.Simple", Outcome: libiscsi.Skipped, Why: "COMPAREANDWRITE is not implemented."},
		{Name: "GetLBAStatus.Simple", Outcome: libiscsi.Passed},
		{Name: "GetLBAStatus.BeyondEol", Outcome: libiscsi.Failed, Why: "GET_LBA_STATUS successful but should have failed with ILLEGAL_REQUEST(0x05)/LBA_OUT_OF_RANGE(0x2100)"},
		{Name: "MultipathIO.CompareAndWriteAsync", Outcome: libiscsi.Skipped, Why: "Multipath unavailable. Skipping test"},
	} {
		found := false
		for _, got := range r {
			if got.Name == want.Name {
				found = true
				if !strings.Contains(got.Log, got.Why) {
					t.Errorf("%s: log %q", got.Name, got.Log)
				}
				if got.Log = ""; got != want {
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

// TestParseLines has the places at which the word of the outcome stands.
func TestParseLines(t *testing.T) {
	r, err := libiscsi.Parse(`
Suite: A
  Test: One ...passed
  Test: Two ...    [SKIPPED] x is not implemented.
passed
  Test: Three ...    [FAILED] wrong
FAILED
    1. a.c:1  - CU_ASSERT
  Test: Four ...    passed    [FAILED] of the set-up of the next test
Suite: B
  Test: Five ...FAILED
Run Summary:    Type  Total    Ran Passed Failed Inactive
              suites      2      2    n/a      0        0
               tests      5      5      3      2        0
`)
	rig.Must(t, err)
	var got []string
	for _, x := range r {
		got = append(got, x.Name+" "+string(x.Outcome))
	}
	if want := "A.One passed,A.Two skipped,A.Three failed,A.Four passed,B.Five failed"; strings.Join(got, ",") != want {
		t.Errorf("%q, want %s", got, want)
	}
}
