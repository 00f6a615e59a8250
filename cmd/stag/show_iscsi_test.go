package main

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/internal/storage"
	"github.com/stag-rdma/stag/test/rig"
)

// iscsiRow has the members of a row of `stag show iscsi` or `stag show luns` that the tests read.
type iscsiRow struct {
	PID        int
	Role       string
	State      string
	Target     string
	Device     string
	Carrier    string
	InProgress int `json:"commands_in_progress"`
	Depth      int
	Ages       []int  `json:"command_ages"`
	Placed     uint64 `json:"iscsi_initiator_placed_octets"`
	Sent       uint64 `json:"iscsi_target_sent_octets"`
	Octets     uint64
	Backend    string
	Sessions   int
}

// iscsiRows returns the rows of a subject of one process.
func (h host) iscsiRows(subject string, x *running) (rows []iscsiRow) {
	h.Helper()
	r := h.show(subject, "--json", "-p", strconv.Itoa(x.cmd.Process.Pid))
	r.ends(h.T, 0)
	schema(h.T, "show-"+subject, r.stdout)
	rig.Must(h.T, json.Unmarshal([]byte(r.stdout), &rows))
	return rows
}

// TestShowISCSI: show and metrics see the sessions of a target and an initiator over the kernel's TCP, and their units.
func TestShowISCSI(t *testing.T) {
	h := newHost(t)
	target := launch(t, h.at(command(t, "iscsi", "target", "--name", iqn, "--lun", "1=ram:16M", "--lun", "4=ram:1M", "--portal", "127.0.0.1:0")))
	t.Cleanup(target.killed)
	target.until("until Ctrl-C")
	portal := storage.Scheme + portalOf.FindStringSubmatch(target.said[len(target.said)-1])[1]
	perf := launch(t, h.at(command(t, "iscsi", "perf", "-m", "4", "-b", "8", lun1(portal))))
	t.Cleanup(perf.killed)
	rig.Eventually(t, "the initiator has opened its adapter", func() bool {
		return h.show("iscsi", "--json", "-p", strconv.Itoa(perf.cmd.Process.Pid)).code == 0
	})
	var rows []iscsiRow
	rig.Eventually(t, "the initiator reads", func() bool {
		rows = h.iscsiRows("iscsi", perf)
		return len(rows) == 1 && rows[0].Placed > 1<<20
	})
	sum := 0
	for _, n := range rows[0].Ages {
		sum += n
	}
	if r := rows[0]; r.Role != "initiator" || r.State != "up" || r.Target != iqn || r.Device != "kernel" || r.Carrier != "tcp" || r.Depth < 4 || sum != r.InProgress {
		t.Errorf("%+v", r)
	}
	if rows = h.iscsiRows("iscsi", target); len(rows) != 1 || rows[0].Role != "target" || rows[0].Sent < 1<<20 {
		t.Errorf("%+v", rows)
	}
	if rows = h.iscsiRows("luns", target); len(rows) != 2 || rows[0].Octets != 16<<20 || rows[0].Backend != "ram" || rows[0].Sessions != 1 || rows[1].Octets != 1<<20 {
		t.Errorf("%+v", rows)
	}
	if rows = h.iscsiRows("luns", perf); len(rows) != 1 || rows[0].Role != "initiator" || rows[0].Backend != "STAG VIRTUAL-DISK" {
		t.Errorf("%+v", rows)
	}
	pid := strconv.Itoa(target.cmd.Process.Pid)
	contains(t, h.show("iscsi", "-v", "-p", pid).stdout, "role target state UP link kernel carrier tcp cmds ", "target "+iqn+" ", "sent_octets:", "latency below_")
	contains(t, h.show("luns", "4", "-p", pid).stdout, "lun 4 served octets 1048576 block 512 sessions 1", "backend ram serial 4 reservation none")
	contains(t, h.show("iscsi", "nobody", "-p", pid).stderr, "no iSCSI sessions like that: stag show iscsi lists all")
	contains(t, h.show("stats", "-p", pid).stdout, "iscsi_target.commands: ")
	iscsiMetrics(t, h, pid)
	rig.Must(t, perf.cmd.Process.Signal(os.Interrupt))
	perf.rest()
	rig.Eventually(t, "the session has ended", func() bool { return len(h.iscsiRows("iscsi", target)) == 0 })
	contains(t, h.show("iscsi", "-p", pid).stderr, "no iSCSI sessions now")
	contains(t, h.show("stats", "-p", pid).stdout, "iscsi_target.commands: ")
	rig.Must(t, target.cmd.Process.Signal(os.Interrupt))
	target.all(0)
}

// iscsiMetrics demands the series of a target with a session, and that each of its counters has a family.
func iscsiMetrics(t *testing.T, h host, pid string) {
	t.Helper()
	r := run(t, h.at(command(t, "metrics", "--once")))
	r.ends(t, 0)
	all := parseSeries(t, r.stdout)
	all.is(t, 1, "iscsi_sessions", "pid", pid, "role", "target", "state", "up")
	for _, name := range []string{"iscsi_commands_total", "iscsi_transmitted_bytes_total", "iscsi_pdus_received_total"} {
		if v := all.of(name, "pid", pid, "role", "target", "device", "kernel"); len(v) != 1 || v[0] == 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
	if v := all.of("iscsi_reasons_total", "pid", pid, "reason", "no_task"); len(v) != 1 || v[0] != 0 {
		t.Errorf("refusals: %v", v)
	}
	if v := all.of("other_total", "pid", pid); len(v) != 0 {
		t.Errorf("%d counters without a family", len(v))
	}
	for _, m := range all["stag_iscsi_command_duration_seconds"].GetMetric() {
		if strings.Contains(m.String(), `"`+pid+`"`) && (m.GetHistogram().GetSampleCount() == 0 || m.GetHistogram().GetSampleSum() == 0) {
			t.Errorf("%v", m)
		}
	}
}
