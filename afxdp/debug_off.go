//go:build !stagdebug

package afxdp

// debug turns Config.Check on everywhere.
const debug = false
