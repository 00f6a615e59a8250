package report

import (
	"slices"
	"testing"
)

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{
		"Rx": "rx", "RxOctets": "rx_octets", "DupSACKs": "dup_sacks", "DupAcksIn": "dup_acks_in",
		"TxRingFull": "tx_ring_full", "bad checksum": "bad_checksum", "not-TCP": "not_tcp", "RTOs": "rtos", "CRCErrors": "crc_errors",
		"FPDUsIn": "fpdus_in", "STag": "s_tag", "X": "x",
	} {
		if got := Snake(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestFields(t *testing.T) {
	type counters struct {
		OneThing, Other uint64
		Text            string
		hidden          uint64
		Last            uint64
	}
	got := Fields("layer", counters{1, 2, "x", 3, 4})
	want := []Counter{{Layer: "layer", Name: "one_thing", Value: 1}, {Layer: "layer", Name: "other", Value: 2}, {Layer: "layer", Name: "last", Value: 4}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
