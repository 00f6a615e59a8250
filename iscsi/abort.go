package iscsi

import (
	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/pdu"
)

// mostAborts limits how many requests to abort canceled commands wait for room. A target
// that answers no request gets no more.
const mostAborts = 1024

// abort asks the target to abort a canceled command. Nobody waits for the answer, but over
// iSER the answer ends the use of memory, so the request waits until there is room.
func (c *sessionConn) abort(h *pdu.Header) {
	if len(c.aborts) < mostAborts {
		c.aborts = append(c.aborts, *h)
	}
	c.sendAborts()
}

// sendAborts sends as many of the requests as there is room for. The end of another request
// makes the session's goroutine come back for the rest.
func (c *sessionConn) sendAborts() {
	for len(c.aborts) != 0 {
		c.owing.Store(true) // before the look at the room
		select {
		case c.manage.room <- struct{}{}:
			c.manage.post(flow.Command{Request: &c.aborts[0]}) // if the connection has ended, the caller will see it
			c.aborts = c.aborts[1:]
		default:
			return
		}
	}
	c.aborts = nil
	c.owing.Store(false)
}
