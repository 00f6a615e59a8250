package memgroup

import (
	"slices"
	"testing"

	"github.com/stag-rdma/stag/tpt"
)

// A list of any length arrives as it was.
func TestList(t *testing.T) {
	for _, n := range []int{0, 1, maxItems - 1, maxItems, maxItems + 1, 3*maxItems + 7} {
		var items []Item
		for i := range n {
			item := Item{STag: tpt.STag(i), PD: pool, Rights: rights, Start: uint64(i) << 40, Offset: uint64(i), Length: uint64(i + 1)}
			if i%5 == 4 {
				item.Why, item.Offset = NotInHeap, 0
			}
			items = append(items, item)
		}
		var l list
		for i, p := range packets(9, 1<<20, items) {
			if l.whole {
				t.Fatalf("%d items: packet %d follows the last one", n, i)
			}
			if err := l.add(p, uint32(n)); err != nil {
				t.Fatalf("%d items: %v", n, err)
			}
		}
		if !l.whole || l.owner != 9 || l.heap != 1<<20 || !slices.Equal(l.items, items) {
			t.Errorf("%d items: whole %v, %d arrived", n, l.whole, len(l.items))
		}
		if n > 0 {
			if err := new(list).add(packets(9, 1<<20, items)[0], uint32(n-1)); err == nil {
				t.Errorf("%d items, and %d allowed", n, n-1)
			}
		}
	}
}

// FuzzList: whatever an owner sends, the list has only octets within the file.
func FuzzList(f *testing.F) {
	one := []Item{{STag: 1, PD: pool, Offset: 4096, Length: 4096}}
	f.Add(packets(1, 1<<20, one)[0], packets(1, 1<<20, nil)[0])
	many := packets(1, 1<<20, slices.Repeat(one, maxItems+1))
	f.Add(many[0], many[1])
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var l list
		for _, p := range [][]byte{a, b} {
			if l.add(p, 2000) != nil {
				return
			}
		}
		if len(l.items) > 2000 {
			t.Fatalf("%d items", len(l.items))
		}
		for _, i := range l.items {
			if i.Why == Shareable && (i.Length == 0 || i.Offset+i.Length > l.heap || i.Offset+i.Length < i.Offset) || i.PD&tpt.SharedPD == 0 || i.Why >= whys {
				t.Fatalf("%+v of a heap of %d", i, l.heap)
			}
		}
	})
}
