package need

import (
	"errors"
	"testing"
)

type tests int

func (t tests) Run() int { return int(t) }

func TestOnStage(t *testing.T) {
	for _, x := range []struct {
		setUp     error
		run, want int
	}{{nil, 0, 0}, {nil, 3, 3}, {errors.New("no stage (of a test)"), 0, 1}} {
		torn := 0
		code := onStage(tests(x.run), func() error { return x.setUp }, func() { torn++ })
		if code != x.want || torn != 1 {
			t.Errorf("%v, tests %d: code %d, torn down %d times", x.setUp, x.run, code, torn)
		}
	}
}
