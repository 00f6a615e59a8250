package pair_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
)

// space identifies the network namespace of the calling thread.
func space(t *testing.T) string {
	t.Helper()
	s, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTCPBothFamilies(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	for _, at := range []netip.Prefix{p.Ends[pair.B].V4, p.Ends[pair.B].V6} {
		t.Run(at.String(), func(t *testing.T) {
			if got := converse(t, p, at.Addr()); got != "across the cable" {
				t.Errorf("side B read %q", got)
			}
		})
	}
}

// converse sends a line from side A to addr on side B and returns what arrived.
func converse(t *testing.T, p *pair.Pair, addr netip.Addr) string {
	t.Helper()
	var lis net.Listener
	err := p.Do(pair.B, func() (err error) {
		lis, err = net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	var out net.Conn
	err = p.Do(pair.A, func() (err error) {
		out, err = net.Dial("tcp", lis.Addr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(out, "across the cable")
	out.Close()
	in, err := lis.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	got, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestConfigIsHonoured(t *testing.T) {
	p := netns.Pair(t, pair.Config{MTU: 3506, Queues: 3})
	for _, side := range []pair.Side{pair.A, pair.B} {
		err := p.Do(side, func() error {
			link, err := netlink.LinkByName(p.Ends[side].Name)
			if err != nil {
				return err
			}
			at := link.Attrs()
			if at.MTU != 3506 || at.NumRxQueues != 3 || at.NumTxQueues != 3 {
				t.Errorf("side %v: MTU %d, %d rx and %d tx queues", side, at.MTU, at.NumRxQueues, at.NumTxQueues)
			}
			if at.HardwareAddr.String() != p.Ends[side].MAC.String() || at.Index != p.Ends[side].Index {
				t.Errorf("side %v: %v index %d, the Pair says %v", side, at.HardwareAddr, at.Index, p.Ends[side])
			}
			on, err := loader.TxChecksum(p.Ends[side].Name)
			if on {
				t.Errorf("side %v: transmit checksum offload is on", side)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestThreadedNAPI(t *testing.T) {
	p := netns.Pair(t, pair.Config{ThreadedNAPI: true})
	for _, end := range p.Ends {
		if !kernelThread(t, "napi/"+end.Name) {
			t.Errorf("no kernel thread runs NAPI of %s", end.Name)
		}
	}
}

// kernelThread reports whether a process exists whose name begins with prefix.
func kernelThread(t *testing.T, prefix string) bool {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		comm, err := os.ReadFile(name) // the process may have ended since
		if err == nil && strings.HasPrefix(string(comm), prefix) {
			return true
		}
	}
	return false
}

func TestChecksumOffloadKept(t *testing.T) {
	p := netns.Pair(t, pair.Config{ChecksumOffload: true})
	err := p.Do(pair.A, func() error {
		on, err := loader.TxChecksum(p.Ends[pair.A].Name)
		if !on {
			t.Error("transmit checksum offload is off")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestDoReturnsHome(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	home := space(t)
	boom := errors.New("boom")
	if err := p.Do(pair.A, func() error {
		outer := space(t)
		if outer == home {
			t.Error("Do stayed at home")
		}
		if err := p.Do(pair.B, func() error { return nil }); err != nil {
			t.Error(err)
		}
		if space(t) != outer {
			t.Error("a Do within a Do came back elsewhere")
		}
		return boom
	}); err != boom {
		t.Errorf("Do returned %v", err)
	}
	func() {
		defer func() { recover() }()
		p.Do(pair.A, func() error { panic("out") })
	}()
	if space(t) != home {
		t.Error("a panic left the thread in the namespace")
	}
}

func TestConcurrentDo(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	var wg sync.WaitGroup
	for i := range 32 {
		side := pair.Side(i % 2)
		wg.Go(func() {
			err := p.Do(side, func() error {
				_, err := net.InterfaceByName(p.Ends[side].Name)
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

func TestCloseTwiceAndAfter(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	// A socket keeps the namespace, but Close must remove the link.
	var fd int
	err := p.Do(pair.B, func() (err error) {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for range 2 {
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	req, err := unix.NewIfreq(p.Ends[pair.B].Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, req); err != unix.ENODEV {
		t.Errorf("the link after Close: %v, want ENODEV", err)
	}
	if err := p.Do(pair.A, func() error { return nil }); !errors.Is(err, pair.ErrClosed) {
		t.Errorf("Do after Close: %v", err)
	}
}

func TestBadConfigNamesEveryMistake(t *testing.T) {
	_, err := pair.New(pair.Config{MTU: 70000, Queues: 1000, Twin: true, Router: narrow})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"MTU 70000", "1000 queues", "two cables and a router"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not mention %q", err, want)
		}
	}
}

func TestDescriptorsComeBack(t *testing.T) {
	need.Netns(t)
	count := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	cycle := func() {
		p, err := pair.New(pair.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cycle()
	before := count()
	for range 3 {
		cycle()
	}
	if after := count(); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}
