package faults

import "fmt"

// Plan is the faults for the TCP segments of one direction (struct plan). The zero Plan has no faults.
type Plan struct {
	Drop  Rate // lost
	Spoil Rate // one bit of the packet is inverted, which a checksum detects
	Swap  Rate // two words of the payload change places, which TCP's checksum does not detect
	Twice Rate // delivered twice in a row
	Late  Rate // delivered up to MostLate late, after later segments

	Swaps   uint32 // at most this many segments are swapped
	FINs    uint32 // this many FINs are lost, the first ones
	Largest uint32 // octets; larger IP packets are dropped. 0: none
}

// planned is a Plan as the program reads it.
type planned struct {
	Plan
	Routed uint32 // the kernel forwards packets, not the program
}

// Rate is a share of all segments, in 65536ths.
type Rate uint32

// Percent returns p percent as a Rate.
func Percent(p float64) Rate { return Rate(p / 100 * 65536) }

// Tally counts what has happened in one direction (struct tally).
type Tally struct {
	State    uint64 // of the random generator, never 0
	Segments uint64 // that arrived
	Dropped  uint64
	Spoilt   uint64
	Swapped  uint64
	Twice    uint64
	Late     uint64
	FINs     uint64 // lost because of Plan.FINs
	Vanished uint64 // dropped because of Plan.Largest
}

func (t Tally) String() string {
	return fmt.Sprintf("%d segments: %d dropped, %d spoilt, %d swapped, %d twice, %d late, %d FINs lost, %d too large",
		t.Segments, t.Dropped, t.Spoilt, t.Swapped, t.Twice, t.Late, t.FINs, t.Vanished)
}
