package afxdp_test

import (
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
	"golang.org/x/sys/unix"
)

// A segment of a Write with MTU 1500 and 3506: headers and the beginning of an FPDU, payload,
// CRC.
const (
	pieceHead    = 14 + 20 + 32 + 16
	pieceTrailer = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BenchmarkPieces sends segments from memory that is part of the UMEM: with a copy of the
// payload into the frame, which is what stag does, or as three descriptors, which copies
// nothing in stag. The CRC is computed in both ways. The far end is the kernel, which ignores
// the frames.
func BenchmarkPieces(b *testing.B) {
	for _, payload := range []uint32{1424, 3424} {
		for _, way := range []struct {
			name   string
			pieces int
		}{{"copied", 1}, {"descriptors, no CRC", 2}, {"descriptors", 3}} {
			b.Run(fmt.Sprintf("%d/%s", payload, way.name), func(b *testing.B) {
				p := netns.XDPPair(b, pair.Config{MTU: 3506})
				benchPieces(b, openPieces(b, p), payload, way.pieces)
			})
		}
	}
}

const pieceFrames = 1024 // of each pool; the receive pool plays the registered memory

func openPieces(b *testing.B, p *pair.Pair) (q afxdp.Pieces) {
	b.Helper()
	c := afxdp.Config{IfName: p.Ends[pair.A].Name, RxFrames: pieceFrames, TxFrames: pieceFrames, CompRing: 4096}
	_, r := newRegion(b, c)
	rig.Must(b, p.Do(pair.A, func() (err error) {
		q, err = afxdp.OpenPieces(c, r)
		return err
	}))
	b.Cleanup(func() { rig.Must(b, q.Close()) })
	return q
}

// threadTime returns the processor time of the thread in nanoseconds. Other programs on the
// machine change it less than they change the time that passes.
func threadTime(b *testing.B) int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return t.Nano()
}

func benchPieces(b *testing.B, q afxdp.Pieces, payload uint32, pieces int) {
	const batch = 32
	var sum uint32
	var put, done int
	next := uint32(0)
	var took []int64 // processor time of each batch
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		begin := threadTime(b)
		for range batch {
			source, body := q.Piece(next, 256, payload, pieces == 3)
			descs := [3]unix.XDPDesc{1: body}
			if pieces == 1 {
				var mem []byte
				mem, descs[0] = q.Piece(pieceFrames+next, 64, pieceHead+payload+pieceTrailer, false)
				copy(mem[pieceHead:], source)
				sum = crc32.Checksum(mem[pieceHead:], castagnoli)
				mem[12], mem[13], mem[pieceHead+payload] = 0x88, 0xb5, byte(sum)
			} else {
				var mem, trailer []byte
				mem, descs[0] = q.Piece(pieceFrames+next, 64, pieceHead, true)
				trailer, descs[2] = q.Piece(pieceFrames+next, 2048, pieceTrailer, false)
				mem[12], mem[13] = 0x88, 0xb5
				if pieces == 3 {
					sum = crc32.Checksum(source, castagnoli)
					trailer[0] = byte(sum)
				}
			}
			for _, d := range descs[:pieces] {
				if !q.Put(d) {
					b.Fatal("the ring is full")
				}
				put++
			}
			next = (next + 1) % pieceFrames
		}
		n, err := q.Run()
		rig.Must(b, err)
		done += n
		took = append(took, threadTime(b)-begin)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2])/batch, "cpu-ns/packet")
	b.ReportMetric(float64(took[len(took)/10])/batch, "cpu-ns/packet-p10")
	for limit := time.Now().Add(10 * time.Second); done < put; time.Sleep(time.Millisecond) {
		n, err := q.Run()
		rig.Must(b, err)
		if done += n; time.Now().After(limit) {
			b.Fatalf("%d of %d descriptors have completed", done, put)
		}
	}
	s, err := q.Stats()
	rig.Must(b, err)
	if s.Kernel.TxInvalid != 0 || s.Lost != 0 {
		b.Errorf("the kernel refused %d descriptors and lost %d packets", s.Kernel.TxInvalid, s.Lost)
	}
}
