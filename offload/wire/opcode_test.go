package wire_test

import (
	"testing"

	"github.com/stag-rdma/stag/offload/wire"
)

// The rows of RFC 5040 Figure 4 and RFC 7306 §5, read from there: header, queue,
// solicited event, invalidation, answer.
func TestOpcodeRows(t *testing.T) {
	type row struct {
		header                 string // "tagged", or the queue's number
		solicited, invalidates bool
		response               wire.Opcode
	}
	want := map[wire.Opcode]row{
		0: {header: "tagged"}, 1: {header: "1", response: 2}, 2: {header: "tagged"},
		3: {header: "0"}, 4: {header: "0", invalidates: true},
		5: {header: "0", solicited: true}, 6: {header: "0", solicited: true, invalidates: true},
		7: {header: "2"},
		8: {header: "0"}, 9: {header: "0", solicited: true}, 10: {header: "1", response: 11}, 11: {header: "3"},
		12: {header: "0"}, 13: {header: "0", solicited: true},
	}
	for op := wire.Opcode(0); op < 255; op++ {
		got := wire.InfoOf(op)
		w, defined := want[op]
		if (got.Name != "") != defined {
			t.Errorf("opcode %d is called %q", uint8(op), got.Name)
		}
		if !defined {
			continue
		}
		header := "tagged"
		if !got.Tagged {
			header = string('0' + rune(got.Queue))
		}
		if header != w.header || got.Solicited != w.solicited || got.Invalidates != w.invalidates || got.Response != w.response || got.Answered != (w.response != 0) ||
			got.Extension != (op > 7) || got.Immediate != (op == 8 || op == 9) || got.WithImm != (op > 11) {
			t.Errorf("%v: %+v", op, *got)
		}
	}
}
