package man

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/stag-rdma/stag/cmd/stag/internal/version"
)

// TestPages: the table of pages explains every variable and file that it names, and no other.
func TestPages(t *testing.T) {
	used := map[string]bool{}
	for page, a := range pages {
		for _, v := range a.environment {
			used[v] = true
			if environment[v] == "" {
				t.Errorf("%s names the variable %s, which is not explained", page, v)
			}
		}
		for _, f := range a.files {
			used[f] = true
			if files[f] == "" {
				t.Errorf("%s names the file %s, which is not explained", page, f)
			}
		}
	}
	for _, table := range []map[string]string{environment, files} {
		for name := range table {
			if !used[name] {
				t.Errorf("no page names %s", name)
			}
		}
	}
}

// TestPage: text that looks like formatter requests stays text, tables keep their lines, and options are printed as
// users type them.
func TestPage(t *testing.T) {
	cmd := &cobra.Command{
		Use: "tool FILE", Short: "Does things", Long: ".dot and \\back\n  a table\n  of two lines\nand on\n\nnext", Example: "  tool x",
		Annotations: map[string]string{More: "and more"},
		Run:         func(*cobra.Command, []string) {},
	}
	f := cmd.Flags()
	f.BoolP("bare", "b", false, "no more")
	f.IntP("count", "c", 7, "so many")
	f.String("kind", "", "of this kind")
	f.String("mode", "", "how `WAY`")
	f.Lookup("mode").NoOptDefVal = "x"
	got := page(cmd, time.Unix(0, 0).UTC(), version.Info{Version: "v1"})
	for _, want := range []string{
		".TH \"TOOL\" \"8\" \"Jan 1970\" \"stag v1\" \"tool manual\"\n",
		"\\fBtool\\fP \\fIFILE\\fP [\\fIOPTION\\fP]...\n",
		"\n\\&.dot and \\eback\n.EX\n  a table\n  of two lines\n.EE\nand on\n.PP\nnext\n.PP\nand more\n",
		".TP\n\\fB\\-b\\fP, \\fB\\-\\-bare\\fP\nNo more.\n",
		".TP\n\\fB\\-c\\fP, \\fB\\-\\-count\\fP \\fIN\\fP\nSo many (default 7).\n",
		".TP\n\\fB\\-\\-kind\\fP \\fIKIND[,KIND]...\\fP\nOf this kind.\n",
		".TP\n\\fB\\-\\-mode\\fP[=\\fIWAY\\fP]\nHow WAY.\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}
