package excuse

import "testing"

func TestOf(t *testing.T) {
	for out, excused := range map[string]bool{
		"":                     false,
		" 2 5 0.00 0.00 0.000": false, // zeros alone are no excuse
		"Correlation coefficient r^2: 0.879 < 0.9\n":                     true,
		"Unexpected CM event bl blka 8\nRDMA_CM_EVENT_REJECTED":          true,
		"RDMA_CM_EVENT_UNREACHABLE":                                      false,
		"Completion with error at client\nFailed status 12: wr_id 0 syn": false,
	} {
		if got := Of("", out); (got != "") != excused {
			t.Errorf("%q: %q", out, got)
		}
	}
}
