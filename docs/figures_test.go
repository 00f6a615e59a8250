package docs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/stag-rdma/stag/test/bench/measure"
)

// figures is a part of a page that comes from a result file. The first comment names the file.
// It may also name one table and one MTU of the file, as in "FILE, choice, MTU 1500".
var figures = regexp.MustCompile(`(?s)(<!-- figures of ([^\s,]+)(?:, (\w+), MTU (\d+))? -->\n\n)(.*?)(\n<!-- end of figures -->)`)

// noRun is what a part says as long as its file does not exist.
const noRun = "No run on a quiet machine yet.\n"

// TestFigures: the figures on the pages are those of the result files. A part whose file does
// not exist says so, and has no figures.
func TestFigures(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	parts := map[string]int{}
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		was := bytes.Clone(text)
		for _, part := range figures.FindAllSubmatch(was, -1) {
			parts[page]++
			want := figuresOf(t, string(part[2]), string(part[3]), string(part[4]))
			if bytes.Equal(part[5], want) {
				continue
			}
			if !*update {
				t.Errorf("%s differs from %s: go test ./docs -run Figures -update", page, part[2])
			}
			text = bytes.Replace(text, part[0], bytes.Join([][]byte{part[1], want, part[6]}, nil), 1)
		}
		if *update && !bytes.Equal(text, was) {
			if err := os.WriteFile(page, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if parts["performance.md"] != 1 || parts["comparison.md"] != 2 {
		t.Errorf("parts with figures: %v", parts)
	}
}

// figuresOf returns the figures of a result file as Markdown. With a table it returns only the
// rows of the table with this MTU.
func figuresOf(t *testing.T, file, table, mtu string) []byte {
	t.Helper()
	f, err := os.Open("../" + file)
	if errors.Is(err, fs.ErrNotExist) {
		return []byte(noRun)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := measure.ReadReport(f)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	var text bytes.Buffer
	if table == "" {
		err = r.PrintMarkdown(&text)
	} else {
		n, _ := strconv.Atoi(mtu) // the pattern has digits only
		err = r.PrintMarkdownTable(&text, table, n)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return text.Bytes()
}
