package login

import (
	"errors"
	"strconv"
	"strings"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// Record is a target in the answer to SendTargets (RFC 7143, appendix C).
type Record struct {
	Name    string
	Portals []Portal
}

// Portal is an address of a target: host:port or [host]:port, and the tag of its portal
// group.
type Portal struct {
	Address string
	Group   uint16
}

// allTargets is the value of SendTargets that asks for all targets.
const allTargets = "All"

// AppendRecords appends the text of records to b.
func AppendRecords(b []byte, records []Record) []byte {
	for _, r := range records {
		b = pdu.AppendText(b, table[keyTargetName].name, r.Name)
		for _, p := range r.Portals {
			b = pdu.AppendText(b, table[keyTargetAddress].name, p.Address+","+strconv.Itoa(int(p.Group)))
		}
	}
	return b
}

var errRecords = errors.New("iscsi: the target's list of targets is not as RFC 7143 appendix C demands")

// ParseRecords reads the text that answers SendTargets. An address without a port gets
// port 3260.
func ParseRecords(in []byte) ([]Record, error) {
	var records []Record
	t := pdu.NewText(in)
	for t.Next() {
		switch k := byName[string(t.Key)]; {
		case k == keyTargetName:
			records = append(records, Record{Name: string(t.Value)})
		case k == keyTargetAddress && len(records) > 0:
			p, err := parsePortal(string(t.Value))
			if err != nil {
				return nil, err
			}
			last := &records[len(records)-1]
			last.Portals = append(last.Portals, p)
		case k == keyTargetAddress:
			return nil, errRecords
		}
	}
	return records, t.Err()
}

// DefaultPort is the TCP port of iSCSI.
const DefaultPort = "3260"

// parsePortal reads address[:port][,group].
func parsePortal(v string) (p Portal, err error) {
	if at := strings.LastIndexByte(v, ','); at >= 0 {
		n, err := parseNumber(v[at+1:], 0, mostShort)
		if err != nil {
			return p, errRecords
		}
		v, p.Group = v[:at], uint16(n)
	}
	host, port := v, DefaultPort
	if at := strings.LastIndexByte(v, ':'); at >= 0 && !strings.HasSuffix(v, "]") {
		host, port = v[:at], v[at+1:]
	}
	if _, err := parseNumber(port, 1, mostShort); err != nil || host == "" {
		return p, errRecords
	}
	p.Address = host + ":" + port
	return p, nil
}

// Answer makes the answer to the text of a Text Request in the full feature phase. find
// returns the record of a target that the initiator may see, or all of them for an empty
// name. A new MaxRecvDataSegmentLength of the initiator changes p.MaxSendLength. Answer
// returns false for a text that is to be rejected: one that is no list of pairs, one with a
// value of SendTargets that the session does not permit (the answer may have no other keys
// than those of a record), and one with an unknown key that is no extension.
func Answer(in []byte, p *Params, find func(name string) []Record) (out []byte, ok bool) {
	t := pdu.NewText(in)
	for t.Next() {
		name, v := string(t.Key), string(t.Value)
		k, known := byName[name]
		n, err := uint32(0), error(nil)
		if k == keyMaxRecvDataSegmentLength {
			n, err = parseNumber(v, shortest, longest)
		}
		switch {
		case !known && !isExtension(name), k == keySendTargets && !p.mayList(v):
			return nil, false
		case !known:
			out = pdu.AppendText(out, name, answerNotUnderstood)
		case k == keySendTargets:
			out = AppendRecords(out, find(p.listed(v)))
		case k == keyMaxRecvDataSegmentLength && err == nil:
			p.MaxSendLength = int(n)
		default:
			out = pdu.AppendText(out, name, answerReject)
		}
	}
	return out, t.Err() == nil
}

// isExtension reports whether a name is that of a private or public extension key (RFC 7143
// §6.1).
func isExtension(name string) bool {
	return strings.HasPrefix(name, "X-") || strings.HasPrefix(name, "X#")
}

// mayList reports whether the session permits a value of SendTargets: every name in a
// discovery session, else only the session's own target (RFC 7143, appendix C). Appendix C
// has no "All" in an operational session. It gets the session's own target there, because
// libiscsi and its conformance suite expect an answer.
func (p *Params) mayList(v string) bool {
	switch {
	case v == allTargets:
		return true
	case p.Discovery:
		return v != ""
	}
	return v == "" || strings.EqualFold(v, p.TargetName)
}

// listed returns the name for find of a value of SendTargets.
func (p *Params) listed(v string) string {
	switch {
	case !p.Discovery:
		v = p.TargetName
	case v == allTargets:
		v = ""
	}
	return strings.ToLower(v)
}
