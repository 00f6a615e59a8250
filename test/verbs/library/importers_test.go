package library

import (
	"bytes"
	"debug/elf"
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// places are where a distribution puts programs and libraries.
var places = []string{"/usr/bin", "/usr/sbin", "/usr/lib/*-linux-gnu", "/usr/lib64"}

// importer is a program or a library that was linked against one of the two libraries.
type importer struct {
	path    string
	imports []name
}

// importers returns those of this machine.
func importers(t *testing.T) []importer {
	t.Helper()
	var all []importer
	for _, pattern := range places {
		found, _ := filepath.Glob(pattern)
		for _, place := range found {
			err := filepath.WalkDir(place, func(path string, d fs.DirEntry, err error) error {
				if err != nil || !d.Type().IsRegular() || strings.Contains(pattern, "/lib") && !strings.Contains(d.Name(), ".so") {
					return nil // what cannot be read is no program that one can run
				}
				if i, ok := importsOf(path); ok {
					all = append(all, i)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// importsOf returns what the file imports from the two libraries. ok is false if it does
// not need them.
func importsOf(path string) (i importer, ok bool) {
	f, err := elf.Open(path)
	if err != nil {
		return i, false
	}
	defer f.Close()
	needed, err := f.ImportedLibraries()
	if err != nil || !slices.Contains(needed, "libibverbs.so.1") && !slices.Contains(needed, "librdmacm.so.1") {
		return i, false
	}
	symbols, err := f.ImportedSymbols()
	if err != nil {
		return i, false
	}
	i.path = path
	for _, s := range symbols {
		if s.Library == "libibverbs.so.1" || s.Library == "librdmacm.so.1" {
			i.imports = append(i.imports, name{s.Name, s.Version})
		}
	}
	return i, true
}

// TestImportersOfThisMachine looks for every name that a program or library of this machine
// imports, and lets the dynamic linker resolve all of them.
func TestImportersOfThisMachine(t *testing.T) {
	need.Tool(t, "ldd", "rping", "ib_write_bw", "ibv_devinfo")
	dir := libraries(t)
	have := exports(t, dir)
	all := importers(t)
	if len(all) < 3 {
		t.Fatalf("%d importers found, want rping, ib_write_bw and ibv_devinfo at least", len(all))
	}
	for _, i := range all {
		for _, n := range i.imports {
			if have[n] == "" {
				t.Errorf("%s needs %s@%s", i.path, n.symbol, n.version)
			}
		}
		if out := unresolved(t, dir, i.path); out != "" {
			t.Errorf("%s does not load:\n%s", i.path, out)
		}
	}
	t.Logf("%d importers", len(all))
}

// ours matches lines of ldd about one of the two libraries.
var ours = regexp.MustCompile(`IBVERBS_|RDMACM_|symbol: (ibv_|_ibv_|rdma_|r[a-z]+,|verbs_|mult_to|mbps_to)`)

// unresolved returns the lines of ldd -r that say what is missing. Libraries that are loaded
// by a program, such as modules of Python, miss names of that program, which do not count.
func unresolved(t *testing.T, dir, path string) string {
	t.Helper()
	cmd := exec.Command("ldd", "-r", path)
	cmd.Env = environment(dir)
	out, _ := cmd.CombinedOutput() // the lines say more than the status
	var bad []string
	found := false
	for line := range strings.Lines(string(out)) {
		found = found || strings.Contains(line, dir)
		if ours.MatchString(line) {
			bad = append(bad, line)
		}
	}
	if !found {
		bad = append(bad, "the libraries were not found in "+dir+":\n", string(out))
	}
	return strings.Join(bad, "")
}

// TestProgramsStart runs programs up to their usage text.
func TestProgramsStart(t *testing.T) {
	dir := libraries(t)
	for program, usage := range map[string]string{
		"ib_write_bw": "start a server", "ib_read_lat": "start a server", "ib_send_bw": "start a server", "ib_atomic_bw": "start a server",
		"rping": "persistent server", "ucmatose": "usage", "qperf": "Synopsis", "fi_info": "Usage", "fio": "--output", "ucx_info": "Usage",
	} {
		t.Run(program, func(t *testing.T) {
			need.Tool(t, program)
			cmd := exec.Command(program, "--help")
			cmd.Env = environment(dir)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if err != nil && (!errors.As(err, &exit) || !exit.Exited() || exit.ExitCode() == 127) {
				t.Errorf("%v\n%s", err, out)
			}
			if !strings.Contains(string(out), usage) {
				t.Errorf("the usage text lacks %q:\n%s", usage, out)
			}
		})
	}
}

// TestNoDaemon says that ibv_devices without a daemon lists no device, and tells what to do.
func TestNoDaemon(t *testing.T) {
	need.Tool(t, "ibv_devices", "ibv_devinfo")
	dir := libraries(t)
	cmd := exec.Command("ibv_devices")
	cmd.Env = environment(dir)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Errorf("ibv_devices: %v", err)
	}
	want := `stag: no daemon at ` + dir + `/nobody.sock: start "stag daemon -i IFACE" or use "stag run"`
	if !strings.Contains(stderr.String(), want) {
		t.Errorf("standard error %q, want %q", stderr.String(), want)
	}
	if strings.Contains(stdout.String(), "stag0") {
		t.Errorf("there is a device:\n%s", stdout.String())
	}
}
