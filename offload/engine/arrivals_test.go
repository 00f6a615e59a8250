package engine

import "testing"

// TestArrivals: the numbers are those of about the last 1024 segments, and an engine says
// once for each window that a flow is astray.
func TestArrivals(t *testing.T) {
	var (
		a      arrivals
		astray int
	)
	arrive := func(n int, foreign bool) {
		for range n {
			a.segments++
			if foreign && a.foreign(3) {
				astray++
			}
		}
	}
	check := func(segments, foreign, times int) {
		t.Helper()
		n := a.last()
		if n.Segments != segments || n.Foreign < foreign-2 || n.Foreign > foreign+2 || n.Foreign > n.Segments || astray != times {
			t.Errorf("%+v, astray %d times; want %d segments, %d foreign, %d times", n, astray, segments, foreign, times)
		}
	}
	check(0, 0, 0)
	arrive(10, false)
	check(10, 0, 0)
	arrive(10, true)
	check(20, 10, 0)
	if a.last().Lane != 3 {
		t.Error("the last foreign segment has another lane")
	}
	arrive(1023-20, true)
	check(1023, 1013, 1)
	arrive(512, false)
	check(1024, 506, 1)
	arrive(512, true)
	check(1024, 512, 1)
	arrive(3*1024, true)
	check(1024, 1024, 4)
	arrive(5*1024, false) // no foreign segment turns the windows
	check(1024, 0, 4)
	arrive(895, true)
	arrive(129, false)
	check(1024, 895, 4)
}
