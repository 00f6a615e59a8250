// Package run implements `stag run`: a program for libibverbs and librdmacm uses the adapter
// of a daemon.
//
// The process becomes the program (execve), so that signals, the terminal and the exit
// status are the program's. If no daemon runs, another process is one, until the program
// has ended.
package run

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/internal/carrier"
	stagd "github.com/stag-rdma/stag/cmd/stag/internal/daemon"
	"github.com/stag-rdma/stag/rdma/daemon"
	"github.com/stag-rdma/stag/rdma/proto"
)

// Options are the options of a run.
type Options struct {
	Interfaces    []string // ports that the daemon must have; nil: any
	KernelPort    bool     // a daemon of its own, over the kernel's TCP
	carrier.Asked          // for a daemon that is started
	Generic       bool     // for a daemon that is started
	Socket        string   // of the daemon; "": stagd.Socket
	Personality   string   // iwarp, roce or ""
	Program       []string // program and arguments
	Verbosity     int      // how many -v the daemon gets

	Log io.Writer // lines for people
}

// Personalities are the values of Options.Personality.
var Personalities = []string{"iwarp", "roce"}

const personalityVariable = "STAG_PERSONALITY"

// Exec becomes the program. Exec returns only an error.
func Exec(o Options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	p, err := find(o.Program[0])
	if err != nil {
		return err
	}
	dir, err := libraries(self)
	if err != nil {
		return err
	}
	socket, err := reach(self, o)
	if err != nil {
		return err
	}
	changes := map[string]string{proto.SocketVariable: socket, "LD_LIBRARY_PATH": before(dir, os.Getenv("LD_LIBRARY_PATH"))}
	if o.Personality != "" {
		changes[personalityVariable] = o.Personality
	}
	runtime.LockOSThread()
	if o.Personality == "roce" {
		if err := hideNodes(); err != nil {
			fmt.Fprintf(o.Log, "UCX will not find the device, because there is no %s: %v\n", filepath.Join(nodes, daemon.DeviceName), err)
		}
	}
	err = unix.Exec(p.path, o.Program, environment(os.Environ(), changes))
	return fmt.Errorf("execute %s: %w", p.path, err)
}

// reach returns the socket of a daemon as the options want it, and starts one if there is none.
func reach(self string, o Options) (string, error) {
	if o.KernelPort && o.Socket == "" {
		return start(self, "", o)
	}
	path := o.Socket
	if path == "" {
		path = stagd.Socket()
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if daemon.Serves(path) {
		return path, suits(path, o)
	}
	at := path
	if len(o.Interfaces) == 0 {
		o.KernelPort, o.Asked = true, carrier.Asked{}
		if o.Socket == "" {
			fmt.Fprintf(o.Log, "no daemon serves %s: the program gets one over the kernel's TCP. For an interface: --device IFACE\n", path)
			at = writable(path)
		}
	}
	at, err = start(self, at, o)
	if err != nil && at == path && daemon.Serves(path) { // somebody else was faster
		return path, suits(path, o)
	}
	return at, err
}

// writable returns the path if this user can make a socket there, and "" otherwise.
func writable(path string) string {
	dir := filepath.Dir(path)
	if os.MkdirAll(dir, 0o755) != nil || unix.Access(dir, unix.W_OK) != nil {
		return ""
	}
	return path
}

// suits checks that a running daemon has the interfaces that are asked for.
func suits(path string, o Options) error {
	if len(o.Interfaces) == 0 && !o.KernelPort {
		return nil
	}
	ports, err := daemon.Ask(path)
	if err != nil {
		return fmt.Errorf("the daemon at %s: %w", path, err)
	}
	if o.Chooses() && slices.Contains(ports, "") {
		return nil // a daemon that chose, too, has chosen the kernel's TCP
	}
	for _, name := range o.Interfaces {
		if !slices.Contains(ports, name) {
			return fmt.Errorf("the daemon at %s serves %s, and not %s: choose another --socket", path, described(ports), name)
		}
	}
	if o.KernelPort && !slices.Contains(ports, "") {
		return fmt.Errorf("the daemon at %s serves %s: choose another --socket for --carrier kernel", path, described(ports))
	}
	return nil
}

func described(ports []string) string {
	if slices.Contains(ports, "") {
		return "the kernel port"
	}
	return strings.Join(ports, ", ")
}

var errNoDaemon = errors.New("the daemon ended without a word")
