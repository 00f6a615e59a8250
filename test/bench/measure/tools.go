package measure

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// tool is another measuring program. Its rows check that stag's own rows of the same
// kind are fair.
type tool struct {
	name string
	rows map[string]func(tool, Case, Options) *Row // by table; each function makes a row of this tool to compare with the row of the given case
}

// tools are the programs that are run if they are installed.
var tools = []tool{iperf3, sockperf, ucxPerftest}

// addTools adds rows of installed tools after each row with the kernel's TCP.
func (t *Table) addTools(o Options) {
	var rows []*Row
	for _, r := range t.Rows {
		rows = append(rows, r)
		if r.Name != kernelTCP {
			continue
		}
		for _, tool := range tools {
			if row := tool.rows[t.Name]; row != nil && tool.installed() {
				rows = append(rows, row(tool, r.Case, o))
			}
		}
	}
	t.Rows = rows
}

// missingTools returns the names of tools that are not installed.
func missingTools() (names []string) {
	for _, t := range tools {
		if !t.installed() {
			names = append(names, t.name)
		}
	}
	return names
}

func (t tool) installed() bool {
	_, err := exec.LookPath(t.name)
	return err == nil
}

// toolPort is the TCP port of a tool's server. No other program listens in that
// namespace.
const toolPort = 18516

var toolPortText = strconv.Itoa(toolPort)

// match is a run of a tool, with its server on side B and its client on side A. The
// pair is set up as for the row with the kernel's TCP.
type match struct {
	tool
	alike          Case     // the pair has the MTU and NAPI setting of this case
	server, client []string // arguments of the two programs; the server's address replaces addressOf
	patience       time.Duration
}

const addressOf = "{address}"

// play runs the match and returns the client's output.
func (m match) play(ctx context.Context) (printed []byte, err error) {
	st, err := newStage(setting{stacks: [2]stack{kernel, kernel}, program: matchProgram(ctx), mtu: m.alike.MTU, threaded: m.alike.NAPI == "threads"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	ctx, cancel := context.WithTimeout(ctx, m.patience)
	defer cancel()
	server, err := startProcess(ctx, st.pair, to, m.name, fit(st.pair, m.server))
	if err != nil {
		return nil, err
	}
	defer server.stop()
	if err := server.awaitListening(ctx, st.pair, toolPort); err != nil {
		return nil, err
	}
	client, err := startProcess(ctx, st.pair, from, m.name, fit(st.pair, m.client))
	if err != nil {
		return nil, err
	}
	defer client.stop()
	return client.output(ctx)
}

// fit replaces addressOf in args by the server's address.
func fit(p *pair.Pair, args []string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		if a == addressOf {
			args[i] = p.Ends[to].V4.Addr().String()
		}
	}
	return args
}

// result runs the match and lets read parse the client's output.
func (m match) result(ctx context.Context, read func([]byte) (Values, error)) (Values, error) {
	printed, err := m.play(ctx)
	if err != nil {
		return nil, err
	}
	v, err := read(printed)
	if err != nil {
		return nil, fmt.Errorf("%s printed what cannot be read: %w", m.name, err)
	}
	return v, nil
}

// whole returns d in seconds, rounded up, because tools accept only whole seconds.
func whole(d time.Duration) int { return int(max(1, (d+time.Second-1)/time.Second)) }

// within returns how long a tool that measures for that many seconds may run.
func within(seconds int) time.Duration { return time.Duration(seconds)*time.Second + 20*time.Second }
