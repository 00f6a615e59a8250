package dump

import (
	"fmt"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/report"
)

// maxMoves is how many moves a source remembers until a packet of their connection comes.
// An engine that wants to do harm cannot fill the memory.
const maxMoves = 1 << 14

// noteMove remembers a move from or to the device of the source.
func (s *source) noteMove(m report.Move) {
	if m.From != s.device && m.To != s.device {
		return
	}
	if s.unmarked >= maxMoves {
		clear(s.moves)
		s.unmarked = 0
	}
	s.moves[m.Flow] = append(s.moves[m.Flow], m)
	s.unmarked++
}

// marks returns the words about the moves of the packet's connection that no packet has
// had yet. The first packet after a move has them.
func (s *source) marks(p report.Packet) (words []string) {
	pending := s.moves[p.Flow]
	if len(pending) == 0 {
		return nil
	}
	done := 0
	for _, m := range pending {
		if p.At.Before(m.At) {
			break
		}
		words = append(words, moveWords(m))
		done++
	}
	s.unmarked -= done
	if done == len(pending) {
		delete(s.moves, p.Flow)
	} else {
		s.moves[p.Flow] = pending[done:]
	}
	return words
}

func moveWords(m report.Move) string {
	frozen := time.Duration(m.Frozen) * time.Microsecond
	return engines.Clean(fmt.Sprintf("moved from %s to %s by %s, frozen for %v", m.From, m.To, m.Cause, frozen))
}
