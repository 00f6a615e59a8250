package measure

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/excuse"
)

// clientMemory says how the adapter reaches the memory of a C program.
type clientMemory string

const (
	ofProgram clientMemory = ""       // the program uses the Go library: the memory is in the same process
	copied    clientMemory = "copied" // memory of malloc: the kernel copies
	mapped    clientMemory = "mapped" // a shared file: the daemon maps it

	// The program is a Go program whose adapter is in the daemon. Its memory is a shared file. As with
	// C programs, there are as many threads that poll as programs and daemons together.
	goThrough clientMemory = "through the daemon"
)

// isC reports whether the programs are C programs.
func (m clientMemory) isC() bool { return m == copied || m == mapped }

// programCase is a test of perftest between two programs. With memory of a C program,
// the programs are perftest's own, and each side has a daemon. Otherwise they are stag
// perf, which has perftest's options and output.
type programCase struct {
	test       string // name of the test as in perftest, such as write_bw
	memory     clientMemory
	kernelPort bool
	octets     int
	pairs      int // pairs of programs that run at the same time
}

// title names the case without its size.
func (c programCase) title() string {
	who := "Go library"
	switch {
	case c.memory.isC():
		who = "C program, " + string(c.memory)
	case c.memory == goThrough:
		who = "Go program " + string(c.memory)
	}
	if c.kernelPort {
		who += ", kernel port"
	}
	return c.test + ", " + who
}

// programStage is a pair of namespaces with what the programs of a case need.
type programStage struct {
	programCase
	*stage
	stag    string
	dir     string // of sockets and of the memory of programs
	daemons [2]*process
}

// build builds what the case needs of this checkout.
func (c programCase) build(ctx context.Context) error {
	if !c.memory.isC() {
		_, err := stagCommand(ctx)
		return err
	}
	_, err := verbsLibraries(ctx)
	return err
}

// bed makes the pair of a case, and starts the daemons.
func (c programCase) bed(ctx context.Context) (_ *programStage, err error) {
	s := setting{stacks: [2]stack{kernel, kernel}, mtu: 1500}
	ps := &programStage{programCase: c}
	if ps.stag, err = stagCommand(ctx); err != nil {
		return nil, err
	}
	p, err := pair.New(pair.Config{MTU: s.mtu})
	if err != nil {
		return nil, err
	}
	ps.stage = &stage{setting: s, pair: p}
	if ps.dir, err = os.MkdirTemp("/dev/shm", "stag-bench-"); err == nil && c.memory != ofProgram {
		err = ps.startDaemons(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, ps.close())
	}
	return ps, nil
}

func (ps *programStage) close() error {
	for _, d := range ps.daemons {
		if d != nil {
			d.end()
		}
	}
	return errors.Join(os.RemoveAll(ps.dir), ps.stage.close())
}

func (ps *programStage) startDaemons(ctx context.Context) (err error) {
	for _, side := range []pair.Side{from, to} {
		args := []string{"daemon", "--socket", ps.socket(side)}
		if ps.daemons[side], err = startProcess(ctx, ps.pair, side, ps.stag, append(args, ps.carrier(side, "-i")...)); err != nil {
			return err
		}
		if err = ps.daemons[side].awaitFile(ctx, ps.socket(side)); err != nil {
			return err
		}
	}
	return nil
}

func (ps *programStage) socket(side pair.Side) string {
	return filepath.Join(ps.dir, fmt.Sprintf("daemon%d", side))
}

// carrier is what carries the connections of a side, as options of stag. option is the
// name of the option for an interface.
func (ps *programStage) carrier(side pair.Side, option string) []string {
	if ps.kernelPort {
		return []string{"--kernel-port"}
	}
	return []string{option, ps.pair.Ends[side].Name}
}

