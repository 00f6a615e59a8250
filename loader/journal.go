package loader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// journal describes a move that is under way. A move writes it before the first step
// and removes it after the last.
type journal struct {
	Boot  string    `json:"boot"` // boot id of the kernel
	Netns uint64    `json:"netns"`
	From  Link      `json:"from"`
	To    Link      `json:"to"`
	What  *Holdings `json:"what"`

	path  string
	every bool // add also the routes that come with the addresses, which may be there already
}

const journalPrefix = "move-"

func newJournal(netns uint64, from, to Link, what *Holdings) (*journal, error) {
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(RuntimeDir, fmt.Sprintf("%s%d-%d", journalPrefix, netns, from.Index))
	return &journal{Boot: boot, Netns: netns, From: from, To: to, What: what, path: path}, nil
}

func (j *journal) write() error { return writeWhole(j.path, j) }

func (j *journal) remove() error {
	err := os.Remove(j.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	os.Remove(j.path + ".new") // left by a process that was killed while it wrote
	return err
}

func readJournal(path string) (*journal, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	j := &journal{path: path, What: &Holdings{}}
	if err := json.Unmarshal(text, j); err != nil {
		return nil, fmt.Errorf("%s does not say which addresses were being moved: look at ip addr, and remove it: %w", path, err)
	}
	if err := j.What.check(); err != nil {
		return nil, fmt.Errorf("%s: %w: look at ip addr, and remove it", path, err)
	}
	return j, nil
}

// claimMoves claims the addresses of a network namespace. It waits while another process
// moves some.
func claimMoves(ctx context.Context, netns uint64) (*Claim, error) {
	for deadline := time.Now().Add(lockWait); ; {
		c, owner, err := claimFile(movesClaim(netns), "the addresses of the network namespace")
		if c != nil || err != nil {
			return c, err
		}
		if time.Now().After(deadline) {
			return nil, fail(ErrInstanceBusy, nil, "addresses are being moved by %s for more than %v: end that process first", owner, lockWait)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockRetry):
		}
	}
}

func movesClaim(netns uint64) string {
	return filepath.Join(RuntimeDir, fmt.Sprintf("moves-%d", netns))
}
