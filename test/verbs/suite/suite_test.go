//go:build verbs

package suite

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/need"
)

const (
	python = "/usr/bin/python3"
	source = "/usr/share/doc/rdma-core/tests"
)

// modules are the files of tests that run for each personality.
var modules = map[string][]string{
	"roce":  {"test_device", "test_pd", "test_mr", "test_cq", "test_cq_events", "test_cqex", "test_qp", "test_qpex", "test_atomic", "test_relaxed_ordering", "test_fork"},
	"iwarp": {"test_device", "test_qp", "test_rdmacm"},
}

const (
	written = "expects that a Write whose completion has been polled is in the peer's memory"
	refused = "expects that the completion of the request has the error of the peer's memory"
	flags   = "expects that a QP has remote rights of its own (qp_access_flags)"
)

// leftOut has the tests that do not run, and why.
var leftOut = map[string]string{
	"test_mr.MRTest.test_mr_rereg_access":                                 written,
	"test_mr.MRTest.test_mr_rereg_access_bad_flow":                        written,
	"test_mr.MRTest.test_mr_rereg_addr":                                   refused,
	"test_mr.MRTest.test_mr_rereg_pd":                                     refused,
	"test_mr.MWTest.test_invalidate_mw_type1":                             refused,
	"test_mr.MWTest.test_mw_type1":                                        written,
	"test_mr.MWTest.test_mw_type2":                                        written,
	"test_mr.MWTest.test_mw_type2_invalidate_dealloc":                     refused,
	"test_mr.MWTest.test_mw_type2_invalidate_local":                       refused,
	"test_mr.MWTest.test_mw_type2_invalidate_remote":                      refused,
	"test_qpex.QpExTestCase.test_qp_ex_rc_bind_mw":                        refused,
	"test_qpex.QpExTestCase.test_qp_ex_rc_rdma_write":                     written,
	"test_atomic.AtomicTest.test_atomic_invalid_qp_access":                flags,
	"test_rdmacm.CMTestCase.test_rdmacm_async_traffic":                    "expects that the option ACK_TIMEOUT comes back in ibv_query_qp",
	"test_rdmacm.CMTestCase.test_rdmacm_async_traffic_external_qp":        "expects CONNECT_RESPONSE, and adapters for iWARP give ESTABLISHED",
	"test_rdmacm.CMTestCase.test_rdmacm_async_udp_traffic":                "needs UD",
	"test_rdmacm.CMTestCase.test_rdmacm_async_multicast_traffic":          "needs UD",
	"test_rdmacm.CMTestCase.test_rdmacm_async_ex_multicast_traffic":       "needs UD",
	"test_rdmacm.CMTestCase.test_rdmacm_async_ex_leave_multicast_traffic": "needs UD",
}

func TestRdmaCore(t *testing.T) {
	need.Netns(t)
	need.Tool(t, python, "make", "cc")
	need.Header(t, "infiniband/verbs.h", "rdma/rsocket.h")
	need.File(t, source+"/run_tests.py")
	dir := t.TempDir()
	unpack(t, filepath.Join(dir, "tests"))
	run(t, "make", "-C", "../../../rdma/verbs", "OUT="+dir+"/verbs")
	run(t, "go", "build", "-o", dir+"/stag", "../../../cmd/stag")
	place, err := pair.New(pair.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := place.Close(); err != nil {
			t.Error(err)
		}
	})
	serve(t, dir, place)
	want := passes(t)
	for personality, files := range modules {
		for _, module := range files {
			t.Run(personality+"/"+module, func(t *testing.T) {
				t.Attr("row", personality+": "+module)
				t.Attr("peer", "python3-pyverbs")
				got := results(t, dir, place, personality, module)
				compare(t, got, want[personality], module+".")
			})
		}
	}
}

// compare compares the results with the tests that must pass.
func compare(t *testing.T, got map[string]string, want map[string]bool, prefix string) {
	passed := 0
	for test, result := range got {
		verdict, _, _ := strings.Cut(result, " ")
		if pass := verdict == "pass"; pass != want[test] && verdict != "skip" || want[test] && !pass {
			t.Errorf("%s: %s (in testdata/passes.txt: %t)", test, result, want[test])
		} else if pass {
			passed++
		}
	}
	for test := range want {
		if strings.HasPrefix(test, prefix) && got[test] == "" {
			t.Errorf("%s did not run", test)
		}
	}
	t.Logf("%d of %d passed", passed, len(got))
}

// results runs the tests of a module. It returns "pass", "skip WHY" or "fail WHY" by test.
func results(t *testing.T, dir string, place *pair.Pair, personality, module string) map[string]string {
	t.Helper()
	var names []string
	for name := range leftOut {
		names = append(names, name)
	}
	cmd := exec.Command(python, "testdata/run.py", dir, place.Ends[pair.A].V4.Addr().String(), module)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir+"/verbs", "STAG_DAEMON="+dir+"/socket", "STAG_PERSONALITY="+personality,
		"PYTHONDONTWRITEBYTECODE=1", "LEFT_OUT="+strings.Join(names, " "))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := place.Do(pair.A, cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s%s", err, stdout.Bytes(), stderr.Bytes())
	}
	all := map[string]string{}
	for line := range strings.Lines(stdout.String()) {
		verdict, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		test, why, _ := strings.Cut(rest, " ")
		if verdict == "pass" || verdict == "skip" || verdict == "fail" {
			all[test] = strings.TrimSpace(verdict + " " + why)
		}
	}
	return all
}

// passes reads testdata/passes.txt, by personality.
func passes(t *testing.T) map[string]map[string]bool {
	t.Helper()
	f, err := os.Open("testdata/passes.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all := map[string]map[string]bool{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		personality, test, _ := strings.Cut(lines.Text(), " ")
		if all[personality] == nil {
			all[personality] = map[string]bool{}
		}
		all[personality][test] = true
	}
	return all
}

// serve runs a daemon in the namespace of side A until the end of the test. The namespace keeps
// its ports apart from those of other daemons.
func serve(t *testing.T, dir string, place *pair.Pair) {
	t.Helper()
	cmd := exec.Command(dir+"/stag", "daemon", "--kernel-port", "--socket", dir+"/socket")
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := place.Do(pair.A, cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("stag daemon: %v\n%s", err, log.Bytes())
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("unixpacket", dir+"/socket")
		if err == nil {
			c.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the daemon does not serve: %v", err)
		}
	}
}

// unpack copies the tests. Debian has compressed some of the files.
func unpack(t *testing.T, to string) {
	t.Helper()
	entries, err := os.ReadDir(source)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		octets, err := read(filepath.Join(source, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(e.Name(), ".gz")
		if name == "__init__.py" { // it would load all modules
			octets = nil
		}
		if err := os.WriteFile(filepath.Join(to, name), octets, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// read returns the contents of a file. A file whose name ends with .gz is decompressed.
func read(path string) ([]byte, error) {
	octets, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(path, ".gz") {
		return octets, err
	}
	z, err := gzip.NewReader(bytes.NewReader(octets))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}
