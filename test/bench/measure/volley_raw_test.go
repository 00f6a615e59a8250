package measure

import (
	"testing"
	"time"

	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// A frame goes back and forth, and the volley ends without an error. Neither side waits
// for a frame that does not come.
func TestRawVolley(t *testing.T) {
	need.Netns(t)
	h, err := playOn(t.Context(), setting{raw: rawBare, mtu: 1500}, small, rawVolley, 10*time.Millisecond, 100*time.Millisecond)
	rig.Must(t, err)
	if h.TotalCount() == 0 || h.Min() <= 0 {
		t.Errorf("%d rounds, the shortest of %d ns", h.TotalCount(), h.Min())
	}
}

// A message that does not fit into a frame is refused, and nothing stays open.
func TestRawVolleyTooLong(t *testing.T) {
	need.Netns(t)
	_, err := playOn(t.Context(), setting{raw: rawBare, mtu: 1500}, maxRawMTU, rawVolley, 0, time.Millisecond)
	const want = "raw frames carry 3454 octets at most, not 3506"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}