// awaitFile waits until the process has made a file.
func (x *process) awaitFile(ctx context.Context, name string) error {
	for {
		if _, err := os.Stat(name); err == nil {
			return nil
		}
		select {
		case <-x.done: // also when ctx has ended
			return x.complaint(ctx)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// start starts a program of the case on a side. The i-th pair of programs has a port of its
// own.
func (ps *programStage) start(ctx context.Context, side pair.Side, i int, options ...string) (*process, error) {
	args := append([]string{"-F", "-p", strconv.Itoa(toolPort + i), "-s", strconv.Itoa(ps.octets)}, options...)
	if side == from {
		args = append(args, ps.pair.Ends[to].V4.Addr().String())
	}
	switch ps.memory {
	case goThrough:
		return startProcess(ctx, ps.pair, side, ps.stag, append([]string{"perf", ps.test, "--daemon=" + ps.socket(side)}, args...))
	case ofProgram:
		return startProcess(ctx, ps.pair, side, ps.stag, append(append([]string{"perf", ps.test}, ps.carrier(side, "-d")...), args...))
	}
	libraries, err := verbsLibraries(ctx)
	if err != nil {
		return nil, err
	}
	if ps.memory == mapped {
		file := filepath.Join(ps.dir, fmt.Sprintf("memory%d.%d", side, i))
		if err := os.WriteFile(file, make([]byte, 4<<20), 0o600); err != nil {
			return nil, err
		}
		args = append(args, "--mmap="+file)
	}
	return startProcess(ctx, ps.pair, side, "ib_"+ps.test, append([]string{"-R"}, args...), "STAG_DAEMON="+ps.socket(side), "LD_LIBRARY_PATH="+libraries)
}

// run runs all pairs of programs once, and returns the last line of numbers of each client.
func (ps *programStage) run(ctx context.Context, options ...string) (lines [][]float64, err error) {
	var all []*process
	defer func() {
		for _, x := range all {
			x.stop()
		}
	}()
	for i := range ps.pairs {
		server, err := ps.start(ctx, to, i, options...)
		if err != nil {
			return nil, err
		}
		all = append(all, server)
		if err := server.awaitListening(ctx, ps.pair, toolPort+i); err != nil {
			return nil, err
		}
	}
	clients := make([]*process, ps.pairs)
	for i := range clients {
		if clients[i], err = ps.start(ctx, from, i, options...); err != nil {
			return nil, err
		}
		all = append(all, clients[i])
	}
	for _, x := range clients {
		out, err := outputOf(ctx, x, all)
		if err != nil {
			return nil, err
		}
		numbers, err := lastNumbers(out)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.name, err)
		}
		lines = append(lines, numbers)
	}
	for _, server := range all[:ps.pairs] { // a server that fails has not verified its end
		if _, err := outputOf(ctx, server, all); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// excused is the error of a run that a fault of perftest has spoilt.
type excused struct{ why string }

func (e excused) Error() string { return e.why }

// outputOf waits for the end of x, which is one of the programs of a run, and returns its output.
// If perftest has spoilt the run, outputOf does not wait, because the programs may then wait for
// each other for ever. It returns excused.
func outputOf(ctx context.Context, x *process, all []*process) ([]byte, error) {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for ended := false; !ended; {
		select {
		case <-x.done: // also when ctx has ended
			ended = true
		case <-look.C:
		}
		for _, y := range all {
			if why := excuse.Of(y.out.String(), y.err.String()); why != "" {
				return nil, excused{why}
			}
		}
	}
	return x.output(ctx)
}

// retries is how often a row was measured again, by reason.
type retries map[string]int

// until measures until perftest has not spoilt the measurement. It counts the measurements that
// perftest has spoilt.
func (a retries) until(measure func() (Values, error)) (Values, error) {
	for n := 1; ; n++ {
		v, err := measure()
		spoilt := excused{}
		if !errors.As(err, &spoilt) || n == excuse.Tries {
			return v, err
		}
		a[spoilt.why]++
	}
}

// lastNumbers returns the last line of perftest's output that has only numbers.
func lastNumbers(out []byte) (numbers []float64, err error) {
	for line := range bytes.Lines(out) {
		fields := strings.Fields(string(line))
		found := make([]float64, 0, len(fields))
		for _, f := range fields {
			n, err := strconv.ParseFloat(f, 64)
			if err != nil {
				break
			}
			found = append(found, n)
		}
		if len(found) == len(fields) && len(found) > 3 {
			numbers = found
		}
	}
	if numbers == nil {
		return nil, fmt.Errorf("no line of numbers in its output: %q", out)
	}
	return numbers, nil
}

// libraries are the C libraries of this checkout, built once in a run.
var libraries struct {
	once sync.Once
	dir  string
	err  error
}

// verbsLibraries returns the directory of libibverbs.so.1 and librdmacm.so.1 of this
// checkout. removeCommand removes it.
func verbsLibraries(ctx context.Context) (string, error) {
	libraries.once.Do(func() {
		stag, err := stagCommand(ctx)
		if err != nil {
			libraries.err = err
			return
		}
		libraries.dir = filepath.Join(filepath.Dir(stag), "verbs")
		top, err := goCommand(ctx, ".", "list", "-m", "-f", "{{.Dir}}")
		if err != nil {
			libraries.err = err
			return
		}
		out, err := exec.CommandContext(ctx, "make", "-C", top, "verbs", "BIN="+filepath.Dir(stag)).CombinedOutput()
		if err != nil {
			libraries.err = fmt.Errorf("make verbs: %w: %s", err, bytes.TrimSpace(out))
		}
	})
	return libraries.dir, libraries.err
}
