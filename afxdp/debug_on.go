//go:build stagdebug

package afxdp

// debug is Config.Check for every queue. The build tag stagdebug sets it.
const debug = true
