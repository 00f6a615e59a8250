//go:build !amd64

package wire

// canAddWide is false, because this architecture has no addWide.
const canAddWide = false

func addWide([]byte) uint64 { panic("wire: addWide without the instructions for it") }
