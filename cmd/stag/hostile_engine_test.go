package main

import (
	bin "encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stag-rdma/stag/offload/control"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/test/need"
)

// actHostile serves a control socket with false answers until its standard input ends: a report of 18 MB of empty
// queue pairs, and a packet longer than any that can exist.
func actHostile() error {
	path, err := control.Name(1)
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/report", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"schema":%d,"pid":1,"program":"hostile","adapter":1`, report.Schema)
		if strings.Contains(r.URL.Query().Get("parts"), "qps") {
			io.WriteString(w, `,"qps":[{}`)
			block := []byte(strings.Repeat(",{}", 1<<16))
			for range 96 {
				w.Write(block)
			}
			io.WriteString(w, `]`)
		}
		io.WriteString(w, `,"counts":{"flows":{"act0":{"live":1000}},"qps":{"RTS":3}},"devices":[{"name":"act0","state":"PORT_ACTIVE","ifindex":7,"flow_table":9}],`+
			`"counters":[{"device":"act0","layer":"steer","name":"steered","value":1000000000000000}]}`)
	})
	mux.HandleFunc("/v1/capture", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Stag-Schema", fmt.Sprint(report.Schema))
		frame := append([]byte{'p', 0, 0, 0, 24 + 60}, make([]byte, 24+60)...)
		bin.BigEndian.PutUint32(frame[5+19:], 1<<32-1)
		w.Write(frame)
	})
	go http.Serve(l, mux)
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// TestHostileEngine: the false answers of another user's process neither exhaust nor end root's show, metrics and
// dump, nor add to the report of root's engine. A command that does not ask for other users' engines does not see
// them.
func TestHostileEngine(t *testing.T) {
	need.Root(t)
	h := newHost(t)
	h.act("well")
	before := parseSeries(t, run(t, h.at(command(t, "metrics", "--once"))).stdout)
	hostile := h.guest("hostile")
	memory := func(cmd *exec.Cmd) (result, int64) {
		r := run(t, cmd)
		return r, cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss // peak memory in KiB
	}
	for _, args := range [][]string{{"show", "qps"}, {"metrics", "--once", "--per-qp"}} {
		if r := run(t, h.at(command(t, args...))); strings.Contains(r.stdout+r.stderr, hostile.pid()) {
			t.Errorf("%q: %q and %q", args, r.stdout, r.stderr)
		}
		r, used := memory(h.at(command(t, append(args, "--all-users")...)))
		r.ends(t, 0)
		if used > 512<<10 {
			t.Errorf("%q took %d KiB", args, used)
		}
		if args[0] == "show" {
			contains(t, r.stderr, "pid "+hostile.pid(), "its report is larger than the limit: it is left out")
		} else {
			parseSeries(t, r.stdout).is(t, 0, "engine_up", "pid", hostile.pid(), "uid", fmt.Sprint(guest))
		}
	}
	r := run(t, h.at(command(t, "metrics", "--once", "--all-users")))
	after := parseSeries(t, r.stdout)
	after.is(t, 3, "qps", "pid", hostile.pid(), "uid", fmt.Sprint(guest), "state", "RTS")
	for _, name := range []string{"flows", "flows_max", "steer_packets_total"} {
		if fmt.Sprint(before.of(name)) != fmt.Sprint(after.of(name)) {
			t.Errorf("stag_%s is %v, and was %v", name, after.of(name), before.of(name))
		}
	}
	r = run(t, h.at(command(t, "dump", "--all-users", "-c", "1")))
	r.ends(t, exitFailed)
	contains(t, r.stderr, "what comes is no capture", "0 packets captured")
	if strings.Contains(r.stderr, "panic") {
		t.Error(r.stderr)
	}
}
