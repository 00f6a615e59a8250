//go:build !amd64

package wire

// Prefetch does nothing on this architecture.
func Prefetch([]byte) {}
