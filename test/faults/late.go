package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// MostLate is the longest random delay of a segment if the machine is not busy.
const MostLate = 4 * time.Millisecond

// latecomers receives the late segments, which the programs pass to the kernel, and
// sends each some time later. The kernel itself drops these segments, because they are
// for another host.
type latecomers struct {
	doors   [2]*os.File // sockets on the interfaces between the hosts
	reading sync.WaitGroup
	sending sync.WaitGroup
}

func newLatecomers(a, b place, c Config) (l *latecomers, err error) {
	l = &latecomers{}
	for i, p := range []place{a, b} {
		if l.doors[i], err = openDoor(p); err != nil {
			return nil, errors.Join(err, l.close())
		}
	}
	for i := range l.doors {
		in, out, luck := l.doors[i], l.doors[1-i], rand.New(rand.NewPCG(c.Seed, uint64(i)))
		if c.Delay == 0 {
			l.reading.Go(func() { l.pass(in, func(frame []byte) { l.sendByChance(out, frame, luck) }) })
			continue
		}
		way := &longWay{Config: c, packets: make(chan delayed, 1<<16)}
		l.sending.Go(func() { way.sendInOrder(out) })
		l.reading.Go(func() {
			defer close(way.packets)
			l.pass(in, func(frame []byte) { way.take(time.Now(), frame) })
		})
	}
	return l, nil
}

// longWay is one direction of a cable with a delay.
type longWay struct {
	Config
	free    time.Time // time at which all queued segments will have left
	packets chan delayed
}

// delayed is a segment in flight with its time of arrival.
type delayed struct {
	at    time.Time
	frame []byte
}

// take queues an arriving segment if the queue has room.
func (w *longWay) take(now time.Time, frame []byte) {
	wait := max(0, w.free.Sub(now))
	if wait > w.room() {
		return
	}
	if w.Rate > 0 {
		wait += time.Duration(float64(8*len(frame)) / w.Rate * 1e9)
	}
	w.free = now.Add(wait)
	w.packets <- delayed{w.free.Add(w.Delay), frame}
}

// room returns how long a segment may wait before it leaves: for a round trip, plus 10
// ms because the scheduler may delay this process.
func (w *longWay) room() time.Duration { return 2*w.Delay + 10*time.Millisecond }

// sendInOrder sends each segment when it is due.
func (w *longWay) sendInOrder(out *os.File) {
	for d := range w.packets {
		time.Sleep(time.Until(d.at))
		out.Write(d.frame) // if the interface drops the segment, that is an allowed loss
	}
}

// sendByChance sends a segment after a random delay of up to MostLate.
func (l *latecomers) sendByChance(out *os.File, frame []byte, luck *rand.Rand) {
	l.sending.Add(1)
	time.AfterFunc(time.Duration(luck.Int64N(int64(MostLate))), func() {
		defer l.sending.Done()
		out.Write(frame) // if the interface drops the segment, that is an allowed loss
	})
}

// openDoor makes a packet socket on an interface. The socket receives the arriving
// packets that the program passes to the kernel. It sends without a queueing
// discipline.
func openDoor(p place) (door *os.File, err error) {
	err = p.do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		door = os.NewFile(uintptr(fd), "packets of "+p.Name)
		for _, o := range [][3]int{
			{unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1},
			{unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1},
			{unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16 << 20},
		} {
			if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
				return err
			}
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: bigEndian(unix.ETH_P_ALL), Ifindex: p.Index})
	})
	if err != nil {
		err = errors.Join(fmt.Errorf("a packet socket on %s: %w", p.Name, err), door.Close())
	}
	return door, err
}

func bigEndian(n uint16) uint16 { return n<<8 | n>>8 }

// pass calls send for each frame that arrives at in, until close.
func (l *latecomers) pass(in *os.File, send func(frame []byte)) {
	buf := make([]byte, 64<<10)
	for {
		n, err := in.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded): // close has set a deadline
			return
		case err != nil: // the interface is down, so nothing arrives
			time.Sleep(time.Millisecond)
			continue
		}
		send(append([]byte(nil), buf[:n]...))
	}
}

// close sends the segments in flight and ends the goroutines.
func (l *latecomers) close() error {
	var errs []error
	for _, d := range l.doors {
		if d != nil {
			errs = append(errs, d.SetReadDeadline(time.Unix(1, 0)))
		}
	}
	l.reading.Wait()
	l.sending.Wait()
	for _, d := range l.doors {
		if d != nil {
			errs = append(errs, d.Close())
		}
	}
	return errors.Join(errs...)
}
