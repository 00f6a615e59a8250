package wire

// Prefetch makes the processor fetch the cache lines of the first 128 octets of b, or
// of all octets if b is shorter. These octets are the headers of a packet. Another
// processor has just written them, and the engine reads them soon. Prefetch does not
// wait.
func Prefetch(b []byte) {
	if len(b) != 0 {
		prefetch(&b[0], &b[min(len(b), 128)-1])
	}
}

// prefetch fetches the cache lines from first to last. They must be at most three.
//
//go:noescape
func prefetch(first, last *byte)
