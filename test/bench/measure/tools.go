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

// tool is a program that others measure with: its rows show whether our own
// of the same kind are fair.
type tool struct {
	name string
	rows map[string]func(tool, Case, Options) *Row // by table; alike to the row of that case
}

// tools are those that are run if they are installed.
var tools = []tool{iperf3, sockperf, ucxPerftest}

// addTools puts rows of installed tools behind each row that others are
// compared with.
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

// missingTools names those that are not installed.
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

// toolPort is where tools listen. Nobody else is in their namespace.
const toolPort = 18516

var toolPortText = strconv.Itoa(toolPort)

// match is a tool's server on side B of a pair like the kernel's TCP has, and
// its client on side A.
type match struct {
	tool
	alike          Case     // whose MTU and NAPI setting the pair has
	server, client []string // arguments; addressOf stands for the server's address
	patience       time.Duration
}

const addressOf = "{address}"

// play runs the match and returns what the client printed.
func (m match) play(ctx context.Context) (printed []byte, err error) {
	st, err := newStage(setting{stacks: [2]stack{kernel, kernel}, mtu: m.alike.MTU, threaded: m.alike.NAPI == "threads"})
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
	if err := server.awaitListening(ctx, st.pair); err != nil {
		return nil, err
	}
	client, err := startProcess(ctx, st.pair, from, m.name, fit(st.pair, m.client))
	if err != nil {
		return nil, err
	}
	defer client.stop()
	return client.output(ctx)
}

// fit puts the server's address into arguments.
func fit(p *pair.Pair, args []string) []string {
	args = slices.Clone(args)
	for i, a := range args {
		if a == addressOf {
			args[i] = p.Ends[to].V4.Addr().String()
		}
	}
	return args
}

// result reads what the client printed.
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

// whole is d in seconds, none begun and not finished: tools know no parts.
func whole(d time.Duration) int { return int(max(1, (d+time.Second-1)/time.Second)) }

// within is how long a tool may take that measures for so many seconds.
func within(seconds int) time.Duration { return time.Duration(seconds)*time.Second + 20*time.Second }
