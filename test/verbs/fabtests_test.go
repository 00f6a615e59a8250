//go:build verbs

package verbs

import (
	"os"
	"path/filepath"
	"testing"
)

// fabtestsVariable names the directory with the programs of fabtests, which Debian does not have.
// Without it, fi_pingpong and fi_info are the only programs of libfabric that run.
const fabtestsVariable = "STAG_FABTESTS"

const fabtestsPort = 9228

// fabtests are tests of libfabric that compare what arrives (-v), with their endpoints.
var fabtests = []struct{ program, options string }{
	{"fi_msg", "-p verbs"},
	{"fi_msg_pingpong", "-p verbs -v -I 100"},
	{"fi_msg_bw", "-p verbs -v -I 100"},
	{"fi_msg_epoll", "-p verbs"},
	{"fi_rma_bw", "-p verbs -e msg -o write -v -I 100"},
	{"fi_rma_bw", "-p verbs -e msg -o read -v -I 100"},
	{"fi_rdm", "-p 'verbs;ofi_rxm'"},
	{"fi_rdm_pingpong", "-p 'verbs;ofi_rxm' -v -I 100"},
	{"fi_rdm_tagged_pingpong", "-p 'verbs;ofi_rxm' -v -I 100"},
	{"fi_rdm_tagged_bw", "-p 'verbs;ofi_rxm' -v -I 100"},
	{"fi_rma_bw", "-p 'verbs;ofi_rxm' -e rdm -o write -v -I 100"},
	{"fi_rma_bw", "-p 'verbs;ofi_rxm' -e rdm -o read -v -I 100"},
	{"fi_unexpected_msg", "-p 'verbs;ofi_rxm' -e rdm -I 10"},
}

// TestFabtests runs only if STAG_FABTESTS names a directory.
func TestFabtests(t *testing.T) {
	dir := os.Getenv(fabtestsVariable)
	if dir == "" {
		t.Skipf("SKIPPED, %s names no directory with the programs of fabtests", fabtestsVariable)
	}
	for _, f := range fabtests {
		line := filepath.Join(dir, f.program) + " " + f.options
		play(t, row{title: f.program + " " + f.options, server: line + " -s " + addrA, client: line + " " + addrA, port: fabtestsPort, kernel: true})
	}
}
