package docs

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/stag-rdma/stag/rdma/daemon"
)

// TestQuotasAreDocumented: the table of quotas has each quota, with its default and its errno.
func TestQuotasAreDocumented(t *testing.T) {
	text, err := os.ReadFile("daemon.md")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| [^|]+ \\| (\\d+) \\| (\\w+) \\|$").FindAllStringSubmatch(string(text), -1) {
		got = append(got, row[1]+" "+row[2]+" "+row[3])
	}
	if want := daemon.QuotaDefaults(); !slices.Equal(got, want) {
		t.Errorf("the page has %q\nwant %q", got, want)
	}
}
