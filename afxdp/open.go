package afxdp

import (
	"errors"
	"fmt"
	"math/bits"
	"net"
	"time"

	"github.com/stag-rdma/stag/afxdp/ring"
	"golang.org/x/sys/unix"
)

// These are the steps of Open, as its errors name them.
const (
	stepName   = "find the interface"
	stepRegion = "claim the region"
	stepBell   = "make an eventfd"
	stepSocket = "create the AF_XDP socket"
	stepUmem   = "register the frames"
	stepRings  = "make the rings"
	stepBind   = "bind"
	stepMode   = "read the mode"
	stepBudget = "set the transmit budget"
	stepBuffer = "set the send buffer"
)

// Open binds an AF_XDP socket to a queue of an interface. The frames lie in region r,
// which must hold at least c.RegionSize octets. No frame arrives until the loader has
// put the socket (FD) into the XDP program's map.
//
// If another socket is bound to the queue, Open tries again for about four seconds, because
// the kernel releases a closed socket late. After that time Open returns ErrInUse. If
// the thread is in a network namespace of its own, the calling goroutine must be locked
// to the thread.
func Open(c Config, r *Region) (*Queue, error) {
	q, err := Prepare(c, r)
	if err != nil {
		return nil, err
	}
	if err := q.bindAll(); err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

// Prepare does the part of Open that does not need the interface's queue. The queue has its
// memory, its rings and its descriptor. The caller must call Bind before it uses the queue.
func Prepare(c Config, r *Region) (*Queue, error) {
	c, err := c.fill()
	if err != nil {
		return nil, err
	}
	q := &Queue{cfg: c, fd: -1}
	q.bell.fd = -1
	q.name = fmt.Sprintf("%s queue %d", c.label(), c.Queue)
	err = q.steps(
		step{stepName, q.resolve},
		step{stepRegion, func() error { return q.claim(r) }},
		step{stepBell, q.hang},
		step{stepSocket, q.socket},
		step{stepUmem, q.register},
		step{stepRings, q.mapRings},
	)
	if err != nil {
		return nil, errors.Join(err, q.detach())
	}
	return q, nil
}

// patience limits how long a bind waits for the kernel to release the queue. The kernel
// releases a closed socket when it gets the RTNL, which can take more than a second on a busy
// machine.
const patience = 4 * time.Second

// Bind binds a queue of Prepare, as Open does, and waits as long for another process to leave
// the queue. After an error the caller must close the queue.
func (q *Queue) Bind() error {
	return q.bindAll()
}

func (q *Queue) bindAll() error {
	return q.steps(
		step{stepBind, q.bind},
		step{stepMode, q.readMode},
		step{stepBudget, q.setBudget},
		step{stepBuffer, q.setBuffer},
	)
}

// step is a part of Open, with its name in errors.
type step struct {
	name string
	do   func() error
}

func (q *Queue) steps(list ...step) error {
	for _, s := range list {
		if err := s.do(); err != nil {
			return fmt.Errorf("afxdp: open %s: %w", q.name, explain(s.name, err))
		}
	}
	return nil
}

// label returns the interface's name, or its index if the name is not known yet.
func (c Config) label() string {
	if c.IfName == "" {
		return fmt.Sprintf("interface %d", c.Ifindex)
	}
	return c.IfName
}

// resolve looks up the interface's name or index, whichever is missing.
func (q *Queue) resolve() error {
	c := &q.cfg
	var dev *net.Interface
	var err error
	switch {
	case c.Ifindex == 0 && c.IfName == "":
		return errors.New("set Config.Ifindex or Config.IfName")
	case c.Ifindex == 0:
		dev, err = net.InterfaceByName(c.IfName)
	case c.IfName == "":
		dev, err = net.InterfaceByIndex(c.Ifindex)
	default:
		dev = &net.Interface{Index: c.Ifindex, Name: c.IfName}
	}
	if err != nil {
		return err
	}
	c.Ifindex, c.IfName = dev.Index, dev.Name
	q.name = fmt.Sprintf("%s queue %d", c.IfName, c.Queue)
	q.info.IfName, q.info.Ifindex, q.info.Queue = c.IfName, c.Ifindex, c.Queue
	q.down = fmt.Errorf("afxdp: %s: %w: set it up (ip link set %s up)", q.name, ErrLinkDown, c.IfName)
	q.gone = fmt.Errorf("afxdp: %s: %w: close the queue", q.name, ErrGone)
	return nil
}

// claim reserves the region and divides it into the chunks of the two pools.
func (q *Queue) claim(r *Region) error {
	c := q.cfg
	if need := c.regionSize(); r == nil || r.size < need {
		return fmt.Errorf("the queue needs a region of %d octets (Config.RegionSize)", need)
	}
	release, err := r.claim(c.FrameSize)
	if err != nil {
		return err
	}
	q.undo.Add(release)
	q.info.Pages = r.arena.pages
	q.mem = r.arena.mem
	q.base, q.size = r.base, c.regionSize()
	q.shift = uint8(bits.TrailingZeros32(c.FrameSize))

	all := c.RxFrames + c.TxFrames
	q.state = make([]holders, all)
	q.begin = make([]uint16, c.RxFrames)
	q.rxPool = countdown(0, c.RxFrames)
	q.txPool = countdown(c.RxFrames, all)
	if c.Check {
		q.trace = newTrace(all)
	}
	return nil
}

// countdown returns a pool of the chunks [from, to). The chunk from is on top of the
// stack.
func countdown(from, to uint32) []uint32 {
	pool := make([]uint32, 0, to-from)
	for i := to; i > from; i-- {
		pool = append(pool, i-1)
	}
	return pool
}

func (q *Queue) hang() error {
	if err := q.bell.open(); err != nil {
		return err
	}
	q.undo.Add(q.bell.close)
	return nil
}

func (q *Queue) socket() error {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	q.fd, q.sys = fd, q.trap
	q.undo.Add(func() error { return unix.Close(fd) })
	q.undo.Add(func() error { return q.maps.Run() })
	return nil
}

// mapRings creates and maps the four rings. The undo stack unmaps them before it closes
// the socket, because a mapping keeps the socket bound to the queue.
func (q *Queue) mapRings() error {
	c := q.cfg
	var mem [4][]byte
	var at unix.XDPMmapOffsets
	rows := [4]struct {
		option int
		slots  uint32
		width  uint64 // octets of a slot
		page   int64  // mmap offset that selects the ring
		at     *unix.XDPRingOffset
	}{
		{unix.XDP_UMEM_FILL_RING, c.FillRing, 8, unix.XDP_UMEM_PGOFF_FILL_RING, &at.Fr},
		{unix.XDP_UMEM_COMPLETION_RING, c.CompRing, 8, unix.XDP_UMEM_PGOFF_COMPLETION_RING, &at.Cr},
		{unix.XDP_RX_RING, c.RxRing, 16, unix.XDP_PGOFF_RX_RING, &at.Rx},
		{unix.XDP_TX_RING, c.TxRing, 16, unix.XDP_PGOFF_TX_RING, &at.Tx},
	}
	for _, r := range rows {
		if err := unix.SetsockoptInt(q.fd, unix.SOL_XDP, r.option, int(r.slots)); err != nil {
			return fmt.Errorf("option %d, %d slots: %w", r.option, r.slots, err)
		}
	}
	if err := option(q.fd, unix.XDP_MMAP_OFFSETS, &at); err != nil {
		return fmt.Errorf("offsets: %w", err)
	}
	for i, r := range rows {
		m, err := unix.Mmap(q.fd, r.page, int(r.at.Desc+uint64(r.slots)*r.width),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			return fmt.Errorf("map ring at %#x, %d slots: %w", r.page, r.slots, err)
		}
		q.maps.Add(func() error { return unix.Munmap(m) })
		mem[i] = m
	}
	return errors.Join(
		produce(&q.fill, mem[0], at.Fr, c.FillRing),
		consume(&q.comp, mem[1], at.Cr, c.CompRing),
		consume(&q.rx, mem[2], at.Rx, c.RxRing),
		produce(&q.tx, mem[3], at.Tx, c.TxRing),
	)
}

func produce[T any](dst *ring.Producer[T], mem []byte, at unix.XDPRingOffset, n uint32) error {
	m, err := ringAt[T](mem, at, n)
	if err == nil {
		*dst, err = ring.NewProducer(m)
	}
	return err
}

func consume[T any](dst *ring.Consumer[T], mem []byte, at unix.XDPRingOffset, n uint32) error {
	m, err := ringAt[T](mem, at, n)
	if err == nil {
		*dst, err = ring.NewConsumer(m)
	}
	return err
}

// bind binds the socket to the interface's queue. It selects zero-copy mode if the
// configuration allows it and the driver supports it.
func (q *Queue) bind() error {
	q.refill() // the first packets need chunks
	if q.cfg.ZeroCopy != ZeroCopyOff {
		act, err := q.tryBind(bindZero, unix.XDP_ZEROCOPY)
		if act != noZero {
			return err
		}
		if q.cfg.ZeroCopy == ZeroCopyRequire {
			return fmt.Errorf("zero copy is required and this driver or queue does none: %w", err)
		}
		q.info.NoZeroCopy = err
	}
	_, err := q.tryBind(bindCopy, unix.XDP_COPY)
	return err
}

// tryBind binds in one mode. If another socket uses the queue, tryBind tries again until
// patience is over.
func (q *Queue) tryBind(c call, mode uint16) (action, error) {
	sa := &unix.SockaddrXDP{
		Flags:   mode | unix.XDP_USE_NEED_WAKEUP,
		Ifindex: uint32(q.cfg.Ifindex),
		QueueID: uint32(q.cfg.Queue),
	}
	const longest = 128 * time.Millisecond // the waits grow from 1 ms by a quarter
	for pause, waited := time.Millisecond, time.Duration(0); ; pause = min(pause+pause/4, longest) {
		err := unix.Bind(q.fd, sa)
		switch act := decide(c, errnoOf(err)); {
		case act == retry:
		case act != wait:
			return act, err
		case waited > patience:
			return act, fmt.Errorf("%w: another socket is bound to it", ErrInUse)
		default:
			time.Sleep(pause)
			waited += pause
		}
	}
}

// readMode asks the kernel whether the socket is in zero-copy mode.
func (q *Queue) readMode() error {
	var flags uint32
	if err := option(q.fd, unix.XDP_OPTIONS, &flags); err != nil {
		return err
	}
	if flags&unix.XDP_OPTIONS_ZEROCOPY != 0 {
		q.info.Mode = ModeZeroCopy
	}
	q.info.Sums = q.meta && q.cfg.Sums.in(q.info.Mode)
	return nil
}
