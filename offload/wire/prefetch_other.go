//go:build !amd64

package wire

// Prefetch does nothing here.
func Prefetch([]byte) {}
