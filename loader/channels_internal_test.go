package loader

import (
	"errors"
	"strings"
	"testing"
)

// TestGrown covers a driver that receives with more queues while a program is attached. The
// command in the error must leave such a driver too few to spare: with combined N of 8 queues
// virtio_net adds one for each processor only if N and the processors are at most 8.
func TestGrown(t *testing.T) {
	for _, c := range []struct {
		name   string
		before int
		now    ethtoolChannels
		says   string // "" for no error
	}{
		{"as before", 2, ethtoolChannels{maxCombined: 2, curCombined: 2}, ""},
		{"separate, as before", 2, ethtoolChannels{maxRx: 4, curRx: 2, maxTx: 4, curTx: 4}, ""},
		{"one processor", 1, ethtoolChannels{maxCombined: 2, curCombined: 2}, "eth1 receives with 2 queues instead of 1"},
		{"one processor: the command", 1, ethtoolChannels{maxCombined: 2, curCombined: 2}, "ethtool -L eth1 combined 2"},
		{"two processors", 1, ethtoolChannels{maxCombined: 3, curCombined: 3}, "ethtool -L eth1 combined 2"},
		{"four processors", 4, ethtoolChannels{maxCombined: 8, curCombined: 8}, "ethtool -L eth1 combined 5"},
	} {
		err := Link{Port: "eth1", RxQueues: c.before}.grown(c.now)
		switch {
		case c.says == "" && err != nil, c.says != "" && !errors.Is(err, ErrChannels):
			t.Errorf("%s: %v", c.name, err)
		case c.says != "" && !strings.Contains(err.Error(), c.says):
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}
}
