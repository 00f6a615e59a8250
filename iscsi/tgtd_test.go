package iscsi_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/test/tgtd"
)

// ours and theirs are the two sides of the pair.
const (
	ours   = pair.A
	theirs = pair.B
)

// stage is a target in one namespace, and an adapter in the other.
type stage struct {
	rig.Stage
	pair    *pair.Pair
	target  *tgtd.Target
	adapter *rdma.Adapter
}

// carriers are the ways of a connection.
var carriers = []string{"kernel port", "AF_XDP"}

// newStage starts a target, and opens an adapter for a carrier.
func newStage(t testing.TB, carrier string, c tgtd.Config) *stage {
	t.Helper()
	s := &stage{Stage: rig.On(t)}
	cfg := rdma.Config{KernelPort: true, NoControl: true}
	var p *pair.Pair
	if carrier == "AF_XDP" {
		p = netns.XDPPair(t, pair.Config{})
		cfg = rdma.Config{Ports: []string{p.Ends[ours].Name}, NoControl: true}
	} else {
		p = netns.Pair(t, pair.Config{})
	}
	s.pair = p
	s.target = tgtd.Start(t, p, theirs, c)
	netns.In(t, p, ours, func() (err error) {
		s.adapter, err = rdma.Open(cfg)
		return err
	})
	t.Cleanup(func() { s.Check(s.adapter.Close()) })
	return s
}

// dial opens the disk of the target.
func (s *stage) dial(arguments string, c iscsi.Config) *iscsi.Disk {
	s.Helper()
	c.Adapter = s.adapter
	d, err := iscsi.Dial(s.Ctx(), s.target.URL(arguments), c)
	s.Must(err)
	s.Cleanup(func() { s.Check(d.Close()) })
	return d
}

// everywhere runs a test over each carrier, without digests and with both.
func everywhere(t *testing.T, run func(t *testing.T, s *stage, d *iscsi.Disk)) {
	for _, carrier := range carriers {
		for _, digest := range []string{"None", "CRC32C"} {
			t.Run(carrier+" "+digest, func(t *testing.T) {
				s := newStage(t, carrier, tgtd.Config{Keys: map[string]string{"HeaderDigest": digest, "DataDigest": digest}})
				arguments := ""
				if digest != "None" {
					arguments = "?header_digest=crc32c&data_digest=crc32c"
				}
				d := s.dial(arguments, iscsi.Config{})
				if h, data := d.Session().Digests(); h != (digest != "None") || data != h {
					t.Fatalf("digests %v %v", h, data)
				}
				run(t, s, d)
			})
		}
	}
}

func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 7})
	r.Read(b)
	return b
}

// TestPatterns writes patterns of 512 octets to 1 MiB, reads them back, and compares the
// target's file.
func TestPatterns(t *testing.T) {
	everywhere(t, func(t *testing.T, s *stage, d *iscsi.Disk) {
		if d.BlockSize() != 512 || d.Size() != 64<<20 || d.Identity().Vendor != "IET" {
			t.Errorf("block size %d, size %d, %+v", d.BlockSize(), d.Size(), d.Identity())
		}
		off := int64(0)
		whole := sha256.New()
		for n := 512; n <= 1<<20; n *= 2 {
			for _, n := range []int{n, n + 512} {
				want := random(n, uint64(n))
				whole.Write(want)
				if k, err := d.WriteAt(want, off); k != n || err != nil {
					t.Fatalf("write %d octets at %d: %d, %v", n, off, k, err)
				}
				got := make([]byte, n)
				if k, err := d.ReadAt(got, off); k != n || err != nil || sha256.Sum256(got) != sha256.Sum256(want) {
					t.Fatalf("read %d octets at %d: %d, %v, equal %v", n, off, k, err, bytes.Equal(got, want))
				}
				off += int64(n)
			}
		}
		s.Must(d.Sync())
		file, err := os.Open(s.target.Disk())
		s.Must(err)
		defer file.Close()
		there := sha256.New()
		_, err = io.CopyN(there, file, off)
		s.Must(err)
		if !bytes.Equal(there.Sum(nil), whole.Sum(nil)) {
			t.Error("the target's file has other octets")
		}
	})
}

