package afxdp

import (
	"errors"

	"golang.org/x/sys/unix"
)

// Pieces is a queue whose packets may consist of several descriptors (XDP_USE_SG, Linux 6.6),
// in copy mode. It only sends. It is for measurements: see docs/trials.md.
type Pieces struct{ *Queue }

// OpenPieces binds the queue.
func OpenPieces(c Config, r *Region) (Pieces, error) {
	q, err := Prepare(c, r)
	if err != nil {
		return Pieces{}, err
	}
	sa := &unix.SockaddrXDP{Flags: unix.XDP_COPY | unix.XDP_USE_SG, Ifindex: uint32(q.cfg.Ifindex), QueueID: uint32(q.cfg.Queue)}
	if err := errors.Join(unix.Bind(q.fd, sa), q.readMode(), q.setBudget(), q.setBuffer()); err != nil {
		return Pieces{}, errors.Join(err, q.Close())
	}
	return Pieces{q}, nil
}

// Piece returns n octets at offset at of chunk i, and their descriptor. More says that more
// pieces of the packet follow.
func (p Pieces) Piece(i, at, n uint32, more bool) (mem []byte, d unix.XDPDesc) {
	addr := p.memory(i) + uint64(at)
	d = unix.XDPDesc{Addr: addr - p.base, Len: n}
	if more {
		d.Options = unix.XDP_PKT_CONTD
	}
	return p.mem[addr : addr+uint64(n)], d
}

// Put queues a descriptor.
func (p Pieces) Put(d unix.XDPDesc) bool { return p.tx.Put(d) }

// Run makes the kernel send all that was put, and returns how many descriptors have completed.
func (p Pieces) Run() (done int, err error) {
	p.tx.Publish()
	for left := -1; p.tx.Pending() != 0 && left != p.tx.Pending(); {
		left = p.tx.Pending()
		if err = p.kick(sendCopy); err != nil {
			return done, err
		}
		done += p.completed()
	}
	return done + p.completed(), nil
}

func (p Pieces) completed() (n int) {
	for {
		if _, ok := p.comp.Next(); !ok {
			p.comp.Release()
			return n
		}
		n++
	}
}

// SetLevel sets how many chunks the fill ring holds.
func (q *Queue) SetLevel(n int) { q.level = n }
