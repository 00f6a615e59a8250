package rdmap

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/ddp"
	"github.com/stag-rdma/stag/offload/wire"
	"github.com/stag-rdma/stag/test/captures"
	"github.com/stag-rdma/stag/tpt"
)

// talk is one direction of a captured connection, as messages.
type talk struct {
	untagged [wire.QueueTerminate + 1]ddp.Queue
	open     ddp.Segment              // the tagged message that is arriving
	sum      uint32                   // its length so far in octets
	whole    map[wire.Opcode][]int    // lengths of messages, by opcode
	asked    []wire.ReadRequestFields // Read Requests, in order
	answered []answer
}

// answer is a whole RDMA Read Response.
type answer struct {
	stag tpt.STag
	to   uint64
	size uint32
}

// hear takes the next segment, and returns an error if it breaks a rule of DDP (RFC
// 5041 §5.1, §5.3).
func (k *talk) hear(ulpdu []byte) error {
	var s ddp.Segment
	if f := ddp.Parse(ulpdu, &s); f != ddp.OK {
		return fmt.Errorf("%v: %x", f, ulpdu[:min(len(ulpdu), wire.UntaggedLen)])
	}
	op := wire.InfoOf(s.Opcode)
	if s.Version != wire.RDMAPVersion || ops[s.Opcode&15] == nil || op.Tagged != s.Tagged || !s.Tagged && op.Queue != s.Queue {
		return fmt.Errorf("%v, version %d, tagged %v, queue %d", s.Opcode, s.Version, s.Tagged, s.Queue)
	}
	if s.Tagged {
		return k.tagged(s)
	}
	q := &k.untagged[s.Queue]
	if f := q.Expect(&s); f != ddp.OK {
		return fmt.Errorf("%v: %v, MSN %d, MO %d", s.Opcode, f, s.MSN, s.MO)
	}
	if n, complete := q.Accept(&s); complete {
		k.whole[s.Opcode] = append(k.whole[s.Opcode], int(n))
	}
	if r, ok := wire.ParseReadRequest(s.Payload); ok && s.Opcode == wire.OpReadRequest {
		k.asked = append(k.asked, r)
	}
	return nil
}

// tagged is hear for Writes and Read Responses: their offsets must continue.
func (k *talk) tagged(s ddp.Segment) error {
	if k.sum != 0 && (s.Opcode != k.open.Opcode || s.STag != k.open.STag || s.TO != k.open.TO+uint64(k.sum)) {
		return fmt.Errorf("%v to %v at %d, in the middle of a %v to %v at %d, at octet %d",
			s.Opcode, s.STag, s.TO, k.open.Opcode, k.open.STag, k.open.TO, k.sum)
	}
	if k.sum == 0 {
		k.open = s
	}
	k.sum += uint32(len(s.Payload))
	if !s.Last {
		return nil
	}
	k.whole[s.Opcode] = append(k.whole[s.Opcode], int(k.sum))
	if s.Opcode == wire.OpReadResponse {
		k.answered = append(k.answered, answer{k.open.STag, k.open.TO, k.sum})
	}
	k.sum = 0
	return nil
}

// heard parses a captured direction, from behind its Request or Reply.
func heard(t *testing.T, name string, s captures.Stream) *talk {
	t.Helper()
	k := &talk{whole: map[wire.Opcode][]int{}}
	for i := range k.untagged {
		k.untagged[i] = ddp.NewQueue()
	}
	b := s.Bytes()
	b = b[wire.MPAFrameLen+int(binary.BigEndian.Uint16(b[18:])):]
	for len(b) >= wire.FPDUHeadLen {
		n := int(binary.BigEndian.Uint16(b))
		if len(b) < wire.FPDULen(n) {
			break // the capture ends here
		}
		if err := k.hear(b[wire.FPDUHeadLen : wire.FPDUHeadLen+n]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		b = b[wire.FPDULen(n):]
	}
	return k
}

// said lists the messages of each length.
func (k *talk) said() string {
	var list []string
	for _, op := range slices.Sorted(maps.Keys(k.whole)) {
		counts := map[int]int{}
		for _, n := range k.whole[op] {
			counts[n]++
		}
		for _, n := range slices.Sorted(maps.Keys(counts)) {
			list = append(list, fmt.Sprintf("%d %v of %d", counts[n], op, n))
		}
	}
	return strings.Join(list, ", ")
}

// TestCapturedMessages: the messages of two siw ends follow RFC 5040 and RFC 5041. They
// are numbered without a gap, their offsets continue, and each Read is answered in its
// turn, in full and to its sink.
func TestCapturedMessages(t *testing.T) {
	names, err := captures.Names()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, name := range names {
		if strings.Contains(name, "raw") {
			continue // one end of it is wrong on purpose
		}
		conns, err := captures.Read(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range conns {
			at := fmt.Sprintf("%s %d", name, i)
			client, server := heard(t, at+" client", c.Client), heard(t, at+" server", c.Server)
			answers(t, at+" client's Reads", client, server)
			answers(t, at+" server's Reads", server, client)
			got[at] = client.said() + "; " + server.said()
		}
	}
	rping := "5 RDMA Read Response of 64, 10 Send of 16; 5 RDMA Write of 64, 5 RDMA Read Request of 28, 10 Send of 16"
	for at, want := range map[string]string{
		"rping-siw-siw 0":        rping,
		"ib_write_bw-head 1":     "2 RDMA Write of 65536; ",
		"ib_send_bw-head 1":      "1 Send of 65536; ",
		"ib_read_bw-head 1":      "20 RDMA Read Request of 28; 2 RDMA Read Response of 65536",
		"ib_read_bw-loss-head 1": "20 RDMA Read Request of 28; 1 RDMA Read Response of 65536",
	} {
		if got[at] != want {
			t.Errorf("%s:\n got %s\nwant %s", at, got[at], want)
		}
	}
	if len(got) < 15 {
		t.Errorf("only %d connections", len(got))
	}
}

// answers checks that each whole Response answers the Read in its place.
func answers(t *testing.T, what string, asks, says *talk) {
	t.Helper()
	if len(says.answered) > len(asks.asked) {
		t.Fatalf("%s: %d Responses to %d", what, len(says.answered), len(asks.asked))
	}
	for i, a := range says.answered {
		if r := asks.asked[i]; a != (answer{r.SinkSTag, r.SinkTO, r.Size}) {
			t.Errorf("%s: %+v answers %+v", what, a, r)
		}
	}
}

// TestCapturedMessagesSpoiled: the checks of TestCapturedMessages notice wrong
// messages.
func TestCapturedMessagesSpoiled(t *testing.T) {
	conns, err := captures.Read("ib_write_bw-head")
	if err != nil {
		t.Fatal(err)
	}
	b := conns[1].Client.Bytes()[24:]
	n := wire.FPDULen(int(binary.BigEndian.Uint16(b)))
	for _, at := range []int{2, 3, 4, 15} { // DDP's octet, RDMAP's, the STag, the offset
		k := &talk{whole: map[wire.Opcode][]int{}}
		second := bytes.Clone(b[n:])
		second[at] ^= 2
		if err := k.hear(b[2 : n-4]); err != nil {
			t.Fatal(err)
		}
		if err := k.hear(second[2 : n-4]); err == nil {
			t.Errorf("octet %d of the second segment may be anything", at)
		}
	}
}
