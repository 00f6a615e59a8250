package handoff

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Kept is what a Placeholder knows besides its socket. It travels to another process with
// the descriptor.
type Kept struct {
	IP                            IP
	Keepalive, UserTimeout, Reuse int // settings of the program, for GiveBack
	MSS                           int // argument of Socket.Limit
	Drops                         uint32
}

// Hand returns what InheritPlaceholder needs in another process. The file is a duplicate,
// which the caller owns. It is nil for a closed Placeholder. The Placeholder works as before.
func (p *Placeholder) Hand() (k Kept, f *os.File, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 {
		return Kept{IP: p.ip}, nil, nil
	}
	fd, err := unix.FcntlInt(uintptr(p.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return Kept{}, nil, fmt.Errorf("duplicate the placeholder of %v to %v: %w", p.tuple.Local, p.tuple.Remote, err)
	}
	k = Kept{IP: p.ip, Keepalive: p.saved.keepalive, UserTimeout: p.saved.userTimeout, Reuse: p.saved.reuse, MSS: p.mss, Drops: p.drops}
	return k, os.NewFile(uintptr(fd), "placeholder"), nil
}

// Leave closes the descriptor. The socket stays as it is, because another process has a
// descriptor of it.
func (p *Placeholder) Leave() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 {
		return nil
	}
	fd := p.fd
	p.fd = -1
	return unix.Close(fd)
}

// InheritPlaceholder returns the placeholder that another process has handed over, and takes
// f over, also on error. It checks that f is a TCP socket with the addresses of want that is
// established and in repair mode. If f is nil, the placeholder is a closed one.
func InheritPlaceholder(want Tuple, k Kept, f *os.File) (*Placeholder, error) {
	if f == nil {
		return &Placeholder{tuple: want, ip: k.IP, fd: -1}, nil
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("take over the placeholder of %v to %v: %w", want.Local, want.Remote, err)
	}
	p, err := inherited(fd, want, k)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take over the placeholder of %v to %v: %w", want.Local, want.Remote, err), unix.Close(fd))
	}
	return p, nil
}

func inherited(fd int, want Tuple, k Kept) (*Placeholder, error) {
	s := Socket{fd: fd}
	if err := s.readTuple(); err != nil {
		return nil, err
	}
	if s.tuple != want {
		return nil, fmt.Errorf("the socket connects %v to %v", s.tuple.Local, s.tuple.Remote)
	}
	if on, err := unix.GetsockoptInt(fd, unix.SOL_TCP, unix.TCP_REPAIR); err != nil || on != unix.TCP_REPAIR_ON {
		return nil, errors.Join(errors.New("the socket is not in repair mode"), err)
	}
	info, err := getTCPInfo(fd)
	if err != nil {
		return nil, fmt.Errorf("read TCP_INFO: %w", err)
	}
	if info.State != established {
		return nil, fmt.Errorf("the socket is in %s", stateName(info.State))
	}
	return &Placeholder{tuple: s.tuple, local: s.local, remote: s.remote, ip: k.IP, mss: k.MSS, fd: fd, drops: k.Drops,
		saved: saved{keepalive: k.Keepalive, userTimeout: k.UserTimeout, reuse: k.Reuse}}, nil
}
