package rdma

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerbsSay: the comment of each verb says the rights that it needs, when it takes
// effect, when memory may be used again, and the status or the error of each failure. The
// words of a row must be in the comment.
func TestVerbsSay(t *testing.T) {
	comments := commentsOf(t)
	for name, words := range map[string]string{
		"WRWrite":           "RemoteWrite; need no right; completes when; memory of SGL",
		"WRSend":            "need no right; completes; is free; connection then ends",
		"WRRead":            "LocalWrite; RemoteRead; completes when; not be used before; RemoteAccessErr; RemoteOperationErr; BadResponseErr",
		"WRLocalInvalidate": "has completed; TableErr",
		"WRSendInvalidate":  "RemoteInvalidate; RemoteInvalidErr; before the peer's receive completes",
		"operations":        "LocalProtErr; LocalAccessErr; LocalQPOpErr; Flushed; checked when the request starts",
		"QP.PostSend":       "until the work request's completion; inline data; ErrBadWR; ErrQueueFull; ErrNotConnected; Flushed",
		"QP.PostRecv":       "until the work request's completion; LocalWrite; LocalLengthErr; LocalProtErr; LocalAccessErr; RemoteInvalidErr; Flushed",
		"PD.AllocMR":        "valid from the return on; ErrHeapFull; ErrTableFull; ErrQuota",
		"PD.RegMR":          "From the call; Close; ErrTableFull; ErrQuota; ErrNoAccess; ErrMemoryGone",
		"PD.RegSharedMR":    "valid from the return; Close; ErrTableFull; ErrQuota; ErrClosed; ErrNoAccess",
		"PD.RegMRPages":     "valid from the return on; Close; those of RegMR; ErrPagesFull",
		"MR.Invalidate":     "has returned|returns; no octet",
		"MR.Close":          "When Close returns; no octet",
		"CQ.Poll":           "are free when Poll has returned",
		"CQ.Resize":         "takes effect when it returns; ErrInUse; ErrCQOverrun; ErrClosed",
		"QP.Disconnect":     "QPError; flushed",
		"QP.Abort":          "Flushed; until then",
		"QP.Close":          "Flushed; is free when Close returns",
		"PD.CreateQP":       "ErrClosed; ErrCQOverrun",
		"Adapter.CreateCQ":  "ErrClosed",
		"Adapter.AllocPD":   "no right; at once; ErrClosed",
	} {
		comment, ok := comments[name]
		if !ok {
			t.Errorf("there is no %s", name)
		}
		for phrase := range strings.SplitSeq(words, "; ") {
			said := false
			for choice := range strings.SplitSeq(phrase, "|") {
				said = said || strings.Contains(comment, choice)
			}
			if !said {
				t.Errorf("%s does not say %q", name, phrase)
			}
		}
	}
}

// commentsOf returns the comments of the exported functions, methods and constants of the
// package, as one line each. "operations" is the comment of all operations of a SendWR.
func commentsOf(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			readComments(file, all)
		}
	}
	return all
}

// readComments adds the comments of a file to all.
func readComments(file *ast.File, all map[string]string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch d := n.(type) {
		case *ast.FuncDecl:
			all[receiverOf(d)+d.Name.Name] = oneLine(d.Doc.Text())
			return false
		case *ast.GenDecl:
			if doc := oneLine(d.Doc.Text()); strings.HasPrefix(doc, "Operations of a SendWR") {
				all["operations"] = doc
			}
		case *ast.ValueSpec:
			all[d.Names[0].Name] = oneLine(d.Doc.Text() + d.Comment.Text())
		}
		return true
	})
}

func receiverOf(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	return typ.(*ast.Ident).Name + "."
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
