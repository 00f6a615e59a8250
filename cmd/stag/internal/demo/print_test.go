package demo

import (
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/rig"
)

// TestPrint: the tables show each refusal and each operation. Frames are a dash with the
// kernel port. Only verbose says why zero copy is not used.
func TestPrint(t *testing.T) {
	r := Result{
		Operations: []Operation{
			{Name: "RDMA Write", From: "A", To: "B", Octets: 1 << 20, Messages: 16, Seconds: 0.25, Gbps: 1.5, Frames: &[2]Count{{In: 7, Out: 740}, {}}, Path: "AF_XDP"},
			{Name: "RDMA Read", From: "B", To: "A", Octets: 12, Messages: 1, Seconds: 1, Path: "kernel TCP"},
		},
		Refusals: []Refusal{{Tried: "a Write beyond the end", Error: "base or bounds violation"}},
		Window:   Window{Region: 4096, Offset: 1001, Octets: 77, Refused: "invalid STag"},
		Sides:    [2]Side{{NoZeroCopy: "veth copies"}},
	}
	for verbose, reason := range map[bool]string{false: "", true: "No zero copy on side A: veth copies.\n"} {
		var b strings.Builder
		rig.Must(t, r.Print(&b, verbose))
		text := b.String()
		for _, want := range []string{
			"octets 1001 to 1077 of a region of 4096 octets",
			"got this error:\ninvalid STag\n",
			"a Write beyond the end   base or bounds violation\n",
			"RDMA Write   A to B   1048576   16         0.25 s   1.50 Gb/s   740               7               AF_XDP\n",
			"RDMA Read    B to A   12        1          1.00 s   0.00 Gb/s   -                 -               kernel TCP\n",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("missing %q in:\n%s", want, text)
			}
		}
		if !strings.HasSuffix(text, "kernel TCP\n"+reason) {
			t.Errorf("verbose %v ends:\n%s", verbose, text)
		}
	}
}
