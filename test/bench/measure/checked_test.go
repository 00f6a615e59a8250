package measure

import (
	"slices"
	"strings"
	"testing"
)

// TestChecked: what nobody computes is said. Between two kernels nobody computes TCP's
// checksum, and only AF_XDP rows have both.
func TestChecked(t *testing.T) {
	for want, list := range map[string][]setting{
		checkedNothing: {{raw: rawBare}, {raw: rawAsavie}, {stacks: [2]stack{kernel, kernel}}, {stacks: [2]stack{kernel, kernel}, program: noXDP}, {stacks: [2]stack{kernel, kernel}, verb: write, noCRC: true}},
		checkedCRC:     {{raw: rawCopied}, {stacks: [2]stack{kernel, kernel}, verb: send, program: noXDP}},
		checkedSum:     {{stacks: [2]stack{offload, offload}}, {stacks: [2]stack{kernel, offload}}, {stacks: [2]stack{offload, offload}, verb: read, noCRC: true}},
		checkedBoth:    {{stacks: [2]stack{offload, offload}, verb: write}},
	} {
		for _, s := range list {
			if got := s.checked(); got != want {
				t.Errorf("%s: %q, want %q", s.name(), got, want)
			}
		}
	}
	table := &Table{Rows: []*Row{{Case: Case{Name: "a"}, Checked: checkedCRC}, {Case: Case{Name: "b"}, Checked: checkedNothing}, {Case: Case{Name: "a"}, Checked: checkedCRC}, {Case: Case{Name: "c"}}}}
	if got := table.checks(); !slices.Equal(got, []string{"Checked: CRC: a", "Checked: nothing: b"}) {
		t.Errorf("%q", got)
	}
	for range 40 {
		table.Rows = append(table.Rows, &Row{Case: Case{Name: "row " + strings.Repeat("x", len(table.Rows))}, Checked: checkedSum})
	}
	for _, line := range table.checks() {
		if len(line) > 160 || line == "" {
			t.Errorf("%d columns: %q", len(line), line)
		}
	}
}

// TestChoiceHasBothCarriers: each MTU has sockets and both carriers, and at most eight rows, so
// that a page can show the whole table.
func TestChoiceHasBothCarriers(t *testing.T) {
	table := choiceTable(Options{MTUs: []int{1500, 9000}})
	for _, mtu := range []int{1500, 9000} {
		n := 0
		for _, r := range table.Rows {
			if r.MTU == mtu {
				n++
			}
			if r.Checked == "" {
				t.Errorf("%v: what is checked is not said", r.Case)
			}
		}
		for _, name := range []string{socketsName, "kernel port, Write", "AF_XDP, Write"} {
			if table.find(func(c Case) bool { return c.Name == name && c.MTU == mtu }) == nil {
				t.Errorf("MTU %d: no %s", mtu, name)
			}
		}
		if n > 8 {
			t.Errorf("MTU %d: %d rows", mtu, n)
		}
	}
}

// TestEveryChartHasBothCarriers: each picture that compares ways to move data has a row of
// AF_XDP and one of the kernel port.
func TestEveryChartHasBothCarriers(t *testing.T) {
	for _, table := range []*Table{choiceTable(Options{MTUs: []int{1500}}), goodputTable(Options{MTUs: []int{1500}}), sizesTable(Options{MTUs: []int{1500}}),
		connectionsTable(Options{MTUs: []int{1500}}), latencyTable(Options{Full: true}), rateTable(Options{})} {
		names := strings.Join(table.names(), ";")
		offloaded := strings.Contains(names, "offloaded") || strings.Contains(names, "AF_XDP, ") || strings.Contains(names, "inline")
		if !offloaded || !strings.Contains(names, "kernel port") || !strings.Contains(names, "no XDP") && table.Name != "choice" {
			t.Errorf("%s has %s", table.Name, names)
		}
	}
	for _, name := range []string{"write offloaded", "kernel port, no XDP", kernelTCP + ", no XDP"} {
		if !slices.Contains(goodputNames, name) {
			t.Errorf("the pictures of goodput have no %s", name)
		}
	}
}
