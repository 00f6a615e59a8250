package daemon

import (
	"log/slog"
	"sync"
	"time"
)

// complaints limits the warnings about one source, so that a client cannot fill a disk.
type complaints struct {
	mu      sync.Mutex
	from    time.Time // begin of the present minute
	lines   int       // in that minute
	omitted int
}

// mostComplaints is how many warnings one source causes in a minute.
const mostComplaints = 20

func (c *complaints) warn(log *slog.Logger, text string, args ...any) {
	c.mu.Lock()
	if now := time.Now(); now.Sub(c.from) > time.Minute {
		c.from, c.lines = now, 0
	}
	omit, omitted := c.lines >= mostComplaints, c.omitted
	if omit {
		c.omitted++
	} else {
		c.lines++
		c.omitted = 0
	}
	c.mu.Unlock()
	if omit {
		return
	}
	if omitted != 0 {
		args = append(args, "omitted", omitted)
	}
	log.Warn(text, args...)
}
