//go:build verbs

package verbs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/excuse"
	"github.com/stag-rdma/stag/test/rig"
)

// patience limits every wait of a row.
const patience = 30 * time.Second

// The addresses of the two sides (package pair).
const addrA, addrB = "192.0.2.1", "192.0.2.2"

// long reports whether rows take large numbers.
var long = os.Getenv("STAG_LONG") == "1"

// brief reports whether only some rows of each kind run.
var brief = os.Getenv("STAG_BRIEF") == "1"

// row is a program with its options.
type row struct {
	title          string // name of the row; "": the client's command line
	server, client string // command lines; the server's may be empty
	port           int    // TCP port on which the server listens; 0: there is none
	stays          bool   // the server does not end by itself
	kernel         bool   // the row also runs over the kernel's TCP
	more           bool   // the row does not run with STAG_BRIEF=1
	env            []string

	// excuse returns why a failure of programs that print this is tried again, or "". nil: never.
	excuse func(outputs ...string) string

	// check looks at what the two programs printed.
	check func(t *trial, server, client string)
}

// roce is the environment of programs that take the device for a RoCE adapter.
var roce = []string{"STAG_PERSONALITY=roce"}

// name is the name of the row's test, and its name in the table of docs/verbs.md.
func (r *row) name() string {
	if r.title != "" {
		return r.title
	}
	name := r.client
	for _, word := range []string{" -s " + addrA, " -a " + addrA, " " + addrA} {
		name = strings.Replace(name, word, "", 1)
	}
	return name
}

// play runs rows over native XDP, and those with kernel set over the kernel's TCP. With
// STAG_BRIEF=1 it leaves out those with more set.
func play(t *testing.T, rows ...row) {
	t.Helper()
	for _, where := range []string{"xdp", "kernel"} {
		t.Run(where, func(t *testing.T) {
			for _, r := range rows {
				if (where == "xdp" || r.kernel) && !(r.more && brief) {
					judge(t, where, r.name(), r.client, r.run)
				}
			}
		})
	}
}

// run runs a row, and again as long as there is an excuse for its failure.
func (r *row) run(t *trial) {
	for n := 1; ; n++ {
		one := &trial{world: t.world, excuse: r.excuse}
		one.try(r.once)
		why := one.excused()
		if !one.Failed() || why == "" || n == excuse.Tries {
			t.failures, t.logs = append(t.failures, one.failures...), append(t.logs, one.logs...)
			return
		}
		t.Logf("tried again: %s", why)
	}
}

// once runs the server and the client of a row.
func (r *row) once(t *trial) {
	var server *process
	var said string
	if r.server != "" {
		rig.Eventually(t, "the port is free", func() bool { return r.port == 0 || !t.listens(pair.A, r.port) })
		server = t.begin(pair.A, r.server, r.env)
		t.await(server, r.port)
	}
	client := t.begin(pair.B, r.client, r.env)
	defer func() {
		if t.Failed() {
			t.Logf("%s\n%s", r.server, tail(said))
			t.Logf("%s\n%s", r.client, tail(client.out.String()))
		}
	}()
	if err := t.within(client, limit()); err != nil {
		t.Errorf("the client: %v", err)
	}
	if server != nil {
		r.finish(t, server)
		said = server.out.String()
	}
	if r.check != nil && !t.Failed() {
		r.check(t, said, client.out.String())
	}
}

// finish waits for the end of the server.
func (r *row) finish(t *trial, server *process) {
	if !r.stays && !t.Failed() {
		if err := t.within(server, patience/4); err != nil {
			t.Errorf("the server: %v", err)
		}
	}
	server.kill()
}

// limit is the longest time of a client. perftest measures the processor's clock before it prints
// a line, for seconds on a busy machine, so that -a takes a minute.
func limit() time.Duration {
	if long {
		return 10 * time.Minute
	}
	return 3 * time.Minute
}

// begin starts a program. It is killed at the end of the test.
func (t *trial) begin(side pair.Side, line string, env []string) *process {
	p, err := t.program(side, words(line), env...)
	t.must(err)
	t.ran = append(t.ran, p)
	t.Cleanup(p.kill)
	return p
}

// excused returns why the trial may be tried again, or "".
func (t *trial) excused() string {
	if t.excuse == nil {
		return ""
	}
	var said []string
	for _, p := range t.ran {
		said = append(said, p.out.String())
	}
	return t.excuse(said...)
}

// within waits for the end of a program, and returns how the program ended. It waits no longer when
// there is an excuse: the programs may then wait for ever.
func (t *trial) within(p *process, d time.Duration) error {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for end := time.After(d); ; {
		select {
		case <-p.done:
			return p.err
		case <-end:
			return errors.New("still runs after " + d.String())
		case <-look.C:
			if why := t.excused(); why != "" {
				return errors.New(why)
			}
		}
	}
}

// words splits a command line at spaces. Words may be quoted.
func words(line string) (list []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			list = append(list, part)
			continue
		}
		list = append(list, strings.Fields(part)...)
	}
	return list
}

// await waits until a server listens.
func (t *trial) await(server *process, port int) {
	for end := time.Now().Add(patience / 4); !server.listens(port); time.Sleep(5 * time.Millisecond) {
		if server.ended() || time.Now().After(end) {
			t.Fatalf("%v does not listen on port %d\n%s", server.cmd.Args, port, tail(server.out.String()))
		}
	}
}

// tail returns the last lines of an output.
func tail(s string) string {
	const most = 3000
	if len(s) > most {
		s = "..." + s[len(s)-most:]
	}
	return s
}

// says returns a check that the client prints all words.
func says(words ...string) func(t *trial, server, client string) {
	return func(t *trial, _, client string) {
		for _, word := range words {
			if !strings.Contains(client, word) {
				t.Errorf("the client does not say %q", word)
			}
		}
	}
}

// pick returns a number for CI or for a long run.
func pick(short, more int) string {
	if long {
		return fmt.Sprint(more)
	}
	return fmt.Sprint(short)
}
