package docs

import (
	"bytes"
	"os"
	"regexp"
	"testing"

	"github.com/stag-rdma/stag/test/bench/measure"
)

// figures is a part of a page that comes from a result file. The first comment names the file.
var figures = regexp.MustCompile(`(?s)(<!-- figures of (\S+) -->\n\n)(.*?)(\n<!-- end of figures -->)`)

// TestFailoverFigures: the figures on the page about performance are those of the result file.
func TestFailoverFigures(t *testing.T) {
	const page = "performance.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := figures.FindAllSubmatch(text, -1)
	if len(all) != 1 {
		t.Fatalf("%s has figures of %d files", page, len(all))
	}
	f, err := os.Open("../" + string(all[0][2]))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := measure.ReadReport(f)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := r.PrintMarkdown(&want); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(all[0][3], want.Bytes()) {
		return
	}
	if !*update {
		t.Fatalf("%s differs from %s: go test ./docs -run FailoverFigures -update", page, all[0][2])
	}
	text = bytes.Replace(text, all[0][0], bytes.Join([][]byte{all[0][1], want.Bytes(), all[0][4]}, nil), 1)
	if err := os.WriteFile(page, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
