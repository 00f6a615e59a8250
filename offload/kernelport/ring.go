package kernelport

// ring holds received octets in their order.
type ring struct {
	buf  []byte
	head int // of the oldest octet
	used int
}

// space is free memory for further octets, up to where the ring wraps. Empty
// when the ring is full.
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

// grow says that the first n octets of space have been filled.
func (r *ring) grow(n int) { r.used += n }

// views fills dst with what is held, oldest first.
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

// drop releases the oldest n octets, which are there.
func (r *ring) drop(n int) {
	if n < 0 || n > r.used {
		panic("kernelport: Consume of more than Views shows")
	}
	r.head = (r.head + n) % len(r.buf)
	r.used -= n
}
