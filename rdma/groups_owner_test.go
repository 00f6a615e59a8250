package rdma

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// ownerGroup is the variable with the name of the group that an owner joins.
const ownerGroup = "STAG_RDMA_OWNER_GROUP"

// ownerPD is the protection domain that owners share.
const ownerPD = "pool"

// owner is a process that owns regions for others. It obeys one command for each line of
// in, and answers with one line:
//
//	alloc SIZE ACCESS   a region of the heap: its STag
//	own SIZE            a region of the Go heap
//	pages               a region of two pages of the heap that are apart
//	touch               a region of one touch
//	private             a region of a protection domain that is not shared
//	fill STAG SEED      fill a region
//	sum STAG            the checksum of a region
//	close STAG          close a region
//	answered            how often the process has sent its list
func owner(group string, in io.Reader, out io.Writer) error {
	a, err := Open(Config{KernelPort: true, MemoryGroup: group, RegionHeap: 8 << 20, MaxRegions: groupRegions})
	if err != nil {
		return err
	}
	defer a.Close()
	pd, err := a.AllocSharedPD(ownerPD)
	if err != nil {
		return err
	}
	alone, err := a.AllocPD()
	if err != nil {
		return err
	}
	o := &owning{a: a, pd: pd, alone: alone, regions: map[uint32]*MR{}}
	fmt.Fprintln(out, "ready")
	for lines := bufio.NewScanner(in); lines.Scan(); {
		answer, err := o.obey(lines.Text())
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Fprintln(out, answer)
	}
	return nil
}

type owning struct {
	a         *Adapter
	pd, alone *PD
	regions   map[uint32]*MR
}

func (o *owning) obey(line string) (string, error) {
	var stag uint32
	var n int
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "alloc":
		var access Access
		fmt.Sscan(rest, &n, &access)
		return o.made(o.pd.AllocMR(n, access))
	case "own":
		fmt.Sscan(rest, &n)
		return o.made(o.pd.RegMR(make([]byte, n), all))
	case "pages":
		mr, err := o.pd.AllocMR(3*4096, all)
		if err != nil {
			return "", err
		}
		return o.made(o.pd.RegMRPages([][]byte{mr.Bytes()[:4096], mr.Bytes()[8192:]}, all))
	case "touch":
		return o.made(o.pd.AllocMR(4096, LocalWrite|RemoteWrite|OneTouch))
	case "private":
		return o.made(o.alone.AllocMR(4096, all))
	case "fill":
		fmt.Sscan(rest, &stag, &n)
		fill(o.regions[stag].Bytes(), n)
		return "filled", nil
	case "sum":
		fmt.Sscan(rest, &stag)
		return fmt.Sprintf("%x", sha256.Sum256(o.regions[stag].Bytes())), nil
	case "close":
		fmt.Sscan(rest, &stag)
		return "closed", o.regions[stag].Close()
	case "answered":
		for _, c := range groupCounters(o.a) {
			if c.Name == "answered" {
				return fmt.Sprint(c.Value), nil
			}
		}
	}
	return "", errors.New("unknown command")
}

func (o *owning) made(mr *MR, err error) (string, error) {
	if err != nil {
		return "", err
	}
	o.regions[uint32(mr.RKey())] = mr
	return fmt.Sprint(uint32(mr.RKey())), nil
}

// ownerProcess is an owner as its parent sees it.
type ownerProcess struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startOwner starts an owner in a group.
func startOwner(t testing.TB, group string) *ownerProcess {
	t.Helper()
	p := &ownerProcess{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), ownerGroup+"="+group)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	p.out = bufio.NewReader(out)
	if line := p.line(); line != "ready" {
		t.Fatalf("the owner says %q", line)
	}
	return p
}

func (p *ownerProcess) line() string {
	p.t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.t.Fatalf("the owner says %q, %v", line, err)
	}
	return strings.TrimSpace(line)
}

// do sends a command, and returns the answer.
func (p *ownerProcess) do(format string, args ...any) string {
	p.t.Helper()
	fmt.Fprintf(p.in, format+"\n", args...)
	line := p.line()
	if strings.HasPrefix(line, "error") {
		p.t.Fatalf("%s: the owner says %q", fmt.Sprintf(format, args...), line)
	}
	return line
}

// region sends a command that makes a region, and returns the region's STag.
func (p *ownerProcess) region(format string, args ...any) STag {
	p.t.Helper()
	var stag uint32
	if _, err := fmt.Sscan(p.do(format, args...), &stag); err != nil {
		p.t.Fatal(err)
	}
	return STag(stag)
}

// sum returns the checksum of the region.
func (p *ownerProcess) sum(s STag) string { p.t.Helper(); return p.do("sum %d", uint32(s)) }

// kill ends the owner, which cannot clean up.
func (p *ownerProcess) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait() // the error is the signal
}

// leave ends the owner in good order.
func (p *ownerProcess) leave() {
	p.t.Helper()
	p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Error(err)
	}
}
