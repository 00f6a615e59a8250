package scenario

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
)

// Variable is the environment variable that says how many scenarios each test
// of scenarios plays instead of its own small number.
const Variable = "STAG_SCENARIOS"

// Play plays the scenarios of the seeds from 1 on, two at a time: as many as
// Variable says, or few. With seed not 0 it plays that one alone. A scenario
// that fails or panics is named by the line that plays it again.
func Play(t *testing.T, seed uint64, few int, play func(seed uint64) error) {
	t.Helper()
	many := few
	if v := os.Getenv(Variable); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			t.Fatalf("%s=%s: give a number of scenarios, 1 or more", Variable, v)
		}
		many = n
	}
	first, last := uint64(1), uint64(many)
	if seed != 0 {
		first, last = seed, seed
	}
	seeds := make(chan uint64)
	var wg sync.WaitGroup
	for range min(2, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for s := range seeds {
				if err := guarded(s, play); err != nil {
					t.Errorf("go test -run '^%s$' -seed %d: %v", t.Name(), s, err)
				}
			}
		})
	}
	for s := first; s <= last && !t.Failed(); s++ {
		seeds <- s
	}
	close(seeds)
	wg.Wait()
}

// guarded makes an error of a panic: the seed must not get lost.
func guarded(seed uint64, play func(uint64) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			stack := make([]byte, 8<<10)
			err = fmt.Errorf("panic: %v\n%s", p, stack[:runtime.Stack(stack, false)])
		}
	}()
	return play(seed)
}
