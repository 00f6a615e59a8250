package login

import (
	"strconv"
	"strings"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// negotiation is the state of all keys at one end of a login (RFC 7143 §6.2).
type negotiation struct {
	role      role
	wish      wishes
	discovery bool // session keys have no meaning
	joining   bool // the login of a further connection: leading keys are not permitted

	value [keys]uint32 // in force; of a declared number the peer's
	texts [keys]string // declared by the peer
	said  keySet       // offered, declared or answered by this end
	heard keySet       // offered, declared or answered by the peer
	open  keySet       // offered by this end and not yet answered

	chap map[key]string // the CHAP keys of the text at hand
	out  []byte         // text for the peer
	owes bool           // the text at hand has an offer that wants an answer
}

func newNegotiation(r role, w wishes) negotiation {
	n := negotiation{role: r, wish: w}
	for k := range keys {
		n.value[k] = table[k].initial
	}
	return n
}

// peer returns the role of the other end.
func (n *negotiation) peer() role { return either &^ n.role }

// take processes every pair of a text that came in a stage.
func (n *negotiation) take(in []byte, stage pdu.Stage) *Refused {
	n.chap, n.owes = nil, false
	t := pdu.NewText(in)
	for t.Next() {
		if err := n.pair(string(t.Key), string(t.Value), stage); err != nil {
			return err
		}
	}
	if t.Err() != nil {
		return illegal("a text is no list of key=value pairs that end with a NUL octet")
	}
	return nil
}

// pair processes one pair.
func (n *negotiation) pair(name, v string, stage pdu.Stage) *Refused {
	k, known := byName[name]
	if !known {
		return n.unknown(name, v)
	}
	r := &table[k]
	if n.open.has(k) && r.kind != exchange {
		return n.settle(k, v)
	}
	if r.kind == text && n.said.has(k) && reserved(v) {
		return nil // an answer to a declaration, which needs none
	}
	if err := n.admit(k, v, stage); err != nil {
		return err
	}
	n.heard.add(k)
	if r.rdma && !n.wish.rdma {
		n.answer(k, answerIrrelevant)
		return nil
	}
	return n.hear(k, v)
}

// unknown answers a key without a row. Only an offer wants an answer.
func (n *negotiation) unknown(name, v string) *Refused {
	if reserved(v) {
		return illegal("%s=%s answers no offer", name, v)
	}
	n.out, n.owes = pdu.AppendText(n.out, name, answerNotUnderstood), true
	return nil
}

// reserved reports whether a value is one that only answers have.
func reserved(v string) bool {
	return v == answerNotUnderstood || v == answerReject || v == answerIrrelevant
}

// admit checks whether the peer may send the key now.
func (n *negotiation) admit(k key, v string, stage pdu.Stage) *Refused {
	r := &table[k]
	limit := maxValue
	if r.kind == exchange {
		limit = 2 + 2*maxBinary
	}
	switch {
	case r.from&n.peer() == 0:
		return illegal("%s is no key of this end", r.name)
	case r.stages&(1<<stage) == 0:
		return illegal("%s does not belong to stage %d", r.name, stage)
	case n.heard.has(k) && !r.repeats:
		return illegal("%s comes twice", r.name)
	case r.leading && n.joining:
		return illegal("%s belongs to the login of a session's first connection", r.name)
	case len(v) > limit:
		return illegal("the value of %s is longer than %d octets", r.name, limit)
	}
	return nil
}

// hear takes an offer or a declaration.
func (n *negotiation) hear(k key, v string) *Refused {
	r := &table[k]
	switch r.kind {
	case text:
		n.texts[k] = v
	case declared:
		x, err := parseNumber(v, r.min, r.max)
		if err != nil {
			return illegal("%s: %v", r.name, err)
		}
		n.value[k] = x
	case number, boolean:
		return n.offered(k, v)
	case list:
		if k == keyAuthMethod {
			n.texts[k] = v // the target chooses when it knows the names
			return nil
		}
		return n.choose(k, v)
	case exchange:
		if n.chap == nil {
			n.chap = map[key]string{}
		}
		n.chap[k] = v
	case markerInt:
		n.answer(k, answerReject)
	case unsupported:
		return illegal("%s belongs to an authentication method that was not agreed on", r.name)
	}
	return nil
}

// parse reads a number or a boolean.
func (r *row) parse(v string) (uint32, error) {
	if r.kind == boolean {
		return parseBoolean(v)
	}
	return parseNumber(v, r.min, r.max)
}

func (r *row) format(x uint32) string {
	if r.kind == boolean {
		return formatBoolean(x)
	}
	return strconv.FormatUint(uint64(x), 10)
}

// offered answers the offer of a number or of a boolean by the row's function.
func (n *negotiation) offered(k key, v string) *Refused {
	r := &table[k]
	x, err := r.parse(v)
	if err != nil {
		return illegal("%s: %v", r.name, err)
	}
	n.value[k] = r.result(x, n.wish.value[k])
	n.owes = n.owes || !r.fixed(x)
	n.answer(k, r.format(n.value[k]))
	return nil
}

// choose answers an offered list with its first option that this end wants (RFC 7143
// §6.2.1).
func (n *negotiation) choose(k key, v string) *Refused {
	r := &table[k]
	for option := range strings.SplitSeq(v, ",") {
		if p := r.place(option); p >= 0 && n.wants(k, uint32(p)) {
			n.value[k], n.owes = uint32(p), true
			n.answer(k, option)
			return nil
		}
	}
	if k == keyAuthMethod {
		return refuse(pdu.AuthenticationFailure, "the initiator offers no authentication method that the target accepts")
	}
	return illegal("%s: no offered value is acceptable", r.name)
}

// wants reports whether an option is in this end's list.
func (n *negotiation) wants(k key, place uint32) bool {
	for _, p := range n.wish.lists[k] {
		if uint32(p) == place {
			return true
		}
	}
	return false
}

func (n *negotiation) answer(k key, v string) {
	n.said.add(k)
	n.out = pdu.AppendText(n.out, table[k].name, v)
}

// settle takes the answer to an offer. An answer that the row's function does not permit
// is an error of the protocol (RFC 7143 §6.2.1, §6.2.2).
func (n *negotiation) settle(k key, v string) *Refused {
	r := &table[k]
	n.open.remove(k)
	n.heard.add(k)
	switch v {
	case answerIrrelevant:
		return nil
	case answerReject, answerNotUnderstood:
		if !n.acceptable(k, n.value[k]) {
			return illegal("the peer answers %s=%s, and the default is not acceptable here", r.name, v)
		}
		return nil
	}
	var x uint32
	if r.kind == list {
		p := r.place(v)
		if p < 0 {
			return illegal("the peer chose an unknown option for %s", r.name)
		}
		x = uint32(p)
	} else {
		var err error
		if x, err = r.parse(v); err != nil {
			return illegal("%s: %v", r.name, err)
		}
	}
	if !n.acceptable(k, x) {
		return illegal("the peer answers %s with a value that the offer does not permit", r.name)
	}
	n.value[k] = x
	return nil
}

// acceptable reports whether this end can work with a value.
func (n *negotiation) acceptable(k key, x uint32) bool {
	if table[k].kind == list {
		return n.wants(k, x)
	}
	return table[k].result(x, n.wish.value[k]) == x
}

// offer sends this end's wish for a key, or declares it.
func (n *negotiation) offer(k key) {
	r := &table[k]
	v := r.format(n.wish.value[k])
	if r.kind == list {
		names := make([]string, len(n.wish.lists[k]))
		for i, p := range n.wish.lists[k] {
			names[i] = r.options[p]
		}
		v = strings.Join(names, ",")
	}
	n.answer(k, v)
	if r.kind != declared {
		n.open.add(k)
	}
}

// relevant reports whether this end may speak of an operational key.
func (n *negotiation) relevant(k key) bool {
	r := &table[k]
	return r.stages == inOperational && r.from == either && r.kind != text && r.kind != markerInt &&
		!(r.session && n.discovery) && !(r.leading && n.joining) && !(r.rdma && !n.wish.rdma) &&
		!n.said.has(k) && !n.heard.has(k)
}

// plain reports whether the wish for a key is the default.
func (n *negotiation) plain(k key) bool {
	if table[k].kind == list {
		l := n.wish.lists[k]
		return len(l) == 1 && uint32(l[0]) == table[k].initial
	}
	return n.wish.value[k] == table[k].initial
}

// offerAll makes an initiator's first operational text: every key, so that a target need
// not ask for those that are missing. If only is not 0, the text has its keys instead.
func (n *negotiation) offerAll(only keySet) {
	for k := range keys {
		chosen := !(table[k].quiet && n.plain(k))
		if only != 0 {
			chosen = only.has(k)
		}
		if chosen && n.relevant(k) {
			n.offer(k)
		}
	}
}

// offerRest makes a target's offers: keys that the initiator did not speak of and whose
// default the target does not want. At ErrorRecoveryLevel 0 no task outlives its
// connection, so DefaultTime2Retain is not worth an exchange.
func (n *negotiation) offerRest() {
	n.wish.value[keyFirstBurstLength] = min(n.wish.value[keyFirstBurstLength], n.value[keyMaxBurstLength])
	for k := range keys {
		if k == keyDefaultTime2Retain && n.value[keyErrorRecoveryLevel] == 0 {
			continue
		}
		if n.relevant(k) && table[k].kind != declared && !n.acceptable(k, n.value[k]) {
			n.offer(k)
		}
	}
}

// declareLimits makes a target's declarations of what it takes, once. open-iscsi refuses a
// target that declares MaxOutstandingUnexpectedPDUs: only an initiator that has declared its
// own number hears of it.
func (n *negotiation) declareLimits() {
	if !n.said.has(keyMaxRecvDataSegmentLength) {
		n.offer(keyMaxRecvDataSegmentLength)
	}
	const unexpected = keyMaxOutstandingUnexpectedPDUs
	if n.heard.has(unexpected) && !n.plain(unexpected) && !n.said.has(unexpected) {
		n.offer(unexpected)
	}
}

// fixed reports whether the offer of x alone decides the result. Such an offer needs no
// answer, and every other offer does (RFC 7143 §6.2.2).
func (r *row) fixed(x uint32) bool { return r.kind == boolean && r.result(0, x) == r.result(1, x) }

// finish ends a stage.
func (n *negotiation) finish() *Refused {
	for k := range keys {
		if !n.open.has(k) {
			continue
		}
		r, wish := &table[k], n.wish.value[k]
		if !r.fixed(wish) {
			return illegal("the peer did not answer %s", r.name)
		}
		n.value[k] = wish
		n.open.remove(k)
	}
	return nil
}

// checkBursts checks that FirstBurstLength does not exceed MaxBurstLength (RFC 7143
// §13.14). Without unsolicited data, FirstBurstLength has no meaning.
func (n *negotiation) checkBursts() *Refused {
	v := &n.value
	unsolicited := v[keyInitialR2T] == 0 || v[keyImmediateData] != 0
	if unsolicited && v[keyFirstBurstLength] > v[keyMaxBurstLength] {
		return illegal("FirstBurstLength %d exceeds MaxBurstLength %d", v[keyFirstBurstLength], v[keyMaxBurstLength])
	}
	return nil
}
