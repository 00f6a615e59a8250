//go:build !amd64

package wire

// canAddWide: there is no addWide here.
const canAddWide = false

func addWide([]byte) uint64 { panic("wire: addWide without the instructions for it") }
