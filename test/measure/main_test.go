package main

import "testing"

func TestFewest(t *testing.T) {
	for _, c := range []struct {
		name string
		uses [][2]string
		want int
	}{
		{"a chain", [][2]string{{"a", "b"}, {"b", "c"}, {"a", "c"}}, 0},
		{"a chain drawn upside down", [][2]string{{"c", "b"}, {"b", "a"}}, 0},
		{"two that need each other", [][2]string{{"a", "b"}, {"b", "a"}, {"a", "c"}}, 1},
		{"a circle", [][2]string{{"a", "b"}, {"b", "c"}, {"c", "a"}}, 1},
		{"two circles", [][2]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "d"}, {"d", "b"}}, 2},
	} {
		uses, names := make(map[[2]string]bool), make(map[string]bool)
		for _, u := range c.uses {
			uses[u], names[u[0]], names[u[1]] = true, true, true
		}
		var order []string
		for _, n := range []string{"a", "b", "c", "d"} {
			if names[n] {
				order = append(order, n)
			}
		}
		if got := fewest(order, uses); got != c.want {
			t.Errorf("%s: %d references point up, want %d", c.name, got, c.want)
		}
	}
}
