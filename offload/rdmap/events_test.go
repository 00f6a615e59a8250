package rdmap

import (
	"testing"

	"github.com/stag-rdma/stag/offload/work"
)

// Events are solicited receives and all failures.
func TestEvents(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(s *script)
		want int
	}{
		{"Send", func(s *script) { s.gets(send(1, nil)) }, 0},
		{"signalled Send of our own", func(s *script) { s.posts(work.SendWR{Op: work.WRSend, Flags: work.Signaled | work.Solicited}) }, 0},
		{"solicited Send", func(s *script) { s.gets(untagged(5, true, 0, 0, 1, 0, nil)) }, 1},
		{"flush", func(s *script) { s.finishes() }, 1},
		{"failed Send of our own", func(s *script) { s.posts(work.SendWR{Op: work.WRSend, SGL: []work.SGE{{Length: 1}}}) }, 1},
	} {
		s := open(t)
		fired := 0
		s.cq.News.Fire = func() { fired++ }
		s.receives(work.RecvWR{ID: 1})
		s.cq.Arm(true)
		c.do(s)
		s.board.Deliver()
		if fired != c.want {
			t.Errorf("%s: told %d times, want %d", c.name, fired, c.want)
		}
	}
}
