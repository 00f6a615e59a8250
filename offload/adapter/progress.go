package adapter

import (
	"runtime"
	"time"
)

// Progress says which goroutines run connections.
type Progress uint8

const (
	ProgressAuto   Progress = iota // Open chooses
	ProgressEngine                 // goroutines of the adapter run connections
	ProgressInline                 // the program's own goroutines run connections, through Conn.Post and Runner.Visit
)

// chooseProgress replaces ProgressAuto by a choice. queues is the number of engines.
func (c *Config) chooseProgress(queues int) Progress {
	switch {
	case c.Progress != ProgressAuto:
		return c.Progress
	case c.Spin > 0 && queues < runtime.NumCPU():
		return ProgressEngine
	}
	return ProgressInline
}

// Inline reports whether the program's own goroutines run connections.
func (a *Adapter) Inline() bool { return a.inline }

// engineSpin returns how long an engine looks for more work before it sleeps.
func (a *Adapter) engineSpin() time.Duration {
	if a.inline {
		return 0
	}
	return a.cfg.Spin
}
