package rdma

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// logLimit limits how often a line is logged that a peer can cause. The zero value
// allows one line a second.
type logLimit struct {
	burst int // lines a second; 0 means 1

	mu      sync.Mutex
	ends    time.Time // end of the current second
	lines   int       // lines in the current second
	skipped int       // lines that were skipped since the last logged line
}

// take reports whether a line may be logged now. skipped is the number of lines that
// were skipped since the last logged line.
func (l *logLimit) take(now time.Time) (skipped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !now.Before(l.ends) {
		l.ends, l.lines = now.Add(time.Second), 0
	}
	if l.lines >= max(l.burst, 1) {
		l.skipped++
		return 0, false
	}
	l.lines++
	skipped, l.skipped = l.skipped, 0
	return skipped, true
}

// log logs a line if the limit allows it. The line says how many lines were skipped
// before it.
func (l *logLimit) log(to *slog.Logger, level slog.Level, what string, args ...any) {
	skipped, ok := l.take(time.Now())
	if !ok {
		return
	}
	if skipped != 0 {
		args = append(args, "unlogged", skipped)
	}
	to.Log(context.Background(), level, what, args...)
}
