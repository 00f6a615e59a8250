//go:build !amd64

package wire

// canFold is false, because this architecture has no fold. The standard library
// computes every CRC.
const canFold = false

func fold(uint32, []byte) uint32 { panic("wire: fold without the instructions for it") }
