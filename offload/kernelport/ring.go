package kernelport

// ring is a queue of received octets.
type ring struct {
	buf  []byte
	head int // index of the oldest octet
	used int
}

// space returns free memory for further octets, up to the end of the buffer. The result
// is empty if the ring is full.
func (r *ring) space() []byte {
	if r.used == 0 {
		r.head = 0
	}
	tail := r.head + r.used
	if tail >= len(r.buf) {
		return r.buf[tail-len(r.buf) : r.head]
	}
	return r.buf[tail:]
}

// grow appends the first n octets of space, which the caller has filled.
func (r *ring) grow(n int) { r.used += n }

// views fills dst with views of the held octets, oldest first, and returns how many.
func (r *ring) views(dst [][]byte) int {
	n := 0
	at, left := r.head, r.used
	for left > 0 && n < len(dst) {
		part := min(left, len(r.buf)-at)
		dst[n] = r.buf[at : at+part : at+part]
		n++
		at, left = 0, left-part
	}
	return n
}

// drop releases the oldest n octets. The ring must hold at least n.
func (r *ring) drop(n int) {
	if n < 0 || n > r.used {
		panic("kernelport: Consume of more than Views shows")
	}
	r.head = (r.head + n) % len(r.buf)
	r.used -= n
}
