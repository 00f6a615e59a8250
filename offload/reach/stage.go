package reach

// Stage is a copy of consecutive octets of memory that is not mapped. The next octets of a
// message are read ahead into it. Only one goroutine at a time may use a Stage.
type Stage struct {
	octets []byte
	space  *Space // nil: the Stage is empty
	addr   uint64 // of octets[0]
	n      int    // octets that are valid
	reads  int    // since Drop
	joined []byte // what Keep has copied
}

// leastAhead is how many octets Fetch reads at first if it is not sure that they are wanted.
const leastAhead = 4096

// Fetch returns a copy of mem, which is memory that is not mapped and at most 65536 octets.
// rest octets in a row from the first octet of mem on belong to the message: Fetch reads up
// to 65536 of them ahead. Unless sure is set, the caller may drop the Stage soon, so that
// Fetch reads few ahead at first, and twice as many each time. The octets are valid until the
// next Fetch. nil means that the client has no such memory any more.
func (s *Stage) Fetch(mem []byte, rest uint64, sure bool) []byte {
	p, ok := Find(mem)
	if !ok {
		panic("reach: octets of memory that is no reservation")
	}
	n := len(mem)
	if s.space != p.space || p.addr-s.addr > uint64(s.n) || uint64(s.n)-(p.addr-s.addr) < uint64(n) {
		if !sure {
			rest = min(rest, leastAhead<<min(s.reads, 4))
		}
		want := max(uint64(n), min(rest, p.rest, stageLen))
		s.space, s.addr = p.space, p.addr
		s.n = p.space.read(p.addr, s.octets[:want])
		if s.reads++; s.n < n {
			s.Drop()
			return nil
		}
	}
	from := int(p.addr - s.addr)
	return s.octets[from:][:n:n]
}

// Keep copies octets of Fetch, so that they are valid until Forget.
func (s *Stage) Keep(octets []byte) []byte {
	if s.joined == nil {
		s.joined = make([]byte, 0, stageLen)
	}
	at := len(s.joined)
	s.joined = append(s.joined, octets...)
	return s.joined[at:]
}

// Forget forgets what Keep has copied.
func (s *Stage) Forget() { s.joined = s.joined[:0] }

// Drop empties the Stage.
func (s *Stage) Drop() { s.space, s.n, s.reads = nil, 0, 0 }
