package daemon

import (
	"time"

	"golang.org/x/sys/unix"
)

// dyingLimit is how long a request waits for the end of other clients.
const dyingLimit = 2 * time.Second

// awaitDying waits for the end of the clients whose processes or connections have ended, and
// reports whether there was one. A program that is started again at once can then have the
// port of its predecessor.
func (d *Daemon) awaitDying() (some bool) {
	limit := time.After(dyingLimit)
	for _, c := range d.all() {
		if !c.over() {
			continue
		}
		select {
		case <-c.ended:
			some = true
		case <-limit:
			return false
		}
	}
	return some
}

// over reports whether the process of the client, or its connection, has ended.
func (c *client) over() bool {
	conn, err := c.conn.SyscallConn()
	if err != nil || c.life.Err() != nil {
		return true
	}
	process, err := c.peer.process.SyscallConn()
	return err != nil || hungUp(conn, unix.POLLRDHUP) || hungUp(process, unix.POLLIN)
}

// hungUp reports whether a descriptor has the event, or is closed.
func hungUp(raw interface{ Control(func(uintptr)) error }, event int16) (yes bool) {
	err := raw.Control(func(fd uintptr) {
		set := []unix.PollFd{{Fd: int32(fd), Events: event}}
		n, err := unix.Poll(set, 0)
		yes = err == nil && n > 0
	})
	return yes || err != nil
}
