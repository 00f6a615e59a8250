package dump

import (
	"encoding/json"
	"fmt"
	"strings"
)

// printer writes a line for each packet.
type printer struct {
	blocks
	asJSON bool
	pids   bool // each line of text has the pid
}

// add prints a packet.
func (p *printer) add(_ *source, pk packet) error {
	defer p.end()
	if p.asJSON {
		return json.NewEncoder(&p.blocks).Encode(pk.line)
	}
	_, err := fmt.Fprintln(&p.blocks, text(pk.line, p.pids))
	return err
}

// finish does nothing: text and JSON have nothing after the last packet.
func (p *printer) finish([]*source) error { return nil }

// text returns a line as tcpdump prints it, with the engine's facts in front.
func text(l Line, pid bool) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	say("%s ", l.Time.Local().Format("15:04:05.000000"))
	if pid {
		say("pid %d ", l.PID)
	}
	way := "In "
	if l.Direction == "out" {
		way = "Out"
	}
	say("%s %s queue %d ", l.Device, way, l.Queue)
	if l.Flow != 0 {
		say("flow %v ", l.Flow)
	}
	if l.QP != 0 {
		say("qp %d ", l.QP)
	}
	if l.VLAN != 0 {
		say("vlan %d ", l.VLAN)
	}
	for _, m := range l.Moved {
		say("[%s] ", m)
	}
	if l.Problem != "" {
		say("not taken apart (%s), length %d", l.Problem, l.Length)
		return b.String()
	}
	ip := "IP"
	if l.v6 {
		ip = "IP6"
	}
	say("%s %s > %s: ", ip, l.Source, l.Destination)
	switch {
	case l.TooBig != nil:
		t := l.TooBig
		say("ICMP packet too big, mtu %d: seq %d of %s > %s", t.MTU, t.Seq, t.Source, t.Destination)
	case l.TCP != nil:
		segment(say, l.TCP)
	}
	if l.RDMA != nil {
		operation(say, l.RDMA)
	}
	for i := range l.ISCSI {
		say("%s", separator(i))
		l.ISCSI[i].text(say)
	}
	return b.String()
}

// separator is what stands in front of PDU number i of a segment.
func separator(i int) string {
	if i == 0 {
		return ":"
	}
	return ";"
}

func segment(say func(string, ...any), t *TCP) {
	say("Flags [%s], seq %d", t.Flags, t.Seq)
	if t.Length > 0 {
		say(":%d", t.Seq+uint32(t.Length))
	}
	if t.Ack != nil {
		say(", ack %d", *t.Ack)
	}
	say(", win %d", t.Window)
	var options []string
	if t.TSVal != nil {
		options = append(options, fmt.Sprintf("TS val %d ecr %d", *t.TSVal, *t.TSEcr))
	}
	if len(t.SACK) > 0 {
		blocks := ""
		for _, b := range t.SACK {
			blocks += fmt.Sprintf("{%d:%d}", b[0], b[1])
		}
		options = append(options, fmt.Sprintf("sack %d %s", len(t.SACK), blocks))
	}
	if len(options) > 0 {
		say(", options [%s]", strings.Join(options, ","))
	}
	say(", length %d", t.Length)
}

func operation(say func(string, ...any), o *Operation) {
	say(": %s", o.Name)
	switch {
	case o.MSN != nil:
		say(" msn %d offset %d", *o.MSN, o.Offset)
	default:
		say(" stag %s offset %d", o.STag, o.Offset)
	}
	if o.Invalidate != "" {
		say(" stag %s", o.Invalidate)
	}
	switch {
	case o.Read != nil:
		say(" sink %s offset %d source %s offset %d length %d", o.Read.SinkSTag, o.Read.SinkOffset, o.Read.SourceSTag, o.Read.SourceOffset, o.Read.Length)
		return
	case o.Atomic != nil:
		atomicWords(say, o.Atomic)
		return
	case o.Immediate != "":
		say(" data %s", o.Immediate)
		if !strings.HasPrefix(o.Name, "Send") {
			return
		}
	case o.Error != nil:
		say(" layer %d type %d code %d", o.Error.Layer, o.Error.Type, o.Error.Code)
		return
	}
	say(" length %d", o.Length)
	if o.Last {
		say(" last")
	}
}

func atomicWords(say func(string, ...any), a *AtomicWords) {
	say(" id %d", a.ID)
	if a.Original != "" {
		say(" original %s", a.Original)
		return
	}
	say(" %s stag %s offset %d data %s mask %s compare %s mask %s", a.Operation, a.STag, a.Offset, a.Data, a.Mask, a.Compare, a.CompareMask)
}
