package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/rdma"
)

// TestRFC7306Dissected: tshark reads the fields of every atomic operation as they were
// posted, from an offloaded end and from a kernel port, with good CRCs and without a
// complaint. tshark 4.0 does not name Immediate Data, and counts it by its opcode.
func TestRFC7306Dissected(t *testing.T) { onFreeLink(t, "all", rfc7306Dissected) }

func rfc7306Dissected(t *testing.T) bool {
	r := newStage(t, setup{sysctl: noGuesses})
	d := r.dumpAt(theirs)
	a, b := r.adapter(ours, rdma.Config{}), r.adapter(theirs, rdma.Config{KernelPort: true})
	our, their := r.newVerbs(ours, a), r.newVerbs(theirs, b)
	our.jobs, their.jobs = nil, nil
	p := rdma.ConnParams{Extensions: rdma.ExtRFC7306}
	r.meet(our, their, b, false, p, p)
	var want []string
	for _, way := range [][2]*verbs{{our, their}, {their, our}} {
		want = append(want, way[0].atomics(way[1])...)
		way[0].immediates(way[1])
	}
	our.part(their)
	d.end(r)
	if !d.inOrder(r) {
		return false
	}
	found := d.judge(r)
	for _, complaint := range found.complains {
		t.Errorf("tshark complains: %s", complaint)
	}
	for side := range found.sides {
		f := &found.sides[side]
		for op, n := range map[wire.Opcode]int{wire.OpAtomicRequest: 5, wire.OpAtomicResponse: 5, wire.OpImmediate: 1, wire.OpImmediateSE: 2} {
			if f.messages[op] != n {
				t.Errorf("side %v: tshark finds %d of %v, want %d", pair.Side(side), f.messages[op], op, n)
			}
		}
		if f.good != f.all {
			t.Errorf("side %v: %d of %d FPDUs are good", pair.Side(side), f.good, f.all)
		}
	}
	if got := d.atomics(r); !slices.Equal(got, want) {
		t.Errorf("tshark reads\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return true
}

// atomics does every atomic operation on a word of peer, one after the other. It returns
// the fields of the messages: operation, identifier, offset, the values and masks in the
// order of the header, and then identifier and old value of the Response.
func (v *verbs) atomics(peer *verbs) (fields []string) {
	v.Helper()
	mr, err := peer.ep.PD.AllocMR(64, rdma.LocalWrite|rdma.RemoteAtomic)
	v.Must(err)
	defer func() { v.Must(mr.Close()) }()
	const all = uint64(1<<64 - 1)
	word := mr.Uint64(8)
	word.Store(100)
	for i, c := range []struct {
		wr    rdma.SendWR
		op    int
		words [4]uint64
		after uint64
	}{
		{rdma.SendWR{Op: rdma.WRFetchAdd, CompareAdd: 5}, 0, [4]uint64{5, 0, 0, all}, 105},
		{rdma.SendWR{Op: rdma.WRMaskedFetchAdd, CompareAdd: 0x98, CompareAddMask: 0x80}, 0, [4]uint64{0x98, 0x80, 0, all}, 1},
		{rdma.SendWR{Op: rdma.WRCompareSwap, CompareAdd: 1, Swap: 7}, 2, [4]uint64{7, all, 1, all}, 7},
		{rdma.SendWR{Op: rdma.WRMaskedCompareSwap, CompareAdd: 6, CompareAddMask: 6, Swap: 0xf0, SwapMask: 0xf8}, 2, [4]uint64{0xf0, 0xf8, 6, 6}, 0xf7},
		{rdma.SendWR{Op: rdma.WRSwap, Swap: 9}, 2, [4]uint64{9, all, 0, 0}, 9},
	} {
		before := word.Load()
		c.wr.Flags, c.wr.SGL, c.wr.RKey, c.wr.RemoteAddr = rdma.Signaled, []rdma.SGE{v.sink.SGE(0, 8)}, mr.RKey(), 8
		_, err := v.qp.PostSend(c.wr)
		v.Must(err)
		done, err := v.ep.SendCQ.Next(v.Ctx())
		v.Must(err)
		if done.Status != rdma.Success || v.sink.Uint64(0).Load() != before || word.Load() != c.after {
			v.Errorf("%v: %+v, returned %#x, became %#x; want %#x, %#x", c.wr.Op, done, v.sink.Uint64(0).Load(), word.Load(), before, c.after)
		}
		fields = append(fields, fmt.Sprintf("%d,%d,%d,%d,0x%016x,%d,0x%016x", c.op, i+1, 8, c.words[0], c.words[1], c.words[2], c.words[3]),
			fmt.Sprintf("%d,%d", i+1, before))
	}
	return fields
}

// immediates sends Immediate Data behind a Write, alone, and behind an empty Write.
func (v *verbs) immediates(peer *verbs) {
	v.Helper()
	_, err := peer.qp.PostRecv(rdma.RecvWR{}, rdma.RecvWR{}, rdma.RecvWR{})
	v.Must(err)
	_, err = v.qp.PostSend(
		rdma.SendWR{Op: rdma.WRWriteImm, Flags: rdma.Solicited, SGL: []rdma.SGE{v.src.SGE(0, 3000)}, RKey: peer.dst.RKey(), Imm: 1},
		rdma.SendWR{Op: rdma.WRSendImm, Imm: 2}, rdma.SendWR{Op: rdma.WRWriteImm, Flags: rdma.Signaled | rdma.Solicited, Imm: 3})
	v.Must(err)
	for i := range 3 {
		c, err := peer.ep.RecvCQ.Next(v.Ctx())
		if v.Must(err); c.Status != rdma.Success || !c.WithImm || c.Imm != uint64(i+1) {
			v.Errorf("%+v", c)
		}
	}
	c, err := v.ep.SendCQ.Next(v.Ctx())
	if v.Must(err); c.Status != rdma.Success {
		v.Errorf("%+v", c)
	}
}

// atomics returns the fields of the Atomic Requests and Responses of the capture, as
// verbs.atomics does.
func (d *dump) atomics(r *rig) (fields []string) {
	r.Helper()
	args := []string{"-r", d.file, "-n", "--disable-protocol", "rpcordma", "-T", "fields", "-E", "separator=,",
		"-Y", "iwarp_rdma.atomic.request_identifier || iwarp_rdma.atomic.original_request_identifier"}
	for _, name := range []string{
		"opcode", "request_identifier", "remote_tagged_offset", "add_data", "add_mask", "swap_data", "swap_mask",
		"compare_data", "compare_mask", "original_request_identifier", "original_remote_data_value",
	} {
		args = append(args, "-e", "iwarp_rdma.atomic."+name)
	}
	out, err := exec.Command("tshark", args...).Output()
	r.Must(err)
	for line := range strings.Lines(string(out)) {
		var values []string
		for _, v := range strings.Split(strings.TrimSpace(line), ",") {
			if v != "" {
				values = append(values, v)
			}
		}
		fields = append(fields, strings.Join(values, ","))
	}
	return fields
}
