package library

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// built is the directory of the two libraries and of the program check.
var built struct {
	sync.Once
	dir    string
	output []byte
	err    error
}

// libraries returns the directory in which the libraries have been built.
func libraries(t *testing.T) string {
	t.Helper()
	need.Tool(t, "make", "cc")
	need.Header(t, "infiniband/verbs.h", "rdma/rsocket.h")
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "stag-library-"); built.err != nil {
			return
		}
		cmd := exec.Command("make", "-C", "../../../rdma/verbs", "OUT="+built.dir, "all", built.dir+"/check")
		built.output, built.err = cmd.CombinedOutput()
	})
	if built.err != nil {
		t.Fatalf("build the libraries: %v\n%s", built.err, built.output)
	}
	return built.dir
}

func TestMain(m *testing.M) {
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(code)
}

// name is a symbol with its version, such as {"ibv_reg_mr", "IBVERBS_1.1"}.
type name struct{ symbol, version string }

// exports returns the names that the two libraries in dir define, and the file of each.
func exports(t *testing.T, dir string) map[name]string {
	t.Helper()
	all := map[name]string{}
	for _, lib := range []string{"libibverbs.so.1", "librdmacm.so.1"} {
		f, err := elf.Open(filepath.Join(dir, lib))
		if err != nil {
			t.Fatal(err)
		}
		symbols, err := f.DynamicSymbols()
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range symbols {
			if s.Section != elf.SHN_UNDEF {
				all[name{s.Name, s.Version}] = lib
			}
		}
	}
	return all
}

// environment is that of a program that finds the libraries in dir, and resolves every name
// when it starts.
func environment(dir string) []string {
	return append(os.Environ(), "LD_LIBRARY_PATH="+dir, "LD_BIND_NOW=1", "STAG_DAEMON="+filepath.Join(dir, "nobody.sock"))
}
