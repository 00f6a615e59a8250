//go:build interop

package interop

import "testing"

// TestOverISERRestart kills the target in the middle of writes over iSER, and starts it
// again.
func TestOverISERRestart(t *testing.T) {
	for _, c := range carriers {
		row(t, c.name, about{"open-iscsi, siw", "24 MiB, target killed"}, func(r *rig) {
			r.crashed(r.serveISER(c), r.loginISER)
		})
	}
}

// TestOverISERPower kills the guest in the middle of writes over iSER.
func TestOverISERPower(t *testing.T) {
	c := carriers[1]
	row(t, c.name, about{"open-iscsi, siw", "guest loses power"}, func(r *rig) {
		r.powerless(r.serveISER(c), r.loginISER)
	})
}
