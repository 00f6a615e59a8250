package libiscsi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/libiscsi"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/tgtd"
)

// TestPrograms runs the programs against tgtd in another namespace.
func TestPrograms(t *testing.T) {
	p := netns.Pair(t, pair.Config{})
	target := tgtd.Start(t, p, pair.B, tgtd.Config{RAM: true, User: "alice", Secret: "alicesecret12"})
	h := libiscsi.Host{TB: t, Net: p, Side: pair.A}

	list := h.List(fmt.Sprintf("iscsi://alice%%alicesecret12@%v", target.Portal()))
	if len(list) != 3 || !strings.HasPrefix(list[0], "Target:"+tgtd.Name+" Portal:"+target.Portal().String()) || !strings.Contains(list[2], "Lun:1") {
		t.Errorf("iscsi-ls prints %q", list)
	}
	if got := h.Inquiry(target.URL("")); got["Vendor"] != "IET" || got["Peripheral Device Type"] != "DIRECT_ACCESS" {
		t.Errorf("iscsi-inq prints %v", got)
	}
	wrong := strings.Replace(target.URL(""), "alicesecret12", "alicesecret13", 1)
	if out := h.Refused(wrong); !strings.Contains(strings.ToLower(out), "auth") {
		t.Errorf("a wrong secret: %s", out)
	}
	if iops := h.Perf(target.URL(""), 32, 8, time.Second); iops == 0 {
		t.Error("iscsi-perf read nothing")
	}
	r := h.Conformance("ALL.Read10", target.URL(""))
	if r.Count(libiscsi.Passed) == 0 || r.Count(libiscsi.Failed) != 0 || !slices.ContainsFunc(r, func(t libiscsi.Result) bool { return t.Name == "Read10.BeyondEol" }) {
		t.Error(r)
	}
}
