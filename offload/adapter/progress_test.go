package adapter

import "testing"

func TestProgressOfEveryConfig(t *testing.T) {
	many := 1 << 20 // no machine has as many cores
	for _, c := range []struct {
		cfg    Config
		queues int
		want   Progress
	}{
		{Config{}, 1, ProgressInline},
		{Config{}, many, ProgressInline},
		{Config{Spin: 1}, 0, ProgressEngine},
		{Config{Spin: 1}, many, ProgressInline},
		{Config{Progress: ProgressEngine}, many, ProgressEngine},
		{Config{Progress: ProgressEngine, Spin: 1}, many, ProgressEngine},
		{Config{Progress: ProgressInline, Spin: 1}, 0, ProgressInline},
	} {
		if got := c.cfg.chooseProgress(c.queues); got != c.want {
			t.Errorf("%+v with %d queues: %v, want %v", c.cfg, c.queues, got, c.want)
		}
	}
}
