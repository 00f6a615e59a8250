//go:build verbs

package verbs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/excuse"
)

const fioPort = 7345

// fio returns a row in which jobs of fio send to, write to or read from as many receivers.
// Each job has a port of its own. The job with rw=read is the server, also if the client reads.
func fio(verb string, jobs int) row {
	const common = "--ioengine=rdma --bs=64k --iodepth=8 --iodepth_batch_complete_min=1 --thread=0"
	size := pick(16, 1024) + "m"
	server, client := []string{"fio"}, []string{"fio"}
	for i := range jobs {
		server = append(server, fmt.Sprintf("--name=r%d %s --port=%d --size=%s --rw=read", i, common, fioPort+i, size))
		client = append(client, fmt.Sprintf("--name=s%d %s --hostname=%s --port=%d --verb=%s --size=%s --rw=write", i, common, addrA, fioPort+i, verb, size))
	}
	return row{
		title:  fmt.Sprintf("fio verb=%s, %d jobs", verb, jobs),
		server: strings.Join(server, " "), client: strings.Join(client, " "), port: fioPort + jobs - 1, kernel: jobs == 1, more: jobs == 2 || jobs == 4 || jobs == 8 && verb != "send",
		check: func(t *trial, server, client string) {
			if n := strings.Count(client, "err= 0"); n != jobs {
				t.Errorf("%d jobs of the client say err= 0, and not %d", n, jobs)
			}
		},
	}
}

// TestFio: fio's engine rdma, which forks its jobs.
func TestFio(t *testing.T) {
	for _, verb := range []string{"write", "read", "send"} {
		for _, jobs := range []int{1, 2, 4, 8} {
			play(t, fio(verb, jobs))
		}
	}
}

const qperfPort = 19765

// TestQperf: all tests of reliable connections with the connection manager.
func TestQperf(t *testing.T) {
	for _, test := range []string{
		"rc_lat", "rc_bw", "rc_bi_bw", "rc_rdma_read_lat", "rc_rdma_read_bw", "rc_rdma_write_lat", "rc_rdma_write_bw", "rc_rdma_write_poll_lat",
		"rc_compare_swap_mr", "rc_fetch_add_mr",
	} {
		play(t, row{
			more:   slices.Contains([]string{"rc_lat", "rc_bi_bw", "rc_rdma_read_bw", "rc_rdma_write_lat", "rc_fetch_add_mr"}, test),
			server: "qperf", client: "qperf " + addrA + " -cm1 -t " + pick(1, 10) + " " + test, port: qperfPort, stays: true, excuse: excuse.Qperf,
			kernel: strings.HasPrefix(test, "rc_rdma"), check: says(test+":", " = "),
		})
	}
}
