package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/offload/octets"
	"github.com/stag-rdma/stag/offload/portable"
	"github.com/stag-rdma/stag/offload/stream"
	"github.com/stag-rdma/stag/offload/upgrade"
)

// These variables of a holder are its interfaces, the socket of the process that it succeeds,
// and the step at which it kills itself.
const (
	holderLink = "STAG_E2E_HOLDER_LINK"
	holderFrom = "STAG_E2E_HOLDER_FROM"
	holderDies = "STAG_E2E_HOLDER_DIES"

	strangerAt = "STAG_E2E_STRANGER" // the socket to which a stranger connects
)

// What a holder can do wrong instead of dying, as a value of holderDies.
const (
	tooMany     = "room for more flows than the program"
	otherLayers = "other layers"
)

// holder is a process that runs connections, and hands them to the next holder. Its commands
// are lines of its standard input. It answers each with one line.
//
//	dial ADDRESS     connect and take over: "ok"
//	quiet ADDRESS    the same for a connection that echoes: "ok"
//	offer PATH STEP  listen at PATH and hand over; die at STEP if it is not "-": "listening", then "handed …" or "kept …"
//	halt N           let connection N close its direction: "ok"
//	stop             end all connections in good order: "ended SENT RECEIVED ERROR" for each, then "ok"
//	flows            "flows N…": the number of connections of each interface
type holder struct {
	nics  []*nic.NIC
	ulps  []*duplex
	flows []*nic.Flow
}

// stopAt begins the name of a step at which a holder stops instead of dying.
const stopAt = "stop at "

// killAt returns a function that kills this process at a step.
func killAt(step string) func(string) {
	return func(at string) {
		if at == strings.TrimPrefix(step, stopAt) && at != step {
			unix.Kill(os.Getpid(), unix.SIGSTOP)
		}
		if at == step {
			unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
}

func runHolder(links, from string) error {
	runtime.LockOSThread()
	if err := unix.Setns(victimSpace, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the namespace: %w", err)
	}
	h := &holder{}
	if err := h.open(strings.Split(links, ","), from); err != nil {
		return err
	}
	fmt.Println("ready", len(h.flows))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		left, err := h.obey(words)
		if err != nil {
			return err
		}
		if left {
			return h.close()
		}
	}
	return in.Err() // until this process is killed or its parent ends
}

func (h *holder) close() (err error) {
	for _, n := range h.nics {
		err = errors.Join(err, n.Close())
	}
	return err
}

func (h *holder) open(links []string, from string) (err error) {
	var cfgs []nic.Config
	for _, link := range links {
		cfgs = append(cfgs, nic.Config{Link: link})
	}
	if from == "" {
		h.nics, err = nic.OpenAll(cfgs...)
		return err
	}
	conn, err := upgrade.Connect(context.Background(), from)
	if err != nil {
		return err
	}
	s, err := upgrade.Begin(context.Background(), conn)
	if err != nil {
		return err
	}
	s.At = killAt(os.Getenv(holderDies))
	s.ImportULP = func(f *upgrade.Flow) (stream.ULP, error) {
		if os.Getenv(holderDies) == otherLayers {
			f.Object.Kind = "other/1"
		}
		return importULP(*f.Object)
	}
	for i, link := range links {
		if os.Getenv(holderDies) == tooMany {
			cfgs[i].MaxFlows = 1 << 20
		}
		cfgs[i].Inherit, cfgs[i].Ready = s.Inheritance(link), s.Ready
	}
	if err = s.Check(links); err == nil {
		h.nics, err = nic.OpenAll(cfgs...)
	}
	if err == nil {
		if err = s.Commit(); err != nil {
			err = errors.Join(err, h.close())
		}
	}
	if err != nil {
		s.Refuse(err)
		return err
	}
	_, lost := s.Install(context.Background(), h.nics, nil, func(f *upgrade.Flow, got *nic.Flow) {
		if d, ok := f.Parted.ULP.(*duplex); ok {
			h.ulps, h.flows = append(h.ulps, d), append(h.flows, got)
		}
	})
	return errors.Join(lost...)
}

func (h *holder) obey(words []string) (left bool, err error) {
	switch words[0] {
	case "dial":
		d := newDuplex()
		f, err := h.dial(words[1], d)
		if err != nil {
			return false, err
		}
		h.ulps, h.flows = append(h.ulps, d), append(h.flows, f)
		fmt.Println("ok")
	case "quiet":
		if _, err := h.dial(words[1], octets.NewEcho()); err != nil {
			return false, err
		}
		fmt.Println("ok")
	case "offer":
		return h.offer(words[1], words[2])
	case "stop":
		for _, d := range h.ulps {
			d.stop.Store(true)
		}
		for i, d := range h.ulps {
			h.flows[i].Ring()
			<-d.done
			fmt.Println("ended", d.sent.Load(), d.received.Load(), d.err)
		}
		fmt.Println("ok")
	case "halt":
		i, err := strconv.Atoi(words[1])
		if err != nil {
			return false, err
		}
		h.ulps[i].stop.Store(true)
		h.flows[i].Ring()
		fmt.Println("ok")
	case "flows":
		var counts []int
		for _, n := range h.nics {
			counts = append(counts, len(n.Flows()))
		}
		fmt.Println("flows", strings.Trim(fmt.Sprint(counts), "[]"))
	}
	return false, nil
}

func (h *holder) dial(peer string, u stream.ULP) (*nic.Flow, error) {
	c, err := net.Dial("tcp", peer)
	if err != nil {
		return nil, err
	}
	return h.nics[0].Take(context.Background(), c.(*net.TCPConn), u, nic.DefaultOptions)
}

func (h *holder) offer(path, dies string) (left bool, err error) {
	ctx := context.Background()
	l, err := upgrade.Listen(ctx, path)
	if err != nil {
		return false, err
	}
	fmt.Println("listening")
	c, err := upgrade.Accept(ctx, l, func(err error) { fmt.Println("refused", err) })
	l.Close()
	if err != nil {
		return false, err
	}
	o := upgrade.Offer{NICs: h.nics, At: killAt(dies)}
	got, err := o.Run(ctx, c)
	if err != nil {
		fmt.Println("kept", strings.ReplaceAll(err.Error(), "\n", "; "))
		return false, nil
	}
	for _, d := range h.ulps {
		<-d.done
		if d.err != nil && !errors.Is(d.err, portable.ErrUpgraded) { // nil: it ended before
			return true, fmt.Errorf("an upper layer got %w", d.err)
		}
	}
	fmt.Println("handed", got.Flows, len(got.Lost), got.Frozen.Nanoseconds(), got.Waiting.Nanoseconds())
	return true, nil
}

// heir is a holder that a test has started.
type heir struct {
	*rig
	links string
	cmd   *exec.Cmd
	in    *os.File
	out   *bufio.Reader
}

// stranger connects to the socket of an upgrade as another user, and waits until it is refused.
func stranger(path string) error {
	c, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		return fmt.Errorf("a stranger got %d octets and %w", n, err)
	}
	return nil
}

