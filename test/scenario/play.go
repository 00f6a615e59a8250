package scenario

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Variable is an environment variable that replaces the small number of scenarios that
// a test plays by default. Its value is a number, 10000, or the first and last seed,
// 10001-20000.
const Variable = "STAG_SCENARIOS"

// Play plays one scenario for each seed, two at a time. The seeds are those of
// Variable, or 1 to few. If seed is not 0, Play plays only that seed. For a scenario
// that fails or panics, Play prints the command that repeats the scenario.
func Play(t *testing.T, seed uint64, few int, play func(seed uint64) error) {
	t.Helper()
	first, last := uint64(1), uint64(few)
	if v := os.Getenv(Variable); v != "" {
		var err error
		if first, last, err = seeds(v); err != nil {
			t.Fatal(err)
		}
	}
	if seed != 0 {
		first, last = seed, seed
	}
	turn := make(chan uint64)
	var wg sync.WaitGroup
	for range min(2, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for s := range turn {
				if err := guarded(s, play); err != nil {
					t.Errorf("go test -run '^%s$' -seed %d: %v", t.Name(), s, err)
				}
			}
		})
	}
	for s := first; s <= last && !t.Failed(); s++ {
		turn <- s
	}
	close(turn)
	wg.Wait()
}

// seeds parses Variable's value: the number of seeds from 1 on, or the first and the
// last seed.
func seeds(value string) (first, last uint64, err error) {
	from, to, isRange := strings.Cut(value, "-")
	if !isRange {
		from, to = "1", value
	}
	first, bad := strconv.ParseUint(from, 10, 64)
	last, worse := strconv.ParseUint(to, 10, 64)
	if bad != nil || worse != nil || first < 1 || last < first {
		return 0, 0, fmt.Errorf("%s=%s: give a number of scenarios, or the first and the last seed, such as 10001-20000", Variable, value)
	}
	return first, last, nil
}

// guarded returns a panic of play as an error, so that Play can print the seed.
func guarded(seed uint64, play func(uint64) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			stack := make([]byte, 8<<10)
			err = fmt.Errorf("panic: %v\n%s", p, stack[:runtime.Stack(stack, false)])
		}
	}()
	return play(seed)
}
