package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// sources are the directories whose code has messages.
var sources = []string{"loader", "rdma", "offload", "afxdp", "bpf", "tpt", "cmd/stag"}

// text is a message in the code: fixed parts, with a variable part between each two.
type text struct {
	like  *regexp.Regexp
	fixed int  // number of octets in the fixed parts
	joker bool // there is a variable part
}

var verb = regexp.MustCompile(`%[+#]?[a-z]`)

// newText makes a text from a format. hole stands for a variable part.
func newText(format string) text {
	parts := verb.Split(strings.ReplaceAll(format, hole, "%v"), -1)
	x := text{joker: len(parts) > 1}
	for i, p := range parts {
		p = strings.ReplaceAll(p, "%%", "%")
		x.fixed += len(p)
		parts[i] = regexp.QuoteMeta(p)
	}
	x.like = regexp.MustCompile(`(?s)^` + strings.Join(parts, `.*`) + `$`)
	return x
}

const hole = "\x00"

// says reports whether quote can be this message. It returns false for a message with too
// few fixed parts, because such a message would match any quote.
func (x text) says(quote string) bool {
	return x.like.MatchString(quote) && (!x.joker || 2*x.fixed >= len(quote))
}

// texts returns all strings of a file. A sum of strings is one string.
func texts(f *ast.File) (all []text) {
	ast.Inspect(f, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		if s := value(e); strings.Trim(s, hole) != "" && utf8.ValidString(s) {
			all = append(all, newText(strings.TrimSuffix(s, "\n")))
		}
		return true
	})
	return all
}

// value returns the fixed parts of a string expression, with hole for each variable part.
func value(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return s
		}
	case *ast.BinaryExpr:
		if e.Op == token.ADD {
			return value(e.X) + value(e.Y)
		}
	}
	return hole
}

// sourceTexts returns the texts of all files in sources.
func sourceTexts(t *testing.T) (all []text) {
	t.Helper()
	for _, dir := range sources {
		err := filepath.WalkDir(filepath.Join("..", dir), func(name string, d fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err == nil {
				all = append(all, texts(f)...)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// quote matches the text between backquotes.
var quote = regexp.MustCompile("`([^`]+)`")

// quotes returns the messages that a document quotes in its headings and tables.
func quotes(document string) (list []string) {
	for line := range strings.Lines(document) {
		if strings.HasPrefix(line, "### ") || strings.HasPrefix(line, "| ") {
			for _, m := range quote.FindAllStringSubmatch(line, -1) {
				list = append(list, m[1])
			}
		}
	}
	return list
}

func said(all []text, quote string) bool {
	for _, x := range all {
		if x.says(quote) {
			return true
		}
	}
	return false
}

// TestTroubleshooting: every quoted message can be a message of the code.
func TestTroubleshooting(t *testing.T) {
	document, err := os.ReadFile("troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	all, list := sourceTexts(t), quotes(string(document))
	if len(list) < 80 {
		t.Errorf("only %d quotes found", len(list))
	}
	for _, q := range list {
		if !said(all, q) {
			t.Errorf("nothing in the code says %q", q)
		}
	}
}

// probeFiles returns the files whose code makes the rows of doctor.
func probeFiles(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"loader/doctor/*.go", "cmd/stag/internal/doctor/*.go"} {
		files, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f, "_test.go") {
				names = append(names, strings.TrimPrefix(f, "../"))
			}
		}
	}
	return names
}

// TestEveryProbe: the table has each row that doctor can print.
func TestEveryProbe(t *testing.T) {
	document, err := os.ReadFile("troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, name := range probeFiles(t) {
		ast.Inspect(parse(t, name), func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Names[0].Name != "name" || len(spec.Values) != 1 {
				return true
			}
			rows++
			if row := value(spec.Values[0]); !strings.Contains(string(document), "\n| `"+row+"` |") {
				t.Errorf("no row %q in the table", row)
			}
			return true
		})
	}
	if rows < 40 {
		t.Errorf("only %d rows found", rows)
	}
}

// TestSays: says accepts the right quotes, and rejects wrong ones.
func TestSays(t *testing.T) {
	for _, c := range []struct {
		format, quote string
		well          bool
	}{
		{"no network interface %s here", "no network interface IFACE here", true},
		{"no network interface %s here", "no network interface IFACE there", false},
		{"%d%% of %s", "10% of it", true},
		{"read: %w", "read: a long text that is mostly something else", false},
		{"ethtool -K " + hole + " tx off", "ethtool -K PEER tx off", true},
		{"the queue is full", "the queue is empty", false},
		{"the queue is full", "the queue is full", true},
	} {
		if newText(c.format).says(c.quote) != c.well {
			t.Errorf("%q for %q: not %v", c.format, c.quote, c.well)
		}
	}
}