// holds starts a holder in the local side's namespace. from is the socket of the one before.
func (r *rig) holds(from, dies string) *heir {
	r.Helper()
	return r.holdsOn(r.pair.Ends[ours].Name, from, dies)
}

// holdsOn is holds for several interfaces, with commas between their names.
func (r *rig) holdsOn(links, from, dies string) *heir {
	r.Helper()
	var space *os.File
	r.in(ours, func() (err error) {
		space, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	defer space.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderLink+"="+links, holderFrom+"="+from, holderDies+"="+dies)
	cmd.ExtraFiles = []*os.File{space}
	cmd.Stderr = os.Stderr
	theirIn, in, err := os.Pipe()
	r.Must(err)
	defer theirIn.Close()
	cmd.Stdin = theirIn
	out, err := cmd.StdoutPipe()
	r.Must(err)
	r.Must(cmd.Start())
	h := &heir{r, links, cmd, in, bufio.NewReader(out)}
	r.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	return h
}

// says returns the words of the next line.
func (h *heir) says(first string) []string {
	h.Helper()
	line, err := h.out.ReadString('\n')
	words := strings.Fields(line)
	if len(words) == 0 || words[0] != first {
		h.Fatalf("the process says %q, %v, want %s", line, err, first)
	}
	return words[1:]
}

func (h *heir) do(command string) {
	h.Helper()
	_, err := fmt.Fprintln(h.in, command)
	h.Must(err)
}

// isKilled waits until the process has been killed.
func (h *heir) isKilled() {
	h.Helper()
	var exit *exec.ExitError
	if err := h.cmd.Wait(); !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != unix.SIGKILL {
		h.Fatalf("the process ended with %v, and was to be killed", err)
	}
}

// fails waits until the process has ended with an error that contains why.
func (h *heir) fails(why string) {
	h.Helper()
	all, err := io.ReadAll(h.out)
	h.Must(err)
	if err := h.cmd.Wait(); err == nil || !strings.Contains(string(all), why) {
		h.Fatalf("the process says %q and ends with %v, want %q", all, err, why)
	}
}

// ends waits for the end of the process.
func (h *heir) ends() {
	h.Helper()
	h.in.Close()
	h.Must(h.cmd.Wait())
}

// handOver starts the next holder, to which h hands everything. It returns the next one, and
// how long connections were frozen.
func (h *heir) handOver() (next *heir, frozen time.Duration) {
	h.Helper()
	path := h.socket()
	h.do("offer " + path + " -")
	h.says("listening")
	next = h.holdsOn(h.links, path, "")
	words := h.says("handed")
	next.says("ready")
	if words[1] != "0" {
		h.Errorf("%s of %s connections were lost", words[1], words[0])
	}
	ns, err := strconv.ParseInt(words[2], 10, 64)
	h.Must(err)
	h.ends()
	return next, time.Duration(ns)
}

// socket returns a fresh path for a socket.
func (h *heir) socket() string {
	dir, err := os.MkdirTemp("", "stag-upgrade")
	h.Must(err)
	h.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}
