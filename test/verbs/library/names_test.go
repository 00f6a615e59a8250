package library

import (
	"bufio"
	"os"
	"strings"
	"testing"
)

// list reads testdata/file: a version, a symbol and remarks on each line.
func list(t *testing.T, file string) map[name]string {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[name]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		version, rest, _ := strings.Cut(lines.Text(), " ")
		symbol, remarks, _ := strings.Cut(rest, " ")
		if version != "#" {
			all[name{symbol, version}] = remarks
		}
	}
	return all
}

// TestNamesOfRdmaCore looks for every name that a library of rdma-core 34 or later exports,
// so that programs of every distribution with such a release load.
func TestNamesOfRdmaCore(t *testing.T) { testNames(t, "rdma-core.names", 460) }

// TestNamesOfDebian13 looks for every name that a package of Debian 13 imports.
func TestNamesOfDebian13(t *testing.T) { testNames(t, "debian13.names", 200) }

func testNames(t *testing.T, file string, least int) {
	have, want := exports(t, libraries(t)), list(t, file)
	if len(want) < least {
		t.Errorf("%s has %d names, want at least %d", file, len(want), least)
	}
	for n, remarks := range want {
		lib := "libibverbs.so.1"
		if strings.HasPrefix(n.version, "RDMACM_") {
			lib = "librdmacm.so.1"
		}
		if have[n] != lib {
			t.Errorf("%s lacks %s@%s (%s)", lib, n.symbol, n.version, remarks)
		}
	}
}

// TestNothingElseIsExported keeps names of the implementation from meeting those of programs.
func TestNothingElseIsExported(t *testing.T) {
	for n := range exports(t, libraries(t)) {
		switch {
		case n.symbol == n.version: // the version itself
		case strings.HasPrefix(n.version, "IBVERBS_"), strings.HasPrefix(n.version, "RDMACM_"):
		case n.version == "STAG_1" && strings.HasPrefix(n.symbol, "stag_"):
		default:
			t.Errorf("%s is exported at version %q", n.symbol, n.version)
		}
	}
}
