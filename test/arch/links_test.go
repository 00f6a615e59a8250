package arch

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// kept lists modules and directories that no installed program may link: the benchmark's
// and the tests'.
var kept = []string{
	"gonum.org/v1/plot",
	"codeberg.org/go-latex/latex",
	"codeberg.org/go-pdf/fpdf",
	"codeberg.org/go-fonts",
	"git.sr.ht/~sbinet/gg",
	"github.com/ajstarks/svgo",
	"github.com/asavie/xdp",
	module + "/test",
}

// linked returns the packages that a program links.
func linked(t *testing.T, program string) []string {
	t.Helper()
	need.Tool(t, "go")
	cmd := exec.Command("go", "list", "-deps", "./"+program)
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list -deps ./%s: %v", program, err)
	}
	return strings.Fields(string(out))
}

// barredLinks returns those of pkgs that lie in one of kept.
func barredLinks(pkgs []string) (found []string) {
	for _, pkg := range pkgs {
		if slices.ContainsFunc(kept, func(dir string) bool { return under(pkg, dir) }) {
			found = append(found, pkg)
		}
	}
	return found
}

// TestStagLinksNoBenchmark: operators run stag as root, and need neither charts nor a
// second AF_XDP library.
func TestStagLinksNoBenchmark(t *testing.T) {
	pkgs := linked(t, "cmd/stag")
	if !slices.Contains(pkgs, module+"/rdma") {
		t.Fatalf("%d packages, without rdma: looking at the wrong program", len(pkgs))
	}
	for _, pkg := range barredLinks(pkgs) {
		t.Errorf("cmd/stag links %s", pkg)
	}
}

// The rule itself must be able to fail: the benchmark links what stag must not.
func TestBarredLinks(t *testing.T) {
	found := barredLinks(linked(t, "test/bench"))
	for _, want := range []string{"gonum.org/v1/plot", "codeberg.org/go-latex/latex", "codeberg.org/go-pdf/fpdf", "github.com/asavie/xdp", module + "/test/bench/measure"} {
		if !slices.Contains(found, want) {
			t.Errorf("%s is not among the packages that the benchmark links", want)
		}
	}
}
