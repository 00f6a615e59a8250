package rdmap

import (
	"fmt"
	"testing"

	"github.com/stag-rdma/stag/offload/work"
)

// Memory that a check returns in pieces is read and written like contiguous memory, for
// every kind of access, in the region heap and elsewhere.
func TestMemoryInPieces(t *testing.T) {
	for where, memory := range map[string]change{"heap": inHeap, "other": func(*setup) {}} {
		for _, piece := range []int{0, 1, 7, 600} {
			t.Run(fmt.Sprintf("%s, pieces of %d", where, piece), func(t *testing.T) {
				s := open(t, memory, inPieces(piece))
				s.posts(
					work.SendWR{ID: 1, Op: work.WRSend, Flags: work.Signaled, SGL: []work.SGE{s.at(0, 10), s.at(100, 0), s.at(50, 900)}},
					work.SendWR{ID: 2, Op: work.WRWrite, Flags: work.Signaled, RKey: 5, SGL: []work.SGE{s.at(3, 2000)}},
				)
				first := send(1, append(pattern(0, 10), pattern(50, 900)...))
				s.sends(first, tagged(0, false, 5, 0, pattern(3, 1440)), tagged(0, true, 5, 1440, pattern(3+1440, 2000-1440)))
				s.completes(ok(1, work.WCSend), ok(2, work.WCWrite))

				s.gets(readRequest(1, 9, 8, 1000, uint32(s.all), regionStart+20))
				s.sends(tagged(2, true, 9, 8, pattern(20, 1000)))

				s.receives(work.RecvWR{ID: 3, SGL: []work.SGE{s.at(5000, 3), s.at(6000, 1300)}})
				s.gets(send(1, pattern(1, 1200)), write(uint32(s.all), regionStart+9000, pattern(2, 1300)))
				s.completes(received(3, 1200))
				s.posts(s.reads(4, 12000, 1300))
				s.st.out = nil
				s.gets(tagged(2, true, uint32(s.all), regionStart+12000, pattern(3, 1300)))
				s.completes(read(4, 1300))
				s.untouched(s.mem, 5000, pattern(1, 3), 6000, pattern(4, 1197), 9000, pattern(2, 1300), 12000, pattern(3, 1300))
			})
		}
	}
}
