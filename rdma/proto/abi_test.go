package proto

import (
	"bytes"
	"encoding/binary"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/signal"
	"github.com/stag-rdma/stag/offload/work"
	"github.com/stag-rdma/stag/tpt"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// A C compiler gives the same sizes, offsets and constants as the parser of this test. On a
// machine without a compiler, the other tests compare with the parser alone.
func TestHeaderCompiles(t *testing.T) {
	h := parse(t)
	cc := compiler()
	if cc == "" {
		t.Log("no C compiler: the header was parsed only")
		return
	}
	got, want := h.compiled(t, cc), h.lines()
	if !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("the compiler says %q, the parser %q", got[i], want[i])
			}
		}
		t.Fatalf("the compiler says %d lines, the parser %d", len(got), len(want))
	}
}

// mirrors are the structures of abi.h that Go has.
var mirrors = map[string]any{
	"stag_hello": Hello{}, "stag_device": Device{}, "stag_port": Port{}, "stag_gid": GID{}, "stag_cq": CQ{}, "stag_qp": QP{},
	"stag_qp_attr": QPAttr{}, "stag_mr": MR{}, "stag_mw": MW{}, "stag_srq": SRQ{}, "stag_destroy": Destroy{},
	"stag_attach": Attach{}, "stag_async": Async{}, "stag_id": ID{}, "stag_address": Address{}, "stag_conn": Conn{},
	"stag_migrate": Migrate{}, "stag_option": Option{}, "stag_cm_event": CMEvent{}, "stag_msg": Message{}, "stag_bell": Bell{},
}

// rings are the structures that offload/work has, in files that do not export them.
var rings = []string{
	"stag_cell", "stag_cq_ring", "stag_element", "stag_operands", "stag_queue_ring", "stag_recv_slot", "stag_send_slot", "stag_shape",
}

func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

func TestLayoutsMatchHeader(t *testing.T) {
	h := parse(t)
	all := append(sorted(mirrors), rings...)
	slices.Sort(all)
	if got := sorted(h.structs); !slices.Equal(got, all) {
		t.Errorf("the header has the structures %q\nwant %q", got, all)
	}
	for name, mirror := range mirrors {
		c, g := h.structs[name], reflect.TypeOf(mirror)
		if c == nil {
			continue
		}
		if c.size != int(g.Size()) || len(c.fields) != g.NumField() {
			t.Errorf("%s: %d octets and %d fields in C, %d and %d in Go", name, c.size, len(c.fields), g.Size(), g.NumField())
		}
		offsets := map[string]int{}
		for f, at := range c.fields {
			offsets[plain(f)] = at
		}
		for i := range g.NumField() {
			f := g.Field(i)
			if at, ok := offsets[plain(f.Name)]; !ok || at != int(f.Offset) {
				t.Errorf("%s.%s is at %d in Go, at %d in C (declared %v)", name, f.Name, f.Offset, at, ok)
			}
		}
		if name != "stag_msg" && name != "stag_bell" && (g.Size() > BodyLen || g.Align() > 8) {
			t.Errorf("%s has %d octets: it does not fit into a message", name, g.Size())
		}
	}
}

