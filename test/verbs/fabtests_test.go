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

// fabtests are tests of libfabric, with their endpoints. With -v they compare what arrives.
var fabtests = []struct{ program, options string }{
	{"fi_msg", "-p verbs"},
	{"fi_msg_epoll", "-p verbs"},
	{"fi_cm_data", "-p verbs"},
	{"fi_msg_pingpong", "-p verbs -v -I 100"},
	{"fi_msg_pingpong", "-p verbs -v -I 100 -c sread"},
	{"fi_msg_pingpong", "-p verbs -v -I 100 -c fd"},
	{"fi_msg_bw", "-p verbs -v -I 100"},
	{"fi_msg_bw", "-p verbs -v -I 100 -c sread"},
	{"fi_msg_inject", "-p verbs -A inject -v"},
	{"fi_msg_inject", "-p verbs -N -A inject -v"},
	{"fi_bw", "-p verbs -e msg -v -T 1"},
	{"fi_shared_ctx", "-p verbs -e msg --no-tx-shared-ctx"},
	{"fi_multi_ep", "-p verbs -e msg"},
	{"fi_cq_data", "-p verbs -e msg"},
	{"fi_rma_bw", "-p verbs -e msg -o write -v -I 100"},
	{"fi_rma_bw", "-p verbs -e msg -o read -v -I 100"},
	{"fi_rdm", "-p 'verbs;ofi_rxm'"},
	{"fi_rdm_pingpong", "-p 'verbs;ofi_rxm' -v -I 100"},
	{"fi_rdm_pingpong", "-p 'verbs;ofi_rxm' -v -I 100 -c sread"},
	{"fi_rdm_pingpong", "-p 'verbs;ofi_rxm' -v -I 100 -c fd"},
	{"fi_rdm_cntr_pingpong", "-p 'verbs;ofi_rxm' -I 100"},
	{"fi_rdm_tagged_pingpong", "-p 'verbs;ofi_rxm' -v -I 100"},
	{"fi_rdm_tagged_bw", "-p 'verbs;ofi_rxm' -v -I 100"},
	{"fi_rdm_tagged_bw", "-p 'verbs;ofi_rxm' -v -I 100 -c sread"},
	{"fi_rdm_tagged_peek", "-p 'verbs;ofi_rxm'"},
	{"fi_rdm_atomic", "-p 'verbs;ofi_rxm' -I 5 -o all"},
	{"fi_bw", "-p 'verbs;ofi_rxm' -e rdm -v -T 1"},
	{"fi_rma_bw", "-p 'verbs;ofi_rxm' -e rdm -o write -v -I 100"},
	{"fi_rma_bw", "-p 'verbs;ofi_rxm' -e rdm -o read -v -I 100"},
	{"fi_rma_bw", "-p 'verbs;ofi_rxm' -e rdm -o writedata -v -I 100"},
	{"fi_cq_data", "-p 'verbs;ofi_rxm' -e rdm"},
	{"fi_multi_recv", "-p 'verbs;ofi_rxm' -e rdm -I 5"},
	{"fi_recv_cancel", "-p 'verbs;ofi_rxm' -e rdm -V"},
	{"fi_unexpected_msg", "-p 'verbs;ofi_rxm' -e rdm -I 10"},
	{"fi_poll", "-p 'verbs;ofi_rxm' -t queue"},
	{"fi_poll", "-p 'verbs;ofi_rxm' -t counter"},
}

// TestFabtests runs only if STAG_FABTESTS names a directory.
func TestFabtests(t *testing.T) {
	dir := os.Getenv(fabtestsVariable)
	if dir == "" {
		t.Skipf("SKIPPED, %s names no directory with the programs of fabtests", fabtestsVariable)
	}
	for _, f := range fabtests {
		line := filepath.Join(dir, f.program) + " " + f.options
		play(t, row{title: f.program + " " + f.options, server: line + " -s " + addrA, client: line + " " + addrA, port: fabtestsPort, env: rxm, kernel: true})
	}
}
