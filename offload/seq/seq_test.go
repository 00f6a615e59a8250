package seq

import (
	"testing"

	"pgregory.net/rapid"
)

func TestOrder(t *testing.T) { // RFC 9293 §3.4
	rapid.Check(t, func(t *rapid.T) {
		a := Num(rapid.Uint32().Draw(t, "a"))
		n := Len(rapid.Uint32Range(1, 1<<31-1).Draw(t, "n"))
		b := a.Add(n)
		if !a.Before(b) || b.Before(a) || !b.After(a) || a.After(b) ||
			!a.AtOrBefore(b) || b.AtOrBefore(a) || !b.AtOrAfter(a) || a.AtOrAfter(b) {
			t.Fatalf("%d is not before %d", a, b)
		}
		if b.Back(n) != a || a.Until(b) != n || Later(a, b) != b || Later(b, a) != b || Earlier(a, b) != a || Earlier(b, a) != a {
			t.Fatalf("distance of %d and %d", a, b)
		}
		if !a.Within(a, n) || b.Within(a, n) || !b.Back(1).Within(a, n) || a.Back(1).Within(a, n) || a.Within(a, 0) {
			t.Fatalf("range [%d, %d)", a, b)
		}
		if a.Before(a) || a.After(a) || !a.AtOrBefore(a) || !a.AtOrAfter(a) {
			t.Fatalf("%d and itself", a)
		}
	})
}
