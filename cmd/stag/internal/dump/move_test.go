package dump

import (
	"reflect"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/report"
)

// TestMarks: the first packet of a connection after each of its moves has the mark, at the
// devices of the move only.
func TestMarks(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(1700000000, 0).Add(time.Duration(ms) * time.Millisecond) }
	s := &source{device: "eth1", moves: map[uint32][]report.Move{}}
	s.noteMove(report.Move{At: at(5), Flow: 7, From: "eth1", To: "eth2", Cause: "drain", Frozen: 412})
	s.noteMove(report.Move{At: at(6), Flow: 7, From: "eth2", To: "eth3", Cause: "route"})
	s.noteMove(report.Move{At: at(7), Flow: 7, From: "eth3", To: "eth1", Cause: "carrier\x1b[2J", Frozen: 2500})
	s.noteMove(report.Move{At: at(1), Flow: 9, From: "eth2", To: "eth1", Cause: "lost"})
	for _, c := range []struct {
		flow uint32
		ms   int
		want []string
	}{
		{7, 4, nil},
		{8, 8, nil},
		{7, 5, []string{"moved from eth1 to eth2 by drain, frozen for 412µs"}},
		{7, 6, nil},
		{7, 8, []string{`moved from eth3 to eth1 by carrier\x1b[2J, frozen for 2.5ms`}},
		{7, 9, nil},
		{9, 9, []string{"moved from eth2 to eth1 by lost, frozen for 0s"}},
	} {
		if got := s.marks(report.Packet{Flow: c.flow, At: at(c.ms)}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("flow %d at %d ms: %q, want %q", c.flow, c.ms, got, c.want)
		}
	}
	if len(s.moves) != 0 || s.unmarked != 0 {
		t.Errorf("%d left, %v", s.unmarked, s.moves)
	}
	for i := range maxMoves + 1 {
		s.noteMove(report.Move{Flow: uint32(i), To: "eth1"})
	}
	if len(s.moves) > maxMoves {
		t.Errorf("%d are remembered", len(s.moves))
	}
}
