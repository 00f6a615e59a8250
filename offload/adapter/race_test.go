package adapter

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// tried is a connection of a test's attempts.
type tried struct {
	host   netip.Addr
	closed *atomic.Int32
}

func (c tried) Close() error { c.closed.Add(1); return nil }

func TestRaceOfAddresses(t *testing.T) {
	hosts := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")}
	var closed atomic.Int32
	down := errors.New("down")
	// Where one fails the next begins at once, whatever the delay.
	c, err := race(context.Background(), hosts, time.Hour, func(_ context.Context, h netip.Addr) (tried, error) {
		if h != hosts[2] {
			return tried{}, down
		}
		return tried{h, &closed}, nil
	})
	if err != nil || c.host != hosts[2] || closed.Load() != 0 {
		t.Errorf("%v, %v, %d closed", c.host, err, closed.Load())
	}
	// One that is slow is not waited for, and what it still connects is closed.
	c, err = race(context.Background(), hosts, time.Nanosecond, func(ctx context.Context, h netip.Addr) (tried, error) {
		if h != hosts[1] {
			<-ctx.Done() // it has connected nonetheless
		}
		return tried{h, &closed}, nil
	})
	if n := closed.Load(); err != nil || c.host != hosts[1] || n < 1 || n > 2 {
		t.Errorf("%v, %v, %d closed", c.host, err, n)
	}
	// All fail: each says why, in order.
	_, err = race(context.Background(), hosts, time.Nanosecond, func(_ context.Context, h netip.Addr) (tried, error) {
		return tried{}, fmt.Errorf("%v: %w", h, down)
	})
	if !errors.Is(err, down) || err.Error() != "192.0.2.1: down; 192.0.2.2: down; 192.0.2.3: down" {
		t.Error(err)
	}
	// The context ends: no other begins.
	ctx, cancel := context.WithCancel(context.Background())
	begun := 0
	_, err = race(ctx, hosts, time.Hour, func(ctx context.Context, _ netip.Addr) (tried, error) {
		begun++
		cancel()
		return tried{}, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || begun != 1 {
		t.Errorf("%v after %d attempts", err, begun)
	}
}

// IPv6 and IPv4 take turns, and each keeps its order (RFC 8305 §4).
func TestAddressesTakeTurns(t *testing.T) {
	for give, want := range map[string]string{
		"2001:db8::1 2001:db8::2 192.0.2.1 192.0.2.2 192.0.2.3": "2001:db8::1 192.0.2.1 2001:db8::2 192.0.2.2 192.0.2.3",
		"192.0.2.1 192.0.2.2 2001:db8::1":                       "192.0.2.1 2001:db8::1 192.0.2.2",
		"192.0.2.1 192.0.2.2":                                   "192.0.2.1 192.0.2.2",
		"::ffff:192.0.2.1 2001:db8::1":                          "::ffff:192.0.2.1 2001:db8::1",
		"2001:db8::1":                                           "2001:db8::1",
	} {
		var hosts []netip.Addr
		for _, s := range strings.Fields(give) {
			hosts = append(hosts, netip.MustParseAddr(s))
		}
		if got := strings.Trim(fmt.Sprint(interleave(hosts)), "[]"); got != want {
			t.Errorf("%s: %s, want %s", give, got, want)
		}
	}
}
