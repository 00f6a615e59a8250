package wire

// Prefetch asks the processor to bring the cache lines in which b's first 128
// octets lie, or fewer if b is shorter: the headers of a packet, which another
// processor has just written and which are looked at soon. It waits for nothing.
func Prefetch(b []byte) {
	if len(b) != 0 {
		prefetch(&b[0], &b[min(len(b), 128)-1])
	}
}

// prefetch asks for the lines from first to last, at most three.
//
//go:noescape
func prefetch(first, last *byte)
