package daemon

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/rdma/proto"
)

// askLimit limits the time for an answer of a daemon.
const askLimit = 5 * time.Second

// Ask returns the names of the interfaces that the daemon at a path serves. The name of the
// kernel port is "".
func Ask(path string) ([]string, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(askLimit))
	ports, err := greetDaemon(c)
	if err != nil {
		return nil, err
	}
	var names []string
	for n := range ports {
		m := &proto.Message{Op: proto.OpPort}
		m.Port().PortNum = n + 1
		fds, err := call(c, m, nil)
		closeAll(fds)
		if err != nil {
			return nil, err
		}
		name, _, _ := bytes.Cut(m.Port().Netdev[:], []byte{0})
		names = append(names, string(name))
	}
	return names, nil
}

// greetDaemon says HELLO, and returns the number of ports.
func greetDaemon(c *net.UnixConn) (uint32, error) {
	mem, err := os.OpenFile("/proc/self/mem", os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer mem.Close()
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	defer maps.Close()
	m := &proto.Message{Op: proto.OpHello}
	*m.Hello() = proto.Hello{Version: proto.Version, Layout: proto.LayoutVersion, MessageLen: uint32(proto.MessageLen)}
	fds, err := call(c, m, []int{int(mem.Fd()), int(maps.Fd())})
	closeAll(fds)
	return m.Hello().Ports, err
}

// call executes a request. The answer is in m.
func call(c *net.UnixConn, m *proto.Message, fds []int) ([]int, error) {
	if err := writeMessage(c, m, fds); err != nil {
		return nil, err
	}
	got, err := readMessage(c, m)
	if err == nil && m.Err != 0 {
		err = fmt.Errorf("request %d: %w", m.Op, unix.Errno(m.Err))
	}
	return got, err
}
