package perf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/stag-rdma/stag/rdma"
)

// version is the version of the exchange between the two ends.
const version = 3

// hello describes an end. It travels with the MPA Request or Reply, as JSON.
type hello struct {
	Version int    `json:"stag_perf"`
	Terms   terms  `json:"terms"`
	QP      int    `json:"qp"` // number of the QP in the run, from 0
	Ticket  ticket `json:"keys"`
}

// terms are the options that must be the same at both ends.
type terms struct {
	Test       Test    `json:"T"`
	Size       int     `json:"s"` // size of a message in octets; 0 with All
	All        bool    `json:"a,omitempty"`
	Iterations uint64  `json:"n"`
	Seconds    float64 `json:"D"`
	QPs        int     `json:"q"`
	TxDepth    int     `json:"t"`
	RxDepth    int     `json:"r"`
	List       int     `json:"l,omitempty"`
	Moderation int     `json:"Q,omitempty"`
	Inline     int     `json:"I,omitempty"`
	Margin     float64 `json:"f,omitempty"` // margin in seconds
	Endless    bool    `json:"i,omitempty"`
	Events     bool    `json:"e,omitempty"`
	Both       bool    `json:"b,omitempty"`
	Verify     bool    `json:"v,omitempty"`
}

// ticket has the facts about a QP and its memory that the peer needs.
type ticket struct {
	Number   uint32    `json:"N"` // number of the QP
	Incoming rdma.STag `json:"i"`
	Outgoing rdma.STag `json:"o"`
	Notes    rdma.STag `json:"n"`
}

func (o Options) terms() terms {
	t := terms{
		Test: o.Test, Size: o.Size, All: o.All, Iterations: o.Iterations, Seconds: o.Duration.Seconds(),
		QPs: o.QPs, TxDepth: o.txDepth(), RxDepth: o.rxDepth(), Both: o.Both, Verify: o.Verify,
		List: int(o.list()), Moderation: int(o.moderation(o.largest())), Inline: o.Inline,
		Margin: o.Margin.Seconds(), Endless: o.Endless, Events: o.Events,
	}
	if o.All {
		t.Size = 0
	}
	return t
}

// differs returns an error that names the differing options, or nil if all are the same.
func (t terms) differs(theirs terms) error {
	var all []string
	for _, x := range []struct {
		flag         string
		mine, theirs any
	}{
		{"test", t.Test, theirs.Test},
		{"-a", t.All, theirs.All},
		{"-s", t.Size, theirs.Size},
		{"-n", t.Iterations, theirs.Iterations},
		{"-D", t.Seconds, theirs.Seconds},
		{"-q", t.QPs, theirs.QPs},
		{"-t", t.TxDepth, theirs.TxDepth},
		{"-r", t.RxDepth, theirs.RxDepth},
		{"-l", t.List, theirs.List},
		{"-Q", t.Moderation, theirs.Moderation},
		{"-I", t.Inline, theirs.Inline},
		{"-f", t.Margin, theirs.Margin},
		{"--run_infinitely", t.Endless, theirs.Endless},
		{"-e", t.Events, theirs.Events},
		{"-b", t.Both, theirs.Both},
		{"--verify", t.Verify, theirs.Verify},
	} {
		if x.mine != x.theirs {
			all = append(all, fmt.Sprintf("%s is %v here and %v there", x.flag, x.mine, x.theirs))
		}
	}
	if all == nil {
		return nil
	}
	return fmt.Errorf("the two ends must be given the same options: %s", strings.Join(all, ", "))
}

func (n *notes) hello() ([]byte, error) {
	return json.Marshal(hello{
		Version: version, Terms: n.l.run.terms(), QP: n.l.index,
		Ticket: ticket{n.l.qp.Number(), n.in.RKey(), n.out.RKey(), n.inbox.RKey()},
	})
}

var errStranger = errors.New("the peer does not say what stag perf says: is it another program (for perftest give --perftest), or another version?")

func parseHello(b []byte) (h hello, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil || h.Version != version {
		return hello{}, errStranger
	}
	return h, nil
}

// agree stores the facts about the peer's QP from its hello.
func (n *notes) agree(h hello) error {
	if err := n.l.run.terms().differs(h.Terms); err != nil {
		return err
	}
	if h.QP != n.l.index {
		return fmt.Errorf("the peer connected QP %d instead of QP %d: are there two clients?", h.QP+1, n.l.index+1)
	}
	n.theirs, n.l.theirs = h.Ticket, h.Ticket.Number
	n.l.remote.key = h.Ticket.Incoming
	if n.l.run.Test.op() == rdma.WRRead {
		n.l.remote.key = h.Ticket.Outgoing
	}
	return nil
}
