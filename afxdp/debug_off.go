//go:build !stagdebug

package afxdp

// debug turns Config.Check on for every queue.
const debug = false