// constants has a row for each number of abi.h.
var constants = map[string]uint64{
	"STAG_PROTOCOL_VERSION": Version, "STAG_LAYOUT_VERSION": work.LayoutVersion,
	"STAG_PRIVATE_MAX": PrivateMax, "STAG_BODY_LEN": BodyLen, "STAG_ADDR_LEN": AddrLen, "STAG_NAME_LEN": NameLen, "STAG_OPTION_LEN": OptionLen,
	"STAG_BELL_LEN": BellLen, "STAG_BELL_BITS": BellBits, "STAG_SLOTS_AT": uint64(work.SendRingLen(1, 0, 0) - 32),

	"STAG_OP_HELLO": uint64(OpHello), "STAG_OP_DEVICE": uint64(OpDevice), "STAG_OP_PORT": uint64(OpPort), "STAG_OP_GID": uint64(OpGID),
	"STAG_OP_PD": uint64(OpPD), "STAG_OP_CHANNEL": uint64(OpChannel), "STAG_OP_CQ": uint64(OpCQ), "STAG_OP_RESIZE_CQ": uint64(OpResizeCQ),
	"STAG_OP_QP": uint64(OpQP), "STAG_OP_MODIFY_QP": uint64(OpModifyQP), "STAG_OP_QUERY_QP": uint64(OpQueryQP), "STAG_OP_MR": uint64(OpMR),
	"STAG_OP_MW": uint64(OpMW), "STAG_OP_SRQ": uint64(OpSRQ), "STAG_OP_MODIFY_SRQ": uint64(OpModifySRQ), "STAG_OP_QUERY_SRQ": uint64(OpQuerySRQ),
	"STAG_OP_DESTROY": uint64(OpDestroy), "STAG_OP_ASYNC": uint64(OpAsync), "STAG_OP_ASYNC_EVENT": uint64(OpAsyncEvent),
	"STAG_OP_EVENT_CHANNEL": uint64(OpEventChannel), "STAG_OP_CM_EVENT": uint64(OpCMEvent), "STAG_OP_ID": uint64(OpID), "STAG_OP_BIND": uint64(OpBind),
	"STAG_OP_RESOLVE": uint64(OpResolve), "STAG_OP_ROUTE": uint64(OpRoute), "STAG_OP_LISTEN": uint64(OpListen), "STAG_OP_CONNECT": uint64(OpConnect),
	"STAG_OP_ACCEPT": uint64(OpAccept), "STAG_OP_REJECT": uint64(OpReject), "STAG_OP_DISCONNECT": uint64(OpDisconnect),
	"STAG_OP_ESTABLISH": uint64(OpEstablish), "STAG_OP_MIGRATE": uint64(OpMigrate), "STAG_OP_SET_OPTION": uint64(OpSetOption), "STAG_OP_GET_OPTION": uint64(OpGetOption),

	"STAG_KIND_PD": uint64(KindPD), "STAG_KIND_CHANNEL": uint64(KindChannel), "STAG_KIND_CQ": uint64(KindCQ), "STAG_KIND_QP": uint64(KindQP),
	"STAG_KIND_MR": uint64(KindMR), "STAG_KIND_MW": uint64(KindMW), "STAG_KIND_SRQ": uint64(KindSRQ), "STAG_KIND_EVENTS": uint64(KindEvents), "STAG_KIND_ID": uint64(KindID),

	"STAG_PERSONALITY_IWARP": uint64(PersonalityIWARP), "STAG_PERSONALITY_ROCE": uint64(PersonalityRoCE),
	"STAG_FEATURE_ATOMICS": FeatureAtomics, "STAG_FEATURE_IMMEDIATE": FeatureImmediate, "STAG_FEATURE_SRQ": FeatureSRQ, "STAG_FEATURE_MW": FeatureMW,
	"STAG_FEATURE_RESIZE_CQ": FeatureResizeCQ, "STAG_FEATURE_BY_QPN": FeatureByQPN, "STAG_FEATURE_COPIED": FeatureCopied, "STAG_FEATURE_MAPPED": FeatureMapped, "STAG_FEATURE_HOLD": FeatureHold,
	"STAG_QP_SIGNAL_ALL": uint64(QPSignalAll), "STAG_QP_NO_HOLD": uint64(QPNoHold), "STAG_QP_NO_KEEP": uint64(QPNoKeep), "STAG_REACH_COPIED": uint64(ReachCopied), "STAG_REACH_MAPPED": uint64(ReachMapped),
	"STAG_SRQ_DEPTH": uint64(SRQDepth), "STAG_SRQ_LIMIT": uint64(SRQLimit), "STAG_CONN_RESPONSE": uint64(ConnResponse),

	"STAG_IMM_NONE": uint64(work.NoImm), "STAG_IMM_WIDE": uint64(work.WideImm), "STAG_IMM_SHORT": uint64(work.ShortImm),
	"STAG_WR_WRITE": uint64(work.WRWrite), "STAG_WR_WRITE_IMM": uint64(work.WRWriteImm), "STAG_WR_SEND": uint64(work.WRSend), "STAG_WR_SEND_IMM": uint64(work.WRSendImm),
	"STAG_WR_READ": uint64(work.WRRead), "STAG_WR_COMPARE_SWAP": uint64(work.WRCompareSwap), "STAG_WR_FETCH_ADD": uint64(work.WRFetchAdd),
	"STAG_WR_LOCAL_INVALIDATE": uint64(work.WRLocalInvalidate), "STAG_WR_BIND_MW": uint64(work.WRBindMW), "STAG_WR_SEND_INVALIDATE": uint64(work.WRSendInvalidate),
	"STAG_SEND_FENCE": uint64(work.Fence), "STAG_SEND_SIGNALED": uint64(work.Signaled), "STAG_SEND_SOLICITED": uint64(work.Solicited),
	"STAG_WC_SEND": uint64(work.WCSend), "STAG_WC_WRITE": uint64(work.WCWrite), "STAG_WC_READ": uint64(work.WCRead), "STAG_WC_COMPARE_SWAP": uint64(work.WCCompareSwap),
	"STAG_WC_FETCH_ADD": uint64(work.WCFetchAdd), "STAG_WC_BIND_MW": uint64(work.WCBindMW), "STAG_WC_LOCAL_INVALIDATE": uint64(work.WCLocalInvalidate),
	"STAG_WC_RECV": uint64(work.WCRecv), "STAG_WC_RECV_IMM": uint64(work.WCRecvImm), "STAG_WC_NONE": uint64(work.NoOp),
}

