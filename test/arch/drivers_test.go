package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// driverTable is the file with everything that the Go code knows about single drivers.
const driverTable = "loader/drivers.go"

// kindsOfLink are drivers whose names Linux also uses for a kind of link, so that
// messages speak of them.
var kindsOfLink = []string{"veth"}

// TestDriversStandInOneTable: product code asks the table, and neither names a driver nor
// compares the name of one. A quirk of a driver is then one row.
func TestDriversStandInOneTable(t *testing.T) {
	files := goFiles(t)
	at := slices.IndexFunc(files, func(f file) bool { return f.name == driverTable })
	if at < 0 {
		t.Fatalf("there is no %s", driverTable)
	}
	names := driverNames(files[at].ast)
	if len(names) < 10 {
		t.Fatalf("only %d drivers found", len(names))
	}
	for _, f := range files {
		if f.test || under(f.pkg, "test") || f.name == driverTable {
			continue
		}
		for _, complaint := range driverFacts(f.ast, names) {
			t.Errorf("%s: %s: make it a field of %s", f.name, complaint, driverTable)
		}
	}
}

// driverNames are the names in the table's rows.
func driverNames(table ast.Node) (names []string) {
	ast.Inspect(table, func(n ast.Node) bool {
		if kv, ok := n.(*ast.KeyValueExpr); ok && isIdent(kv.Key, "Name") {
			if name, ok := literal(kv.Value); ok {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}

// driverFacts finds what a file knows about single drivers.
func driverFacts(tree ast.Node, names []string) (found []string) {
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if s, ok := literal(n); ok && namesDriver(s, names) {
				found = append(found, "a driver's name in "+n.Value)
			}
		case *ast.BinaryExpr:
			compares := n.Op == token.EQL || n.Op == token.NEQ
			for _, sides := range [][2]ast.Expr{{n.X, n.Y}, {n.Y, n.X}} {
				if s, ok := literal(sides[0]); compares && ok && s != "" && isDriver(sides[1]) {
					found = append(found, "a driver's name is compared with "+strconv.Quote(s))
				}
			}
		case *ast.SwitchStmt:
			if isDriver(n.Tag) {
				found = append(found, "a switch over a driver's name")
			}
		case *ast.IndexExpr:
			if isDriver(n.Index) {
				found = append(found, "a map of drivers' names")
			}
		}
		return true
	})
	return found
}

// namesDriver reports whether a text is the name of a driver, or has it as a word.
func namesDriver(s string, names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		whole := s == name
		within := regexp.MustCompile(`(^|\W)` + regexp.QuoteMeta(name) + `($|\W)`).MatchString(s)
		return whole || within && !slices.Contains(kindsOfLink, name)
	})
}

// isDriver reports whether an expression is the name of a driver by what it is called.
func isDriver(e ast.Expr) bool {
	if s, ok := e.(*ast.SelectorExpr); ok {
		e = s.Sel
	}
	return isIdent(e, "Driver") || isIdent(e, "driver")
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}

// literal is what a string literal says.
func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	s, err := strconv.Unquote(lit.Value)
	return s, err == nil
}

// The finder of facts about drivers must find them.
func TestDriverFacts(t *testing.T) {
	const source = `package p
func f(l Link, driver string) bool {
	switch l.Driver {
	}
	return l.Driver == "unheard of" || "another" != driver || slow[l.Driver] || is("veth") ||
		says("with ice, wait") || l.Driver == "" || says("a veth pair") || says("a device")
}`
	tree, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := driverFacts(tree, []string{"veth", "ice"}); len(got) != 6 {
		t.Errorf("found %d: %q", len(got), got)
	}
}
