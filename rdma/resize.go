package rdma

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/work"
)

func checkCQDepth(depth int) error {
	if depth < 1 || depth > maxCQDepth {
		return fmt.Errorf("depth %d: choose 1 to %d", depth, maxCQDepth)
	}
	return nil
}

// Resize changes how many completions the CQ holds to at least depth, 1 to
// Limits.MaxCQDepth (ibv_resize_cq). The QPs go on meanwhile, and no completion is lost.
// The order of the completions, an Arm and goroutines that wait are not affected.
//
// Resize takes effect when it returns. Completions that wait to be polled count as ever.
// If more of them wait than depth has room for, Resize returns ErrInUse and changes
// nothing. Choose at least the sum of the depths of the queues that use the CQ: a CQ of
// this depth cannot be overrun. Other errors: ErrCQOverrun, ErrClosed.
func (c *CQ) Resize(depth int) error {
	if err := c.changeDepth(depth, func() error { return c.queue.Resize(depth) }); err != nil {
		return fmt.Errorf("resize CQ: %w", err)
	}
	return nil
}

// ResizeIn is Resize of a CQ with CQOptions.Memory. The completions that come later go to other
// memory, which must have CQRingLen octets for the depth and be aligned to 64 octets. ResizeIn
// returns the position of the first completion there. The other process takes the completions
// before that position from the old memory, where the words head, armed and overrun stay for
// the life of the CQ. Both must stay mapped until Close has returned.
func (c *CQ) ResizeIn(memory []byte, depth int) (from uint64, err error) {
	err = c.changeDepth(depth, func() (err error) { from, err = c.queue.ResizeIn(memory, depth); return err })
	if err != nil {
		return 0, fmt.Errorf("resize CQ: %w", err)
	}
	return from, nil
}

// changeDepth checks the depth, calls change, and returns what is wrong.
func (c *CQ) changeDepth(depth int, change func() error) error {
	if c.distant != nil {
		return ErrThroughDaemon
	}
	done, err := c.adapter.use()
	if err != nil {
		return err
	}
	defer done()
	if err := checkCQDepth(depth); err != nil {
		return err
	}
	c.resizing.Lock()
	defer c.resizing.Unlock()
	switch {
	case c.closing.Load():
		return fmt.Errorf("the CQ is %w", ErrClosed)
	case c.queue.Overrun():
		return ErrCQOverrun
	}
	err = change()
	var many *work.TooManyError
	if errors.As(err, &many) {
		return fmt.Errorf("%w: %w", ErrInUse, err)
	}
	return err
}
