package loader

// undo is a stack of what takes back the steps done so far. Failure and Close
// run it backwards.
type undo []func() error

func (u *undo) add(f func() error) { *u = append(*u, f) }

// run takes everything back and reports the first complaint.
func (u *undo) run() (first error) {
	for i := len(*u) - 1; i >= 0; i-- {
		if err := (*u)[i](); err != nil && first == nil {
			first = err
		}
	}
	*u = nil
	return first
}
