package metrics

import (
	"net/http"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
)

// TestPatience: patience is never longer than the timeout of Prometheus, for any header of the request.
func TestPatience(t *testing.T) {
	for says, want := range map[string]time.Duration{
		"": engines.Patience, "10": engines.Patience, "1": 800 * time.Millisecond, "0.5": 400 * time.Millisecond,
		"0": engines.Patience, "-1": engines.Patience, "NaN": engines.Patience, "Inf": engines.Patience, "1e300": engines.Patience, "soon": engines.Patience,
	} {
		r, err := http.NewRequest(http.MethodGet, "/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", says)
		if got := patience(r); got != want {
			t.Errorf("%q: %v, want %v", says, got, want)
		}
	}
}