func TestConstantsMatchHeader(t *testing.T) {
	h := parse(t)
	for name, want := range constants {
		if got, ok := h.constants[name]; !ok || got != want {
			t.Errorf("%s is %d in the header (declared %v), %d in Go", name, got, ok, want)
		}
	}
	for name := range h.constants {
		if _, ok := constants[name]; !ok {
			t.Errorf("%s has no row in this test", name)
		}
	}
	if LayoutVersion != work.LayoutVersion {
		t.Errorf("layout %d, and the rings have %d", LayoutVersion, work.LayoutVersion)
	}
}

// A request that offload/work has posted lies where the header says.
func TestSendRingMatchesHeader(t *testing.T) {
	h := parse(t)
	memory := aligned(work.SendRingLen(3, 2, 20))
	ring, err := work.NewSendRing(memory, 3, 2, 20)
	if err != nil {
		t.Fatal(err)
	}
	var q work.SendQueue
	q.Init(ring, 3, 2, 20)
	q.Post([]work.SendWR{
		{ID: 0x1122334455667788, Op: work.WRWrite, Flags: work.Signaled, RemoteAddr: 9, RKey: 10, SGL: []work.SGE{{Addr: 1, Length: 2, LKey: 3}, {Addr: 4, Length: 5, LKey: 6}}},
		{ID: 7, Op: work.WRSendInvalidate, Invalidate: 8, Inline: []byte("inline data")},
		{ID: 5, Op: work.WRFetchAdd, RemoteAddr: 1, SGL: []work.SGE{{Addr: 1, Length: 8, LKey: 3}}, CompareAdd: 77, Swap: 88},
	})
	v := view{t, h, memory}
	v.want("stag_queue_ring", 0, map[string]uint64{"tail": 3, "done": 0})
	v.want("stag_shape", 128, map[string]uint64{"version": work.LayoutVersion, "depth": 3, "slot": 64, "elements": 2, "inline_len": 20})
	v.want("stag_send_slot", 192, map[string]uint64{"id": 0x1122334455667788, "remote": 9, "rkey": 10, "op": 0, "flags": 2, "elements": 2, "inline_data": 0})
	v.want("stag_element", 192+32+16, map[string]uint64{"addr": 4, "length": 5, "lkey": 6})
	v.want("stag_send_slot", 256, map[string]uint64{"id": 7, "invalidate": 8, "length": 11, "op": 9, "inline_data": 1})
	v.want("stag_operands", 320+32+16, map[string]uint64{"compare_add": 77})
	for q.Posted() {
		q.Begin()
	}
	q.Pop()
	if got := v.field("stag_queue_ring", 0, "done"); got&0xffffffff != 1 {
		t.Errorf("done is %#x after one request", got)
	}
}

