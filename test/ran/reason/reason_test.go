package reason

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestOf(t *testing.T) {
	stacks := "    a_test.go:7: the rows end: not within 2m0s\n" + strings.Repeat("        goroutine\n", 500) + "        last\n"
	for name, c := range map[string]struct {
		output string
		want   []string
		line   string
	}{
		"nothing":   {"", nil, "it does not say why"},
		"no reason": {"=== RUN   TestA\n--- FAIL: TestA (0.00s)\n", nil, "it does not say why"},
		"a message": {"=== RUN   TestA\n    a_test.go:3: want 1\n        and 2\n\n    --- FAIL: TestA/x (0.00s)\n",
			[]string{"    a_test.go:3: want 1", "        and 2"}, "a_test.go:3: want 1"},
		"stacks, and more": {"    a_test.go:3: before\n" + stacks + "    a_test.go:9: after\n",
			[]string{"    a_test.go:3: before", "    a_test.go:7: the rows end: not within 2m0s", "        goroutine", "        goroutine", "        goroutine",
				"        ... 496 lines", "        goroutine", "        last", "    a_test.go:9: after"}, "a_test.go:9: after"},
		"a panic":      {"    a_test.go:3: before\npanic: boo\n\ngoroutine 1:\n", []string{"    a_test.go:3: before", "panic: boo", "goroutine 1:"}, "panic: boo"},
		"a long panic": {"panic: boo\n" + strings.Repeat("frame\n", 50), append([]string{"panic: boo"}, slices.Repeat([]string{"frame"}, 14)...), "panic: boo"},
	} {
		if got := Of(c.output); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if got := Line(c.output); got != c.line {
			t.Errorf("%s: %q, want %q", name, got, c.line)
		}
	}
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, "    a_test.go:3: %d\n", i)
	}
	if got := Of(many.String()); len(got) != 15 || got[14] != "    a_test.go:3: 99" {
		t.Errorf("of 100 messages: %q", got)
	}
}