// TestQueue keeps many IOs in flight, in scattered buffers.
func TestQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, s *stage, d *iscsi.Disk) {
		const depth, size = 32, 24 << 10
		q, err := d.Queue(depth)
		s.Must(err)
		var got [8]iscsi.Completion
		run := func(op iscsi.Op, buffers func(i int) [][]byte) {
			posted, done := 0, 0
			for done < 4*depth {
				for posted < 4*depth {
					n, err := q.Post(iscsi.IO{ID: uint64(posted), Op: op, LBA: uint64(posted) * size / 512, Buffers: buffers(posted)})
					s.Must(err)
					if n == 0 {
						break
					}
					posted++
				}
				s.Must(q.Wait(s.Ctx()))
				for _, c := range got[:q.Poll(got[:])] {
					if done++; c.Err != nil || c.Length != size {
						t.Fatalf("%+v", c)
					}
				}
			}
		}
		want := random(4*depth*size, 3)
		run(iscsi.Write, func(i int) [][]byte { b := want[i*size:][:size]; return [][]byte{b[:100], b[100:5000], b[5000:]} })
		back := make([]byte, len(want))
		run(iscsi.Read, func(i int) [][]byte { b := back[i*size:][:size]; return [][]byte{b[:7], b[7:20000], b[20000:]} })
		if !bytes.Equal(back, want) {
			t.Error("wrong octets")
		}
		s.Must(q.Close())
	})
}

// TestBursts writes with each way of R2T, immediate and unsolicited data.
func TestBursts(t *testing.T) {
	for _, carrier := range carriers {
		s := newStage(t, carrier, tgtd.Config{Keys: map[string]string{"MaxRecvDataSegmentLength": "65536", "InitialR2T": "No", "MaxOutstandingR2T": "4",
			"MaxBurstLength": "16777215", "FirstBurstLength": "16777215"}})
		for _, c := range []iscsi.Config{
			{}, {RequireR2T: true}, {NoImmediateData: true}, {RequireR2T: true, NoImmediateData: true},
			{MaxBurstLength: 512, FirstBurstLength: 512}, {MaxBurstLength: 1 << 16, FirstBurstLength: 1 << 16, MaxOutstandingR2T: 8},
			{MaxBurstLength: 512, FirstBurstLength: 512, MaxOutstandingR2T: 8, NoImmediateData: true},
			{MaxBurstLength: 1<<24 - 1, FirstBurstLength: 1<<24 - 1}, {MaxBurstLength: 1<<24 - 1, FirstBurstLength: 512},
			{MaxRecvDataSegmentLength: 512},
		} {
			t.Run(fmt.Sprintf("%s %v %v %d %d %d", carrier, c.RequireR2T, c.NoImmediateData, c.MaxBurstLength, c.FirstBurstLength, c.MaxRecvDataSegmentLength), func(t *testing.T) {
				c.Adapter = s.adapter
				d, err := iscsi.Dial(s.Ctx(), s.target.URL(""), c)
				rig.Must(t, err)
				for i, n := range []int{512, 4096, 65536, 65536 + 512, 300 << 10} {
					want, got := random(n, uint64(i)), make([]byte, n)
					_, err := d.WriteAt(want, 0)
					rig.Must(t, err)
					_, err = d.ReadAt(got, 0)
					rig.Must(t, err)
					if !bytes.Equal(got, want) {
						t.Errorf("%d octets: wrong ones came back", n)
					}
				}
				rig.Check(t, d.Close())
			})
		}
	}
}

