package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// slowest prints which tests have taken the most time: those that a shorter run must
// make shorter. It leaves out what took less than a second.
func (p *printer) slowest(n int) {
	tests := slices.DeleteFunc(slices.Collect(maps.Keys(p.took)), func(t test) bool {
		return t.name == "" || p.took[t] < 1
	})
	slices.SortFunc(tests, func(a, b test) int {
		return cmp.Or(cmp.Compare(p.took[b], p.took[a]), cmp.Compare(a.String(), b.String()))
	})
	for _, t := range tests[:min(n, len(tests))] {
		fmt.Fprintf(p.w, "ran: %4.0f s %v\n", p.took[t], t)
	}
}
