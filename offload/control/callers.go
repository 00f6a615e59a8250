package control

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// callers are the connections of a server. With them, the server can close without
// cutting off answers that are almost complete. callers is safe for concurrent use.
type callers struct {
	mu      *sync.Mutex       // guards the fields below
	changed *sync.Cond        // condition variable of mu
	all     map[net.Conn]bool // the connections; the value is true while the server answers a request
}

func newCallers() callers {
	mu := new(sync.Mutex)
	return callers{mu, sync.NewCond(mu), map[net.Conn]bool{}}
}

// note records a change of a connection's state. The server calls note as its callback
// ConnState (http.Server).
func (c callers) note(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateClosed, http.StateHijacked:
		delete(c.all, conn)
	default:
		c.all[conn] = state == http.StateActive
	}
	c.changed.Broadcast()
}

// rest waits until the server answers no request, for at most d.
func (c callers) rest(d time.Duration) {
	late := false
	timer := time.AfterFunc(d, func() {
		c.mu.Lock()
		late = true
		c.mu.Unlock()
		c.changed.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !late && c.answering() {
		c.changed.Wait()
	}
}

func (c callers) answering() bool {
	for _, busy := range c.all {
		if busy {
			return true
		}
	}
	return false
}

// leave waits until all connections are gone. The caller must have closed them.
func (c callers) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.all) != 0 {
		c.changed.Wait()
	}
}
