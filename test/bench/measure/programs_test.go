package measure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/excuse"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
)

// rejected is what a client of perftest prints that came before its server listened again.
const rejected = "Unexpected CM event bl blka 8\nRDMA_CM_EVENT_REJECTED, error=0"

// TestRetries checks that only what perftest has spoilt is measured again, and not for ever.
func TestRetries(t *testing.T) {
	why := excuse.Of(rejected)
	other := errors.New("another failure")
	for name, c := range map[string]struct {
		fails   []error
		want    error
		retries retries
	}{
		"none":    {nil, nil, retries{}},
		"twice":   {[]error{excused{why}, fmt.Errorf("the client: %w", excused{why})}, nil, retries{why: 2}},
		"other":   {[]error{other}, other, retries{}},
		"later":   {[]error{excused{why}, other}, other, retries{why: 1}},
		"no more": {make([]error, excuse.Tries), excused{why}, retries{why: excuse.Tries - 1}},
	} {
		got, n := retries{}, 0
		v, err := got.until(func() (Values, error) {
			if n++; n > len(c.fails) {
				return Values{Typical: 1}, nil
			}
			if c.fails[n-1] == nil {
				return nil, excused{why}
			}
			return nil, c.fails[n-1]
		})
		if !errors.Is(err, c.want) || (v[Typical] == 1) != (c.want == nil) || !maps.Equal(got, c.retries) {
			t.Errorf("%s: %v, %v, retries %v; want %v and %v", name, v, err, got, c.want, c.retries)
		}
	}
	r := &Report{Tables: []*Table{{Rows: []*Row{{Retries: retries{why: 2}}, {}, {Retries: retries{why: 1}}}}}}
	if lines := r.retries(); len(lines) != 1 || lines[0] != "Measured again: 3 times, because "+why+"." {
		t.Errorf("%q", lines)
	}
}

// TestSpoiltRunEnds checks that a run that perftest has spoilt ends while its programs still wait.
func TestSpoiltRunEnds(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var all []*process
	for _, script := range []string{"exec sleep 600", "echo '" + rejected + "' >&2; exec sleep 600"} {
		x, err := startProcess(ctx, p, from, fake(t, script).name, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer x.stop()
		all = append(all, x)
	}
	if _, err := outputOf(ctx, all[0], all); !errors.As(err, new(excused)) {
		t.Errorf("%v", err)
	}
}

// TestMeasuredAgain checks that a client of perftest that is rejected does not end the benchmark.
func TestMeasuredAgain(t *testing.T) {
	need.Root(t)
	need.XDP(t)
	need.Tool(t, "ib_write_lat")
	need.Tool(t, "cc")
	real, spoilt := "/usr/bin/ib_write_lat", filepath.Join(t.TempDir(), "spoilt")
	script := fmt.Sprintf(`case "$*" in *192.0.2.*) [ -e %s ] || { touch %[1]s; echo '%s' >&2; exit 1; } ;; esac; exec %s "$@"`, spoilt, rejected, real)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ib_write_lat"), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	defer removeCommand()
	c := programCase{test: "write_lat", memory: copied, kernelPort: true, octets: 64, pairs: 1}
	if err := c.build(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := retries{}
	v, err := got.until(func() (Values, error) {
		ps, err := c.bed(t.Context())
		if err != nil {
			return nil, err
		}
		lines, err := ps.run(t.Context(), "-n", "100")
		if err := errors.Join(err, ps.close()); err != nil {
			return nil, err
		}
		return Values{Typical: lines[0][4]}, nil
	})
	if err != nil || v[Typical] <= 0 {
		t.Fatalf("%v, %v", v, err)
	}
	if got[excuse.Of(rejected)] < 1 {
		t.Errorf("retries %v: the rejected client counts", got)
	}
}
