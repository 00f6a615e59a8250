package memgroup

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/tpt"
)

// patience is how long a message to or from another member may take.
const patience = time.Second

// mostCallers limits the connections to an owner: one for each other member, and one more
// while a member that has ended is replaced.
const mostCallers = 2 * Ranges

// door is the socket at which a member answers.
type door struct {
	listener *net.UnixListener
	answer   func(*net.UnixConn) error
	log      *slog.Logger
	running  sync.WaitGroup

	mu      sync.Mutex
	callers map[*net.UnixConn]struct{}
	shut    bool
}

// open makes the socket at path, in place of one whose process has ended. The caller must
// hold the lock of the member.
func open(path string, answer func(*net.UnixConn) error, log *slog.Logger) (*door, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	d := &door{listener: l, answer: answer, log: log, callers: map[*net.UnixConn]struct{}{}}
	d.running.Go(d.accept)
	return d, nil
}

func (d *door) accept() {
	for {
		c, err := d.listener.AcceptUnix()
		if err != nil {
			return
		}
		if !d.enter(c) {
			c.Close()
			continue
		}
		d.running.Go(func() {
			defer d.leave(c)
			if err := d.serve(c); err != nil {
				d.log.Warn("a process that asked for the STags of this one got none", "err", err)
			}
		})
	}
}

func (d *door) enter(c *net.UnixConn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.shut || len(d.callers) >= mostCallers {
		return false
	}
	d.callers[c] = struct{}{}
	return true
}

func (d *door) leave(c *net.UnixConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.callers, c)
	c.Close()
}

// serve answers one caller. The connection then stays open, so that the caller notices the
// end of this process.
func (d *door) serve(c *net.UnixConn) error {
	cred, err := control.PeerOf(c)
	if err != nil {
		return err
	}
	if !control.Trusted(int(cred.Uid)) {
		return fmt.Errorf("pid %d is of user %d: only user %d and root get them", cred.Pid, cred.Uid, os.Geteuid())
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	question := make([]byte, headLen+1)
	n, err := c.Read(question)
	if err != nil {
		return nil // the caller has gone
	}
	if _, _, err := parseHead(question[:n], kindQuestion); err != nil {
		return fmt.Errorf("pid %d: %w", cred.Pid, err)
	}
	if err := d.answer(c); err != nil {
		return fmt.Errorf("pid %d: %w", cred.Pid, err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return err
	}
	c.Read(question) // returns when the caller closes, or when close does
	return nil
}

func (d *door) close() error {
	err := d.listener.Close()
	d.mu.Lock()
	d.shut = true
	for c := range d.callers {
		c.Close()
	}
	d.mu.Unlock()
	d.running.Wait()
	return err
}

// answer sends the list of this member, and the file of its heap.
func (g *Group) answer(c *net.UnixConn) error {
	files := unix.UnixRights(int(g.heap.File().Fd()))
	for _, packet := range packets(g.seat.number, g.heap.Size(), g.items()) {
		if _, _, err := c.WriteMsgUnix(packet, files, nil); err != nil {
			return err
		}
		files = nil
	}
	g.counters.answered.Add(1)
	return nil
}

// items returns the valid regions and windows of this process in protection domains of the
// group.
func (g *Group) items() (all []Item) {
	n := g.table.Stats()
	for i := n.First + 1; i <= n.First+n.Entries; i++ {
		e, ok := g.table.Entry(i)
		if ok && e.Valid && e.PD&tpt.SharedPD != 0 && e.Kind != tpt.KindISCSI {
			all = append(all, itemOf(&e))
		}
	}
	return all
}

func itemOf(e *tpt.Info) Item {
	i := Item{STag: e.STag, PD: e.PD, Rights: e.Rights, Start: e.Start, Length: e.Length}
	switch {
	case e.QP != 0:
		i.Why = OfQueuePair
	case e.OneTouch:
		i.Why = OfOneTouch
	case e.External:
		i.Why = NotInHeap
	case e.Scattered:
		i.Why = PageList
	default:
		i.Offset = e.Offset
	}
	return i
}
