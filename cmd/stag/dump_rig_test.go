package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/rdma"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
)

// dumpUsers has two adapters of this process with connections between them. A dump can capture on both.
type dumpUsers struct {
	*testing.T
	p        *pair.Pair
	adapters [2]*rdma.Adapter
}

func newDumpUsers(t *testing.T) *dumpUsers {
	t.Helper()
	u := &dumpUsers{T: t, p: netns.XDPPair(t, pair.Config{})}
	for side := range u.adapters {
		rig.Must(t, u.p.Do(pair.Side(side), func() (err error) {
			u.adapters[side], err = rdma.Open(rdma.Config{Ports: []string{u.name(pair.Side(side))}})
			return err
		}))
		t.Cleanup(func() { u.close(pair.Side(side)) })
	}
	return u
}

func (u *dumpUsers) name(side pair.Side) string { return u.p.Ends[side].Name }

func (u *dumpUsers) close(side pair.Side) {
	if err := u.adapters[side].Close(); err != nil {
		u.Error(err)
	}
}

func (u *dumpUsers) ctx() context.Context { return rig.Context(u) }

// dumpEnd is one end of a connection.
type dumpEnd struct {
	u  *dumpUsers
	cq *rdma.CQ
	qp *rdma.QP
	mr *rdma.MR
}

const dumpMemory = 1 << 20

func (u *dumpUsers) end(side pair.Side) *dumpEnd {
	u.Helper()
	ep, err := u.adapters[side].CreateEndpoint(rdma.EndpointConfig{
		OneCQ: true, Size: dumpMemory, Access: rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead,
	})
	rig.Must(u.T, err)
	return &dumpEnd{u: u, cq: ep.SendCQ, qp: ep.QP, mr: ep.MR}
}

// connect makes a connection from side A to side B.
func (u *dumpUsers) connect() (x, y *dumpEnd) {
	u.Helper()
	x, y = u.end(pair.A), u.end(pair.B)
	l, err := u.adapters[pair.B].Listen(u.ctx(), u.p.Ends[pair.B].V4.Addr().String()+":0", rdma.ListenConfig{})
	rig.Must(u.T, err)
	defer l.Close()
	dialled := make(chan error, 1)
	go func() { dialled <- x.qp.Dial(u.ctx(), l.Addr().String(), rdma.ConnParams{}) }()
	r, err := l.Accept(u.ctx())
	rig.Must(u.T, err)
	rig.Must(u.T, r.Accept(u.ctx(), y.qp, rdma.ConnParams{}))
	rig.Must(u.T, <-dialled)
	return x, y
}

// do posts one work request and waits for its completion.
func (e *dumpEnd) do(wr rdma.SendWR) {
	e.u.Helper()
	wr.Flags |= rdma.Signaled
	_, err := e.qp.PostSend(wr)
	rig.Must(e.u.T, err)
	e.completion()
}

func (e *dumpEnd) completion() {
	e.u.Helper()
	c, err := e.cq.Next(e.u.ctx())
	rig.Must(e.u.T, err)
	if c.Status != rdma.Success {
		e.u.Fatalf("%+v", c)
	}
}

// talk sends a message of every kind from x to y.
func (u *dumpUsers) talk(x, y *dumpEnd) {
	u.Helper()
	_, err := y.qp.PostRecv(rdma.RecvWR{SGL: []rdma.SGE{y.mr.SGE(0, 4096)}})
	rig.Must(u.T, err)
	x.do(rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{x.mr.SGE(0, 5000)}, RKey: y.mr.RKey()})
	x.do(rdma.SendWR{Op: rdma.WRRead, SGL: []rdma.SGE{x.mr.SGE(0, 3000)}, RKey: y.mr.RKey()})
	x.do(rdma.SendWR{Op: rdma.WRSend, SGL: []rdma.SGE{x.mr.SGE(0, 100)}})
	y.completion()
}

// offend makes y end the connection with a Terminate.
func (u *dumpUsers) offend(x, y *dumpEnd) {
	u.Helper()
	_, err := x.qp.PostSend(rdma.SendWR{Op: rdma.WRWrite, SGL: []rdma.SGE{x.mr.SGE(0, 1)}, RKey: y.mr.RKey() ^ 1})
	rig.Must(u.T, err)
	for _, e := range []*dumpEnd{x, y} {
		select {
		case <-e.qp.Done():
		case <-u.ctx().Done():
			u.Fatal("the connection does not end")
		}
	}
}

// dumping starts a dump and waits until it captures on n devices.
func dumping(t *testing.T, n int, args ...string) *running {
	t.Helper()
	x := launch(t, command(t, append([]string{"dump"}, args...)...))
	for range n {
		x.until("stag: dump: capturing on ")
	}
	return x
}

// own limits a dump to the engines of this process.
var own = []string{"-p", strconv.Itoa(os.Getpid())}

// quiet waits until a file does not grow any more.
func quiet(t *testing.T, file string) {
	t.Helper()
	size, since := int64(-1), time.Now()
	for end := time.Now().Add(patience); time.Since(since) < 500*time.Millisecond; time.Sleep(10 * time.Millisecond) {
		info, err := os.Stat(file)
		rig.Must(t, err)
		if info.Size() != size {
			size, since = info.Size(), time.Now()
		}
		if time.Now().After(end) {
			t.Fatal("the file does not stop growing")
		}
	}
}

// interrupt ends a dump with Ctrl-C and returns all output of the dump.
func (x *running) interrupt() string {
	x.Helper()
	rig.Must(x.T, x.cmd.Process.Signal(os.Interrupt))
	return x.all(0)
}

// fields returns the named fields that tshark reads from a file, one row for each packet.
func fields(t *testing.T, file string, names ...string) (rows [][]string) {
	t.Helper()
	args := []string{"-r", file, "-n", "--disable-protocol", "rpcordma", "-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "occurrence=a"}
	for _, name := range names {
		args = append(args, "-e", name)
	}
	var says bytes.Buffer
	cmd := exec.Command("tshark", args...)
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err != nil || strings.Contains(says.String(), "cut short") {
		t.Fatalf("tshark: %v: %s", err, says.String())
	}
	for line := range strings.Lines(string(out)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows
}

// notes is the standard error of a dump whose output goes to a file or pipe.
type notes struct {
	*testing.T
	cmd *exec.Cmd
	in  *bufio.Reader
}

// piped starts a dump with out as its standard output, and waits until it captures. It closes out in this process.
func piped(t *testing.T, out *os.File, args ...string) (*exec.Cmd, notes) {
	t.Helper()
	r, w, err := os.Pipe()
	rig.Must(t, err)
	t.Cleanup(func() { r.Close() })
	cmd := command(t, append([]string{"dump"}, args...)...)
	cmd.Stdout, cmd.Stderr = out, w
	rig.Must(t, cmd.Start())
	out.Close()
	w.Close()
	n := notes{t, cmd, bufio.NewReader(r)}
	line, err := n.in.ReadString('\n')
	rig.Must(t, err)
	contains(t, line, "capturing on")
	return cmd, n
}

// rest demands that the dump ends with this exit code, and returns the remaining notes.
func (n notes) rest(code int) string {
	n.Helper()
	text, err := io.ReadAll(n.in)
	rig.Must(n.T, err)
	n.cmd.Wait()
	if got := n.cmd.ProcessState.ExitCode(); got != code {
		n.Errorf("exit code %d, want %d: %s", got, code, text)
	}
	return string(text)
}
