package faults

import "fmt"

// Plan is what happens to the TCP segments of one direction (struct plan). The
// zero Plan is a good cable.
type Plan struct {
	Drop  Rate // lost
	Spoil Rate // one bit of the packet is wrong, which a checksum shows
	Swap  Rate // two words of the payload change places, which TCP's does not show
	Twice Rate // delivered twice, one right behind the other
	Late  Rate // delivered after up to MostLate, behind what followed

	Swaps   uint32 // at most so many segments are swapped
	FINs    uint32 // the first so many FINs are lost
	Largest uint32 // octets; larger IP packets vanish. 0: none does
}

// planned is a Plan as the program reads it.
type planned struct {
	Plan
	Routed uint32 // the kernel sends packets on, not the program
}

// Rate is a part of all segments, in 65536ths.
type Rate uint32

// Percent is a Rate.
func Percent(p float64) Rate { return Rate(p / 100 * 65536) }

// Tally is what has happened in one direction (struct tally).
type Tally struct {
	State    uint64 // of the generator of luck, never 0
	Segments uint64 // that came
	Dropped  uint64
	Spoilt   uint64
	Swapped  uint64
	Twice    uint64
	Late     uint64
	FINs     uint64 // lost because of Plan.FINs
	Vanished uint64 // because of Plan.Largest
}

func (t Tally) String() string {
	return fmt.Sprintf("%d segments: %d dropped, %d spoilt, %d swapped, %d twice, %d late, %d FINs lost, %d too large",
		t.Segments, t.Dropped, t.Spoilt, t.Swapped, t.Twice, t.Late, t.FINs, t.Vanished)
}
