package measure

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/offload/port"
)

// bouncer is a player over stag's AF_XDP rings without a TCP. The other players need
// more time, and the difference is the cost of the protocols. A bouncer answers a frame
// with a new frame, which carries the number of the message at the same place as a raw
// stream.
type bouncer struct {
	looker
	end   *ownEnd
	frame [1]port.Frame
	seen  uint64 // number of the last message that has arrived
}

// rawVolley makes bouncers. Their frames have as many octets of headers and payload as
// the messages of the other players.
func rawVolley(_ context.Context, st *stage, size int) (*volley, error) {
	if size+rawRoom > maxRawMTU {
		return nil, fmt.Errorf("raw frames carry %d octets at most, not %d", maxRawMTU-rawRoom, size)
	}
	st.octets = size
	v := new(volley)
	for _, side := range sides {
		b := &bouncer{looker: looker{v: v}}
		err := st.pair.Do(side, func() (err error) {
			b.end, err = openQueue(st, side, 0)
			return err
		})
		if err == nil {
			v.after = append(v.after, b.end.close)
			err = st.redirect.to(side, b.end.q.FD())
		}
		if err != nil {
			for _, f := range v.after {
				err = errors.Join(err, f())
			}
			return nil, fmt.Errorf("side %v: %w", side, err)
		}
		v.players[side] = b
	}
	return v, nil
}

func (b *bouncer) hit(n uint64) error {
	q := b.end.q
	for q.Take(b.frame[:]) == 0 { // wait until completions return a frame
		if err := b.inVain(); err != nil {
			return err
		}
	}
	binary.BigEndian.PutUint64(b.end.shape(&b.frame[0])[rawNumber:], n)
	if q.Send(b.frame[:]) != 1 {
		return errors.New("the transmit ring is full")
	}
	q.Free(b.frame[:])
	return q.Flush()
}

func (b *bouncer) await(n uint64) error {
	q := b.end.q
	for b.seen < n {
		if q.Receive(b.frame[:]) == 0 {
			if err := b.inVain(); err != nil {
				return err
			}
			continue
		}
		f := b.frame[0]
		if f.Len != b.end.length {
			return fmt.Errorf("a frame of %d octets has come, not of %d", f.Len, b.end.length)
		}
		b.seen = binary.BigEndian.Uint64(q.Bytes(f)[rawNumber:])
		q.Recycle(b.frame[:])
	}
	b.came()
	return nil
}
