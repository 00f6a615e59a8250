//go:build !amd64

package wire

// canFold is false, because this architecture has no fold. The standard library
// computes every CRC.
const canFold = false

const foldLeast = 0

func foldCopy(state uint32, _, _ []byte) (uint32, bool) { return state, false }

func fold(uint32, []byte) uint32 { panic("wire: fold without the instructions for it") }