// TestAnyCommand: Do takes any CDB, and tells status and sense data.
func TestAnyCommand(t *testing.T) {
	s := newStage(t, "kernel port", tgtd.Config{})
	d := s.dial("", iscsi.Config{})
	buf := make([]byte, 96)
	r, err := d.Session().Do(s.Ctx(), iscsi.Command{LUN: tgtd.LUN, CDB: []byte{0x12, 0, 0, 0, 96, 0}, In: buf})
	if err != nil || r.Length < 36 || string(buf[8:11]) != "IET" {
		t.Errorf("INQUIRY: %+v, %v, %q", r, err, buf)
	}
	_, err = d.Session().Do(s.Ctx(), iscsi.Command{LUN: tgtd.LUN, CDB: []byte{0xff, 0, 0, 0, 0, 0}})
	var status *iscsi.StatusError
	if !errors.As(err, &status) || status.Status != 2 || len(status.Sense) == 0 {
		t.Errorf("a CDB that nobody knows: %v", err)
	}
	s.Must(d.WriteZeroes(0, 1<<20))
	s.Must(d.Discard(0, 1<<20))
	if _, err := d.ReadAt(buf[:1], 0); !errors.Is(err, iscsi.ErrAlignment) {
		t.Errorf("an octet: %v", err)
	}
	if n, err := d.ReadAt(make([]byte, 1024), d.Size()-512); n != 512 || err != io.EOF {
		t.Errorf("across the end: %d, %v", n, err)
	}
	if _, err := d.WriteAt(make([]byte, 1024), d.Size()-512); err == nil {
		t.Error("wrote across the end")
	}
	targets, err := iscsi.Discover(s.Ctx(), "iscsi://"+d.Session().Portal(), iscsi.Config{Adapter: s.adapter})
	if err != nil || len(targets) != 1 || targets[0].Name != tgtd.Name {
		t.Errorf("discovered %+v, %v", targets, err)
	}
}

// TestCHAP logs in with CHAP, both ways, and with wrong secrets. tgtd takes the number of
// SHA-256 for SHA-1, so that only MD5 works with it.
func TestCHAP(t *testing.T) {
	s := newStage(t, "kernel port", tgtd.Config{User: "alice", Secret: "alicesecret12", PeerUser: "bob", PeerSecret: "bobsecret12345"})
	s.dial("?auth=md5", iscsi.Config{})
	s.dial("?target_user=bob&target_password=bobsecret12345&auth=md5", iscsi.Config{})
	for arguments, want := range map[string]string{
		"?target_user=bob&target_password=bobsecret54321&auth=md5": "CHAP",
		"": "auth=md5",
	} {
		d, err := iscsi.Dial(s.Ctx(), s.target.URL(arguments), iscsi.Config{Adapter: s.adapter})
		if err == nil {
			t.Errorf("%s: logged in", arguments)
			d.Close()
			continue
		}
		if text := err.Error(); !strings.Contains(text, want) || strings.Contains(text, "secret1") || strings.Contains(text, "secret5") {
			t.Errorf("%s: %s", arguments, text)
		}
	}
}

// TestTargetDies: all IOs in flight end with an error that says so.
func TestTargetDies(t *testing.T) {
	for _, carrier := range carriers {
		t.Run(carrier, func(t *testing.T) {
			s := newStage(t, carrier, tgtd.Config{})
			d := s.dial("", iscsi.Config{RecoveryTimeout: -1})
			q, err := d.Queue(8)
			s.Must(err)
			b := make([]byte, 4096)
			posted, done := 0, 0
			var got [8]iscsi.Completion
			for killed := false; ; {
				n, err := q.Post(iscsi.IO{Op: iscsi.Read, Buffers: [][]byte{b}})
				if posted += n; err != nil && done == posted {
					if !errors.Is(err, iscsi.ErrSessionLost) {
						t.Errorf("a post afterwards: %v", err)
					}
					break
				}
				if !killed && posted > 100 {
					killed = true
					s.target.Kill()
				}
				if err := q.Wait(s.Ctx()); !errors.Is(err, iscsi.ErrSessionLost) {
					s.Must(err)
				}
				for _, c := range got[:q.Poll(got[:])] {
					if done++; c.Err != nil && !errors.Is(c.Err, iscsi.ErrSessionLost) {
						t.Errorf("an IO: %v", c.Err)
					}
				}
			}
			rig.Wait(t, d.Session().Done(), "the end of the session")
			if err := d.Session().Err(); !errors.Is(err, iscsi.ErrSessionLost) {
				t.Errorf("the session: %v", err)
			}
			if _, err := d.ReadAt(b, 0); !errors.Is(err, iscsi.ErrSessionLost) {
				t.Errorf("a read afterwards: %v", err)
			}
		})
	}
}

// TestCancel cancels reads and writes at any time. The buffer is the caller's when Do
// returns, and the session goes on.
func TestCancel(t *testing.T) {
	for _, carrier := range carriers {
		t.Run(carrier, func(t *testing.T) {
			s := newStage(t, carrier, tgtd.Config{})
			d := s.dial("", iscsi.Config{})
			cancelMany(s.Stage, d)
		})
	}
}