func TestRecvRingMatchesHeader(t *testing.T) {
	h := parse(t)
	memory := aligned(work.RecvRingLen(2, 3))
	ring, err := work.NewRecvRing(memory, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	var r work.RecvQueue
	r.Init(ring, 2, 3)
	r.Post([]work.RecvWR{{ID: 1}, {ID: 2, SGL: []work.SGE{{Addr: 3, Length: 4, LKey: 5}}}})
	v := view{t, h, memory}
	v.want("stag_queue_ring", 0, map[string]uint64{"tail": 2})
	v.want("stag_recv_slot", 192+64, map[string]uint64{"id": 2, "elements": 1})
	v.want("stag_element", 192+64+16, map[string]uint64{"addr": 3, "length": 4, "lkey": 5})
}

func TestCQRingMatchesHeader(t *testing.T) {
	h := parse(t)
	memory := aligned(work.CQRingLen(4))
	c, err := work.NewCQIn(memory, 4, new(signal.Board))
	if err != nil {
		t.Fatal(err)
	}
	c.News.Fire = func() {}
	v := view{t, h, memory}
	binary.NativeEndian.PutUint32(memory[h.structs["stag_cq_ring"].fields["armed"]:], 2)
	var p work.Places
	for i := range uint64(5) {
		c.Push(&p, work.Completion{ID: i + 9, Op: work.WCRecv, Status: work.Flushed, Solicited: true, Invalidated: tpt.STag(7), Length: 8, QP: 6}, true)
	}
	v.want("stag_cq_ring", 0, map[string]uint64{"head": 0, "armed": 0, "overrun": 1})
	v.want("stag_shape", 128, map[string]uint64{"version": work.LayoutVersion, "depth": 4, "slot": 32})
	v.want("stag_cell", 192+32, map[string]uint64{"seq": 2, "id": 10, "op": 128, "status": 5, "solicited": 1, "imm": 0, "invalidated": 7, "length": 8, "qp": 6})
}

// view reads fields at the offsets of the header.
type view struct {
	t      *testing.T
	h      *header
	memory []byte
}

func (v view) field(structure string, at int, name string) uint64 {
	s := v.h.structs[structure]
	offset, ok := s.fields[name]
	if !ok {
		v.t.Fatalf("%s has no field %s", structure, name)
	}
	end := s.size
	for _, o := range s.fields {
		if o > offset {
			end = min(end, o)
		}
	}
	b := v.memory[at+offset:]
	switch end - offset {
	case 1:
		return uint64(b[0])
	case 4:
		return uint64(binary.NativeEndian.Uint32(b))
	default:
		return binary.NativeEndian.Uint64(b)
	}
}

func (v view) want(structure string, at int, fields map[string]uint64) {
	v.t.Helper()
	for name, want := range fields {
		if got := v.field(structure, at, name); got != want {
			v.t.Errorf("%s.%s at %d is %#x, want %#x", structure, name, at, got, want)
		}
	}
}

// The body of a message is its memory.
func TestBodyIsTheMessage(t *testing.T) {
	var m Message
	m.Op, m.Handle = OpCMEvent, 7
	m.CMEvent().QPN = 0x01020304
	copy(m.PrivateData[:], "private")
	other := new(Message)
	copy(other.Bytes(), m.Bytes())
	if *other != m || other.CMEvent().QPN != 0x01020304 || !bytes.Contains(other.Bytes(), []byte("private")) || len(m.Bytes()) != 792 {
		t.Errorf("copied %d octets: %+v", len(m.Bytes()), other)
	}
}
