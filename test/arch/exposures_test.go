package arch

import (
	"bytes"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// typeName is a type of the module.
type typeName struct{ pkg, name string }

// exposure is a type that is reached from the API of a public package, but is of
// another package of the module.
type exposure struct {
	named typeName
	by    string // what exports it first
	alias bool   // a public package has an exported alias for it
}

// load type-checks packages of the module from what the compiler has written.
func load(t *testing.T, dirs ...string) (list []*types.Package) {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}
	for _, dir := range dirs {
		args = append(args, module+"/"+dir)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		files[path] = file
	}
	imp := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) {
		content, err := os.ReadFile(files[path])
		return io.NopCloser(bytes.NewReader(content)), err
	})
	for _, dir := range dirs {
		p, err := imp.Import(module + "/" + dir)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

// exposures walks the exported API of packages.
func exposures(pkgs []*types.Package) (list []*exposure) {
	w := &walker{public: pkgs, seen: map[types.Type]bool{}, found: map[typeName]*exposure{}}
	for _, p := range pkgs {
		for _, name := range p.Scope().Names() {
			if o := p.Scope().Lookup(name); o.Exported() {
				w.object(o)
			}
		}
	}
	return w.list
}

type walker struct {
	public []*types.Package
	seen   map[types.Type]bool
	found  map[typeName]*exposure
	list   []*exposure // in the order in which they were found
}

func (w *walker) object(o types.Object) {
	by := o.Pkg().Name() + "." + o.Name()
	w.typ(o.Type(), by)
	tn, ok := o.(*types.TypeName)
	if !ok || !tn.IsAlias() {
		return
	}
	if n, ok := types.Unalias(o.Type()).(*types.Named); ok {
		if e := w.found[nameOf(n.Obj())]; e != nil {
			e.alias = true
		}
	}
}

// typ looks at a type, and at all that a user reaches from it.
func (w *walker) typ(t types.Type, by string) {
	t = types.Unalias(t)
	if w.seen[t] {
		return
	}
	w.seen[t] = true
	switch t := t.(type) {
	case *types.Named:
		w.named(t, by)
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() || f.Embedded() {
				w.typ(f.Type(), by+"."+f.Name())
			}
		}
	case *types.Interface:
		for m := range t.Methods() {
			if m.Exported() {
				w.typ(m.Type(), by+"."+m.Name())
			}
		}
	case *types.Signature:
		w.tuple(t.Params(), by)
		w.tuple(t.Results(), by)
	case *types.Map:
		w.typ(t.Key(), by)
		w.typ(t.Elem(), by)
	case interface{ Elem() types.Type }: // pointer, slice, array, channel
		w.typ(t.Elem(), by)
	}
}

func (w *walker) tuple(t *types.Tuple, by string) {
	for v := range t.Variables() {
		w.typ(v.Type(), by)
	}
}

// named looks at a type that has a name. What is not of the module is not looked into.
func (w *walker) named(t *types.Named, by string) {
	for a := range t.TypeArgs().Types() {
		w.typ(a, by)
	}
	o := t.Obj()
	if o.Pkg() == nil || !strings.HasPrefix(o.Pkg().Path(), module+"/") {
		return
	}
	if !slices.Contains(w.public, o.Pkg()) {
		name := nameOf(o)
		w.found[name] = &exposure{named: name, by: by}
		w.list = append(w.list, w.found[name])
	}
	w.typ(t.Underlying(), by)
	for m := range t.Methods() {
		if m.Exported() {
			w.typ(m.Type(), by+"."+m.Name())
		}
	}
}

func nameOf(o *types.TypeName) typeName {
	return typeName{strings.TrimPrefix(o.Pkg().Path(), module+"/"), o.Name()}
}

// The finder of lower types must find them, wherever they are.
func TestExposures(t *testing.T) {
	const low = `package low
type (
	Result int; Param int; Field int; Embedded struct{ Deep }; Deep int; Aliased int; Method int; Elem int; Held int; Hidden int
	Promoted int; Named int
)
func (Named) Get() Hidden { return 0 }`
	const pub = `package pub
import "` + module + `/low"
type Alias = low.Aliased
type carrier struct{ low.Embedded; held low.Hidden; Shown low.Promoted }
type Public struct {
	carrier
	Field *low.Field
	hidden low.Hidden
}
func (*Public) Do(func(low.Method)) {}
func (*Public) quiet(low.Hidden) {}
var All map[string][]low.Elem
type Asks interface{ Ask(chan low.Held) }
func New(...low.Param) (low.Result, error) { return 0, nil }
func hidden() low.Hidden { return 0 }
`
	set := token.NewFileSet()
	lower := check(t, set, "low", low, nil)
	found := map[string]bool{}
	for _, e := range exposures([]*types.Package{check(t, set, "pub", pub, lower)}) {
		found[e.named.name] = true
		if e.named.pkg != "low" || e.alias != (e.named.name == "Aliased") {
			t.Errorf("found %+v", e)
		}
	}
	for _, name := range []string{"Result", "Param", "Field", "Embedded", "Deep", "Aliased", "Method", "Elem", "Held", "Promoted"} {
		if !found[name] {
			t.Errorf("%s is not found", name)
		}
		delete(found, name)
	}
	for name := range found {
		t.Errorf("%s is found, and no user reaches it", name)
	}
}

// check type-checks the source of a package of the module that may import one other.
func check(t *testing.T, set *token.FileSet, dir, source string, other *types.Package) *types.Package {
	t.Helper()
	f, err := parser.ParseFile(set, dir+".go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	cfg := types.Config{Importer: only{other}}
	p, err := cfg.Check(module+"/"+dir, set, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// only is an importer of one package.
type only struct{ *types.Package }

func (o only) Import(string) (*types.Package, error) { return o.Package, nil }
