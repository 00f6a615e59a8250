package measure

import (
	"fmt"
	"strings"
	"testing"
)

// TestStorageGoals: every goal compares rows that the table has, and takes the fastest
// setting of each side.
func TestStorageGoals(t *testing.T) {
	table := iscsiTable(Options{})
	for _, g := range storageGoalList {
		for _, title := range append(append([]string(nil), g.ours...), g.theirs...) {
			if table.find(func(c Case) bool { return c.Name == title && c.Message == g.octets && c.Depth == g.depth }) == nil {
				t.Errorf("%s: no row %q with %d octets, depth %d", g.what, title, g.octets, g.depth)
			}
		}
	}
	for _, r := range table.Rows {
		r.Median = Values{IOPS: 100, CPUPerIO: 10}
		if r.NAPI == "threads" {
			r.Median = Values{IOPS: 200, CPUPerIO: 30}
		}
	}
	for _, g := range iscsiGoals(&Report{Tables: []*Table{table}}) {
		want := 1.0
		if strings.HasPrefix(g.What, "better carrier") {
			want = 2
		}
		if g.Have != want {
			t.Errorf("%s: %v, want %v", g.What, g.Have, want)
		}
	}
}

// TestStorageOutput reads what the initiators print.
func TestStorageOutput(t *testing.T) {
	writes := storageCase{octets: large.octets}.writes(1)
	for _, c := range []struct {
		initiator, printed string
		want               float64 // 0: an error
	}{
		{stagProgram, `{"iops": 1234.5, "data_digest": false}`, 1234.5},
		{stagProgram, `{"iops": 1234.5, "data_digest": true}`, 0},
		{stagProgram, `{"iops": 0}`, 0},
		{perfProgram, "\riops current 1 (0 MB/s)\riops average 15000 (58 MB/s)\niops average 15001 (58 MB/s)\n", 15001},
		{perfProgram, "Login Failed.", 0},
		{uiscsiProgram, "iops average 7000\n", 7000},
		{qemuProgram, "Sending 4800 write requests\nRun completed in 2.000 seconds.\n", float64(writes) / 2},
		{qemuProgram, "qemu-img: Could not open", 0},
	} {
		got, err := storageCase{initiator: c.initiator, octets: large.octets}.iops(c.printed, 1)
		if got != c.want && err == nil || (err == nil) != (c.want != 0) {
			t.Errorf("%s, %q: %v, %v", c.initiator, c.printed, got, err)
		}
	}
}

// TestStorageURL: an initiator of every program can reach the disk.
func TestStorageURL(t *testing.T) {
	if got, want := (&diskServer{}).url("?data_digest=crc32c"), fmt.Sprintf("/%s/1?data_digest=crc32c", targetName); !strings.HasSuffix(got, want) {
		t.Errorf("%s, want …%s", got, want)
	}
}
