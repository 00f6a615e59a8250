package pack

import "encoding/binary"

// Uint codes a number with the size of its type.
func Uint[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *Coder, v *T) {
	*v = T(c.number(uint64(*v), binary.Size(*v)))
}

// Int codes a number in 8 octets. The number must be from least to most.
func Int[T ~int | ~int8 | ~int32 | ~int64](c *Coder, v *T, least, most T) {
	n := int64(c.number(uint64(*v), 8))
	if T(n) < least || T(n) > most || int64(T(n)) != n {
		c.Fail("the number %d is not from %d to %d", n, least, most)
		return
	}
	*v = T(n)
}

// Bool codes a truth value in one octet.
func (c *Coder) Bool(v *bool) {
	n := uint8(0)
	if *v {
		n = 1
	}
	if Uint(c, &n); n > 1 {
		c.Fail("the truth value %d", n)
		return
	}
	*v = n == 1
}

// Len codes the length of a list or of octets, at most most. Each element must take at
// least least octets of the encoding.
func (c *Coder) Len(n, most, least int) int {
	v := uint32(n)
	Uint(c, &v)
	switch {
	case c.err != nil:
		return 0
	case uint64(v) > uint64(most):
		c.Fail("%d elements, of at most %d", v, most)
		return 0
	case !c.writes && uint64(v)*uint64(least) > uint64(len(c.buf)):
		c.Fail("%d elements in %d octets", v, len(c.buf))
		return 0
	}
	return int(v)
}

// Octets codes at most most octets behind their number. An empty list is read as nil.
func (c *Coder) Octets(b *[]byte, most int) {
	n := c.Len(len(*b), most, 1)
	switch {
	case c.err != nil:
	case c.writes:
		c.buf = append(c.buf, *b...)
	default:
		*b = append([]byte(nil), c.take(n)...)
	}
}

// Fixed codes all of b, whose length both ends know.
func (c *Coder) Fixed(b []byte) {
	switch {
	case c.err != nil:
	case c.writes:
		c.buf = append(c.buf, b...)
	default:
		copy(b, c.take(len(b)))
	}
}

// Text codes a string of at most most octets.
func (c *Coder) Text(s *string, most int) {
	b := []byte(*s)
	if c.Octets(&b, most); c.err == nil {
		*s = string(b)
	}
}

// List codes a list of at most most elements. one codes an element, in one octet or more.
// An empty list is read as nil.
func List[T any](c *Coder, list *[]T, most int, one func(*Coder, *T)) {
	n := c.Len(len(*list), most, 1)
	if c.err == nil && !c.writes {
		*list = nil
	}
	for i := 0; i < n && c.err == nil; i++ {
		if !c.writes {
			*list = append(*list, *new(T)) // grows with the octets that are there, whatever n claims
		}
		one(c, &(*list)[i])
	}
}
