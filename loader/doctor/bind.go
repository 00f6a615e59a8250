package doctor

import (
	"errors"
	"fmt"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/loader"
)

// bindFrames is the smallest number of frames that a queue can have.
const bindFrames = 64

// bindQueues returns the receive queues of l's port that already have a socket. It
// binds a socket to each queue for a moment, one after the other. bindQueues is for
// kernels that do not report sockets. The hook must be free. bindQueues holds the claim
// on the hook, so other processes cannot load meanwhile.
func bindQueues(l loader.Link, hooked bool) (taken []int, err error) {
	if hooked {
		return nil, errors.New("this kernel does not report it, and doctor does not try it while a program is attached")
	}
	hold, owner, err := loader.ClaimHook(l)
	if err != nil {
		return nil, err
	}
	if hold == nil {
		return nil, fmt.Errorf("%v is loading just now", owner)
	}
	defer hold.Close()
	config := afxdp.Config{
		Ifindex: l.PortIndex, IfName: l.Port, ZeroCopy: afxdp.ZeroCopyOff,
		RxFrames: bindFrames, TxFrames: bindFrames, RxRing: bindFrames, TxRing: bindFrames,
	}
	for q := range l.RxQueues {
		config.Queue = uint16(q)
		switch err := bindOnce(config); {
		case errors.Is(err, afxdp.ErrInUse):
			taken = append(taken, q)
		case err != nil:
			return nil, err
		}
	}
	return taken, nil
}

// bindOnce opens a queue and closes it again.
func bindOnce(c afxdp.Config) error {
	size, err := c.RegionSize()
	if err != nil {
		return err
	}
	arena, err := afxdp.NewArena(size)
	if err != nil {
		return err
	}
	defer arena.Close()
	region, err := arena.Cut(size)
	if err != nil {
		return err
	}
	queue, err := afxdp.Open(c, region)
	if err != nil {
		return err
	}
	return queue.Close()
}
