package clock

import (
	"testing"
	"time"
)

func TestDeadlines(t *testing.T) {
	for _, x := range []struct{ a, b, want Instant }{{Never, Never, Never}, {Never, 5, 5}, {5, Never, 5}, {5, 6, 5}, {6, 5, 5}} {
		if got := Sooner(x.a, x.b); got != x.want {
			t.Errorf("Sooner(%d, %d) is %d, want %d", x.a, x.b, got, x.want)
		}
	}
	if Never.Due(1<<62) || Instant(6).Due(5) || !Instant(5).Due(5) || !Instant(4).Due(5) {
		t.Error("Due")
	}
	if i := Instant(7).Add(time.Second); i.Sub(7) != time.Second || !Instant(7).Before(i) || i.Before(i) {
		t.Error("arithmetic")
	}
}

func TestNowRises(t *testing.T) {
	a := Now()
	if b := Now(); a <= Never || b < a {
		t.Errorf("%d then %d", a, b)
	}
}
