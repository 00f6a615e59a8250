package pack

import "errors"

// mostText is the largest length in octets of the text of an error.
const mostText = 4096

// Error codes an error: its text, and which of the errors known it is or wraps. The place
// in known is the number of an error in the encoding, so that a later program may only
// append errors to the list.
func (c *Coder) Error(err *error, known []error) {
	set := *err != nil
	if c.Bool(&set); !set {
		*err = nil
		return
	}
	var e carried
	var numbers []uint16
	if c.writes {
		if e.text = (*err).Error(); len(e.text) > mostText {
			e.text = e.text[:mostText]
		}
		for i, k := range known {
			if errors.Is(*err, k) {
				numbers = append(numbers, uint16(i))
			}
		}
	}
	c.Text(&e.text, mostText)
	List(c, &numbers, len(known), func(c *Coder, n *uint16) {
		if Uint(c, n); int(*n) >= len(known) {
			c.Fail("error %d of %d", *n, len(known))
		}
	})
	if c.writes || c.err != nil {
		return
	}
	for _, n := range numbers {
		e.is = append(e.is, known[n])
	}
	if *err = &e; len(e.is) == 1 && e.is[0].Error() == e.text {
		*err = e.is[0]
	}
}

// carried is an error of another process.
type carried struct {
	text string
	is   []error // the known errors that it is or wraps
}

func (e *carried) Error() string { return e.text }

// Unwrap lets errors.Is and errors.As find the known errors.
func (e *carried) Unwrap() []error { return e.is }
