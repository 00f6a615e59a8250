package ping

import (
	"fmt"
	"io"
	"strings"
)

// Print writes the summary.
func (r Result) Print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d pings, %d octets each way", r.Pings, r.Octets)
	if r.Validated {
		b.WriteString(", all compared")
	}
	if r.Path == "" {
		fmt.Fprintf(&b, "; never connected, at %s.\n", r.Address)
	} else {
		fmt.Fprintf(&b, ", in %.3f s over %s, %s.\n", r.Seconds, r.Path, r.Address)
	}
	if t := r.Exchange; t != nil {
		fmt.Fprintf(&b, "A ping took %.1f/%.1f/%.1f us (min/avg/max), %.1f/%.1f/%.1f us (50%%/99%%/99.9%%).\n",
			t.Min, t.Avg, t.Max, t.P50, t.P99, t.P999)
	}
	if r.Clients > 0 {
		fmt.Fprintf(&b, "Clients: %d. Failed: %d.\n", r.Clients, r.Failed)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
