//go:build !amd64

package wire

// canFold: there is no fold here; the standard library does all of it.
const canFold = false

func fold(uint32, []byte) uint32 { panic("wire: fold without the instructions for it") }
