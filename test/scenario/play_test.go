package scenario

import "testing"

func TestSeeds(t *testing.T) {
	for _, x := range []struct {
		value       string
		first, last uint64
	}{{"1", 1, 1}, {"10000", 1, 10000}, {"10001-20000", 10001, 20000}, {"7-7", 7, 7}} {
		if first, last, err := seeds(x.value); err != nil || first != x.first || last != x.last {
			t.Errorf("%q: %d to %d, %v", x.value, first, last, err)
		}
	}
	for _, value := range []string{"0", "-1", "5-4", "0-5", "a", "1-", "-", "1-2-3", "1.5"} {
		if first, last, err := seeds(value); err == nil {
			t.Errorf("%q was taken: %d to %d", value, first, last)
		}
	}
}
