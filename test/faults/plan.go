package faults

import "fmt"

// Plan holds the faults for the TCP segments of one direction (struct plan). The zero
// Plan has no faults.
type Plan struct {
	Drop  Rate // share of segments that are lost
	Spoil Rate // share of segments in which one bit is inverted; a checksum detects this
	Swap  Rate // share of segments in which two words of the payload change places; TCP's checksum does not detect this
	Twice Rate // share of segments that are delivered twice in a row
	Late  Rate // share of segments that are delivered up to MostLate late, after later segments

	Swaps   uint32 // largest number of segments that Swap changes
	FINs    uint32 // number of FINs to drop, from the first on
	Largest uint32 // length of the longest IP packet that is delivered, in octets; 0 means no limit
}

// planned is a Plan in the layout that the program reads.
type planned struct {
	Plan
	Routed uint32 // not 0 if the kernel forwards the packets, and not the program
}

// Rate is a share of all segments, in units of 1/65536.
type Rate uint32

// Percent returns the Rate of p percent of all segments.
func Percent(p float64) Rate { return Rate(p / 100 * 65536) }

// Tally counts the events of one direction (struct tally).
type Tally struct {
	State    uint64 // state of the random generator, never 0
	Segments uint64 // number of segments that arrived
	Dropped  uint64
	Spoilt   uint64
	Swapped  uint64
	Twice    uint64
	Late     uint64
	FINs     uint64 // number of FINs dropped because of Plan.FINs
	Vanished uint64 // number of packets dropped because of Plan.Largest
}

func (t Tally) String() string {
	return fmt.Sprintf("%d segments: %d dropped, %d spoilt, %d swapped, %d twice, %d late, %d FINs lost, %d too large",
		t.Segments, t.Dropped, t.Spoilt, t.Swapped, t.Twice, t.Late, t.FINs, t.Vanished)
}
