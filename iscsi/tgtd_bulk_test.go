package iscsi_test

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/test/tgtd"
)

// bulk is how much TestBulk moves each way, in octets. With STAG_LONG=1 it is 1 GiB, and
// 128 MiB with digests.
func bulk(digests string) int64 {
	switch long := os.Getenv("STAG_LONG") == "1"; {
	case long && digests == "":
		return 1 << 30
	case long:
		return 128 << 20
	}
	return 32 << 20
}

// TestBulk writes a disk whole and reads it back, 16 IOs of 256 KiB at a time. The hashes of
// what was sent, of the target's file and of what came back are the same.
func TestBulk(t *testing.T) {
	for _, carrier := range carriers {
		for _, digests := range []string{"", "?header_digest=crc32c&data_digest=crc32c"} {
			t.Run(carrier+" "+digests, func(t *testing.T) {
				c := tgtd.Config{Size: bulk(digests), RAM: true, Keys: map[string]string{}}
				if digests != "" {
					c.Keys["HeaderDigest"], c.Keys["DataDigest"] = "CRC32C", "CRC32C"
				}
				s := newStage(t, carrier, c)
				d := s.dial(digests, iscsi.Config{})
				sent := s.stream(d, iscsi.Write, rand.NewChaCha8([32]byte{9}))
				s.Must(d.Sync())
				file, err := os.Open(s.target.Disk())
				s.Must(err)
				there := sha256.New()
				_, err = io.Copy(there, file)
				s.Must(err)
				s.Must(file.Close())
				if [32]byte(there.Sum(nil)) != sent {
					t.Error("the target's file has other octets than were sent")
				}
				if s.stream(d, iscsi.Read, nil) != sent {
					t.Error("other octets came back than were sent")
				}
			})
		}
	}
}

// stream moves the whole disk in order, and returns the hash of its octets. from has the
// octets to write.
func (s *stage) stream(d *iscsi.Disk, op iscsi.Op, from io.Reader) [32]byte {
	s.Helper()
	const depth, size = 16, 256 << 10
	q, err := d.Queue(depth)
	s.Must(err)
	hash := sha256.New()
	buffers := make([]byte, depth*size)
	count := int(d.Size() / size)
	ended := make([]bool, count)
	var got [depth]iscsi.Completion
	for posted, hashed := 0, 0; hashed < count; {
		for ; posted < count && posted < hashed+depth; posted++ {
			b := buffers[posted%depth*size:][:size]
			if op == iscsi.Write {
				_, err := io.ReadFull(from, b)
				s.Must(err)
				hash.Write(b)
			}
			n, err := q.Post(iscsi.IO{ID: uint64(posted), Op: op, LBA: uint64(posted) * size / uint64(d.BlockSize()), Buffers: [][]byte{b}})
			s.Must(err)
			if n != 1 {
				s.Fatalf("IO %d: the queue is full", posted)
			}
		}
		s.Must(q.Wait(s.Ctx()))
		for _, c := range got[:q.Poll(got[:])] {
			s.Must(c.Err)
			ended[c.ID] = true
		}
		for ; hashed < posted && ended[hashed]; hashed++ {
			if op == iscsi.Read {
				hash.Write(buffers[hashed%depth*size:][:size])
			}
		}
	}
	s.Must(q.Close())
	return [32]byte(hash.Sum(nil))
}

// TestRedirected: tgtd sends the initiator to another portal, and the session lives there.
// A target that sends it to itself for ever is refused.
func TestRedirected(t *testing.T) {
	s := newStage(t, "kernel port", tgtd.Config{})
	moved := tgtd.StartAt(t, s.pair, theirs, 3261, tgtd.Config{Keys: map[string]string{
		"RedirectAddress": s.target.Portal().Addr().String(), "RedirectPort": "3260", "RedirectReason": "Temporary"}})
	d, err := iscsi.Dial(s.Ctx(), moved.URL(""), iscsi.Config{Adapter: s.adapter})
	s.Must(err)
	if got := d.Session().Portal(); got != s.target.Portal().String() {
		t.Errorf("the session is at %s, want %v", got, s.target.Portal())
	}
	want := random(64<<10, 5)
	_, err = d.WriteAt(want, 0)
	s.Must(err)
	s.Must(d.Sync())
	file, err := os.ReadFile(s.target.Disk())
	s.Must(err)
	if sha256.Sum256(file[:len(want)]) != sha256.Sum256(want) {
		t.Error("the octets are not on the disk of the portal that the target named")
	}
	s.Check(d.Close())

	round := tgtd.StartAt(t, s.pair, theirs, 3262, tgtd.Config{Keys: map[string]string{
		"RedirectAddress": moved.Portal().Addr().String(), "RedirectPort": "3262", "RedirectReason": "Permanent"}})
	if d, err := iscsi.Dial(s.Ctx(), round.URL(""), iscsi.Config{Adapter: s.adapter}); err == nil {
		t.Error("logged in to a target that is always somewhere else")
		rig.Check(t, d.Close())
	} else if !strings.Contains(err.Error(), "has moved") {
		t.Error(err)
	}
}
