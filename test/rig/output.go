package rig

import (
	"bytes"
	"sync"
)

// Output collects the output of a command. The command may write while the test reads.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *Output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
