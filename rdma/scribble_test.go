package rdma

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Processes scribble over all the memory that they share with the adapter, while the adapter
// uses it: both rings, an SRQ, the completion ring and the bell. Other connections of the same
// adapters lose nothing. The processes' own QPs end or go on.
func TestScribblers(t *testing.T) {
	onBothPaths(t, func(r *rig) {
		var honest sync.WaitGroup
		var over atomic.Bool
		var rounds [2]int
		for i := range rounds {
			x, y := r.connect(wants{heap: 4 * slot})
			if i != 0 {
				x, y = y, x
			}
			honest.Go(func() {
				for k := 0; !over.Load() || k < 5; k++ {
					if err := shuttle(r.Ctx(), x, y, 1+k*7919%100000, k); err != nil {
						r.Errorf("connection %d: %v", i, err)
						return
					}
					rounds[i]++
				}
			})
		}
		luck := rand.New(rand.NewPCG(3, 4))
		ended := 0
		for i := range 24 {
			if r.scribbled(rand.New(rand.NewPCG(uint64(i), luck.Uint64())), i) {
				ended++
			}
		}
		over.Store(true)
		honest.Wait()
		t.Logf("%d of 24 hostile QPs have ended; %d rounds of honest ones", ended, rounds)
	})
}

// scribbled connects a stranger that scribbles for some milliseconds. It reports whether the
// stranger's QP has ended by then.
func (r *rig) scribbled(luck *rand.Rand, i int) (ended bool) {
	r.Helper()
	bad := r.stranger(r.a, i%2 == 0, func(c *QPConfig) {
		c.Client = 9
		if i%3 != 0 {
			c.Hold = HoldForever
		}
	})
	peer := r.stranger(r.b, false)
	r.meet(bad, peer)
	for k := range uint64(4) {
		peer.receive(RecvWR{ID: k})
		bad.recv.Post(RecvWR{ID: k, SGL: []SGE{bad.mr.SGE(0, 64)}})
	}
	for k := range uint64(strangerDepth) {
		peer.post(SendWR{ID: k, Op: WRSend, Flags: Signaled, Inline: []byte("a Send of the peer")})
	}
	stop := make(chan struct{})
	var scribblers sync.WaitGroup
	for n, area := range [][]byte{bad.send.Ring, bad.recv.Ring, bad.done.Ring, bad.page.Page} {
		luck := rand.New(rand.NewPCG(luck.Uint64(), uint64(n)))
		scribblers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				scribble(luck, area)
				runtime.Gosched()
				if n == 0 {
					// The word asleep may say anything, so that it is not asked. A full or closed
					// eventfd does not matter.
					_ = bad.page.Ring(luck.IntN(64))
					_, _ = unix.Write(bad.page.FD, []byte{1, 0, 0, 0, 0, 0, 0, 0})
				}
			}
		})
	}
	select {
	case <-bad.qp.Done():
		ended = true
	case <-time.After(time.Duration(luck.IntN(80)) * time.Millisecond): // any time is right
	}
	bad.leave() // while it goes on scribbling
	close(stop)
	scribblers.Wait()
	for _, unmap := range bad.unmap {
		unmap()
	}
	peer.close()
	return ended
}

// scribble writes something at some place of shared memory: a position, a word that looks
// like a field, or an octet.
func scribble(luck *rand.Rand, area []byte) {
	switch at := luck.IntN(len(area) - 8); luck.IntN(4) {
	case 0: // a tail or a head that is nearly right
		binary.NativeEndian.PutUint32(area, uint32(luck.IntN(3*strangerDepth)))
	case 1:
		binary.NativeEndian.PutUint32(area[at&^3:], uint32(luck.IntN(256)))
	case 2:
		binary.NativeEndian.PutUint64(area[at&^7:], luck.Uint64())
	default:
		area[at] = byte(luck.Uint32())
	}
}
