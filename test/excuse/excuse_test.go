package excuse

import "testing"

func TestOf(t *testing.T) {
	for out, want := range map[string][2]string{ // of Of and of Early
		"":                          {},
		" 2 5 0.00 0.00 0.000":      {}, // zeros alone are no excuse
		"RDMA_CM_EVENT_UNREACHABLE": {},
		"Completion with error at client\nFailed status 12: wr_id 0 syn": {},
		"Correlation coefficient r^2: 0.879 < 0.9\n":                     {clock.why, ""},
		"Unexpected CM event bl blka 8\nRDMA_CM_EVENT_REJECTED":          {early.why, early.why},
		"Failed to connect through RDMA CM.\nERRNO: Connection refused.\nFailed to handle RDMA CM event.\nERRNO: Connection refused.\nFailed to connect RDMA CM events.\nERRNO: Connection refused.\nSegmentation fault\n": {early.why, early.why},
		"Failed to connect through RDMA CM.\nERRNO: Connection timed out.":                                             {}, // the server listens, and does not answer
		" Bad wc status 2\n Unable to write to socket/rdma_cm\nFailed to close connection between server and client\n": {"", parted.why},
		" Bad wc status 2\n Unable to write to socket/rdma_cm\nFailed to exchange data between server and clients\n":   {},
		"Failed to create QP.\nERRNO: Connection refused.":                                                             {},
	} {
		if of, early := Of("", out), Early("", out); of != want[0] || early != want[1] {
			t.Errorf("%q: %q, %q", out, of, early)
		}
	}
}

func TestQperf(t *testing.T) {
	for out, want := range map[string]string{
		"": "",
		"rc_rdma_read_lat:\nunexpected event from RDMA CM: Event rejected\n    expecting: Event established\n": unheard.why,
		"unexpected event from RDMA CM: Event rejected\n    expecting: Event disconnected\n":                   "",
		"unexpected event from RDMA CM: Event unreachable\n    expecting: Event established\n":                 "",
		"Correlation coefficient r^2: 0.879 < 0.9\n":                                                           "",
	} {
		if got := Qperf("", out); got != want {
			t.Errorf("%q: %q", out, got)
		}
	}
}
