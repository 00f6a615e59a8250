package loader

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/bpf"
)

// pinDir names the paths of the pins of one interface:
//
//	<instance>/config                           the layouts of the maps
//	<instance>/tpt                              the adapter's table
//	<instance>/att                              its page lists
//	<instance>/flows4                           the flows of all interfaces over IPv4
//	<instance>/flows6                           the same over IPv6
//	<instance>/lanes                            the sockets of all interfaces
//	<instance>/<netns cookie>-<ifindex>/xsks    the sockets of the interface
//	                                   /stats   its counters
//	                                   /options the program's options
//	                                   /link    keeps the program on the hook
type pinDir struct {
	instance string
	port     string // directory of the interface
}

// lockInstance takes the lock of an instance. A process needs this lock to add or
// remove pins. lockInstance waits while another process has the lock.
func lockInstance(dir string) (*Claim, error) {
	if err := CheckBPFFS(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(RuntimeDir, "instance-"+filepath.Base(dir))
	for deadline := time.Now().Add(lockWait); ; time.Sleep(lockRetry) {
		c, owner, err := claimFile(path, dir)
		if c != nil || err != nil {
			return c, err
		}
		if time.Now().After(deadline) {
			return nil, fail(ErrInstanceBusy, nil, "%s is being changed by %s for more than %v: end that process first", dir, owner, lockWait)
		}
	}
}

// lockInstance waits long enough for another process to finish a load or an unload.
// These are the longest wait and the interval between two attempts.
const (
	lockWait  = 10 * time.Second
	lockRetry = 5 * time.Millisecond
)

func pinsOf(instance string, l Link) *pinDir {
	return &pinDir{instance, filepath.Join(instance, fmt.Sprintf("%d-%d", l.Netns, l.PortIndex))}
}

func (p *pinDir) config() string        { return filepath.Join(p.instance, bpf.MapConfig) }
func (p *pinDir) link() string          { return filepath.Join(p.port, "link") }
func (p *pinDir) of(name string) string { return filepath.Join(p.port, name) }

// CheckBPFFS returns ErrNoBPFFS unless dir, or its nearest existing parent directory,
// is in a BPF file system. Only a BPF file system can hold pins.
func CheckBPFFS(dir string) error {
	var fs unix.Statfs_t
	err := unix.Statfs(dir, &fs)
	for up := dir; err == unix.ENOENT && up != filepath.Dir(up); {
		up = filepath.Dir(up)
		err = unix.Statfs(up, &fs)
	}
	if err != nil {
		return fmt.Errorf("look at the file system of %s: %w", dir, err)
	}
	if fs.Type == unix.BPF_FS_MAGIC {
		return nil
	}
	return fail(ErrNoBPFFS, nil, "%s is not in a BPF file system, where alone programs can be pinned: mount -t bpf bpf /sys/fs/bpf, or under ip netns exec, which hides it, use nsenter --net=/run/netns/NAME",
		dir)
}

// checkLayout returns ErrLayout if the layouts of the instance's maps differ from those
// of this build. It returns ErrNotPinned if the instance has no config map.
func (p *pinDir) checkLayout() error {
	m, err := ebpf.LoadPinnedMap(p.config(), &ebpf.LoadPinOptions{ReadOnly: true})
	if errors.Is(err, os.ErrNotExist) {
		return fail(ErrNotPinned, err, "no stag is pinned at %s: stag load does that", p.instance)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", p.config(), err)
	}
	defer m.Close()
	var have bpf.Config
	want := bpf.Layout()
	// In a map of another size even the version word cannot be read.
	if m.ValueSize() != uint32(binary.Size(have)) {
		return fail(ErrLayout, nil, "the maps pinned at %s were made by a stag of an unknown layout version, this one has version %d: end what uses them, then stag unload --force --instance %s",
			p.instance, want.Version, filepath.Base(p.instance))
	}
	if err := m.Lookup(uint32(0), &have); err != nil {
		return fmt.Errorf("read %s: %w", p.config(), err)
	}
	if have != want {
		return fail(ErrLayout, nil, "the maps pinned at %s have layout version %d, this stag has version %d: end what uses them, then stag unload --force --instance %s",
			p.instance, have.Version, want.Version, filepath.Base(p.instance))
	}
	return nil
}

// pinConfig pins this build's layouts unless another interface of the instance has done
// so.
func (p *pinDir) pinConfig() error {
	err := p.checkLayout()
	if !errors.Is(err, ErrNotPinned) {
		return err
	}
	spec, err := bpf.Spec()
	if err != nil {
		return err
	}
	m, err := ebpf.NewMap(spec.Maps[bpf.MapConfig])
	if err != nil {
		return fmt.Errorf("make map config: %w", err)
	}
	defer m.Close()
	if err := m.Put(uint32(0), bpf.Layout()); err != nil {
		return fmt.Errorf("fill map config: %w", err)
	}
	err = m.Pin(p.config())
	if errors.Is(err, os.ErrExist) {
		return p.checkLayout() // another load pinned the layouts first
	}
	if err != nil {
		return fmt.Errorf("pin map config: %w", err)
	}
	return nil
}

// parsePort parses the name of an interface's directory.
func parsePort(name string) (Link, bool) {
	cookie, index, ok := strings.Cut(name, "-")
	c, err1 := strconv.ParseUint(cookie, 10, 64)
	i, err2 := strconv.Atoi(index)
	return Link{Netns: c, PortIndex: i}, ok && err1 == nil && err2 == nil
}
