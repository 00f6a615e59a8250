package loader_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

func lookup(t *testing.T, p *pair.Pair, side pair.Side) (l loader.Link) {
	t.Helper()
	netns.In(t, p, side, func() (err error) {
		l, err = loader.LookupLink(p.Ends[side].Name)
		return err
	})
	return l
}

func mustClaim(t *testing.T, l loader.Link, queue int) *loader.Claim {
	t.Helper()
	c, err := loader.NewClaim(l, queue)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestClaimExcludes(t *testing.T) {
	p := netns.Pair(t, pair.Config{Queues: 2})
	a, b := lookup(t, p, pair.A), lookup(t, p, pair.B)
	c := mustClaim(t, a, 0)
	_, err := loader.NewClaim(a, 0)
	rig.Says(t, err, loader.ErrQueueBusy, fmt.Sprintf("%s queue 0 is in use by pid %d", a.Port, os.Getpid()))
	mustClaim(t, a, 1) // another queue
	mustClaim(t, b, 0) // another namespace, perhaps with the same index
	for range 2 {
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	mustClaim(t, a, 0)
}

func TestClaimOfAnotherProcessThatDies(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	l := lookup(t, p, pair.A)
	o := startOther(t, p, pair.A, "claim")
	if o.said != "ready" {
		t.Fatal(o.said)
	}
	_, err := loader.NewClaim(l, 0)
	rig.Says(t, err, loader.ErrQueueBusy, fmt.Sprintf("pid %d", o.Process.Pid))
	o.kill(t)
	left := fmt.Sprintf("%s/%d-%d-0", loader.RuntimeDir, l.Netns, l.PortIndex)
	if _, err := os.Stat(left); err != nil {
		t.Fatalf("the dead process left no record, so this proves nothing: %v", err)
	}
	if err := mustClaim(t, l, 0).Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := filepath.Glob(fmt.Sprintf("%s/%d-*", loader.RuntimeDir, l.Netns))
	if err != nil || len(rest) != 0 {
		t.Errorf("records left behind: %v %v", rest, err)
	}
}

// TestClaimRace lets many goroutines claim one queue repeatedly. There must never be
// more than one owner.
func TestClaimRace(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	l := lookup(t, p, pair.A)
	owned := make(chan struct{}, 1)
	done := make(chan int)
	for range 4 {
		go func() {
			got := 0
			for range 50 {
				c, err := loader.NewClaim(l, 0)
				if err != nil {
					continue
				}
				got++
				select {
				case owned <- struct{}{}:
				default:
					t.Error("two owners at once")
				}
				<-owned
				c.Close()
			}
			done <- got
		}()
	}
	total := 0
	for range 4 {
		total += <-done
	}
	if total == 0 {
		t.Error("nobody ever got the queue")
	}
}

// TestClaimed checks that a claim belongs to one process, its user and one interface.
// The claim ends with the process.
func TestClaimed(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	l := lookup(t, p, pair.A)
	o := startOther(t, p, pair.A, "claim")
	pid, uid := o.Process.Pid, os.Geteuid()
	if !loader.Claimed(l.Netns, l.PortIndex, pid, uid) {
		t.Error("the claim is not seen")
	}
	for what, claimed := range map[string]bool{
		"another process":   loader.Claimed(l.Netns, l.PortIndex, os.Getpid(), uid),
		"another user":      loader.Claimed(l.Netns, l.PortIndex, pid, uid+1),
		"another interface": loader.Claimed(l.Netns, l.PortIndex+1, pid, uid),
		"another namespace": loader.Claimed(l.Netns+1, l.PortIndex, pid, uid),
	} {
		if claimed {
			t.Errorf("%s has the claim", what)
		}
	}
	o.kill(t)
	if loader.Claimed(l.Netns, l.PortIndex, pid, uid) {
		t.Error("a dead process has the claim")
	}
	loader.SweepClaims() // removes the file, because other tests count what is left
}
