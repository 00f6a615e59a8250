package login

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// someWishes draws the wishes of an end.
func someWishes(t *rapid.T, who string) (w Wishes) {
	number := func(name string, from, to uint32) uint32 {
		return rapid.OneOf(rapid.Uint32Range(from, to), rapid.Uint32Range(from, min(to, from+4096)), rapid.SampledFrom([]uint32{from, to})).Draw(t, who+name)
	}
	flag := func(name string) bool { return rapid.Bool().Draw(t, who+name) }
	digests := func(name string) []Digest {
		return rapid.SampledFrom([][]Digest{nil, {NoDigest}, {CRC32C}, {CRC32C, NoDigest}, {NoDigest, CRC32C}}).Draw(t, who+name)
	}
	w.HeaderDigest, w.DataDigest = digests("HeaderDigest"), digests("DataDigest")
	w.MaxRecvDataSegmentLength = number("MaxRecvDataSegmentLength", shortest, longest)
	w.MaxConnections = number("MaxConnections", 1, mostShort)
	w.RequireR2T, w.NoImmediateData = flag("RequireR2T"), flag("NoImmediateData")
	w.MaxBurstLength = number("MaxBurstLength", shortest, longest)
	w.FirstBurstLength = number("FirstBurstLength", shortest, w.MaxBurstLength)
	w.MaxOutstandingR2T = number("MaxOutstandingR2T", 1, mostShort)
	w.AnyPDUOrder, w.AnySequenceOrder = flag("AnyPDUOrder"), flag("AnySequenceOrder")
	w.ErrorRecoveryLevel = number("ErrorRecoveryLevel", 0, 2)
	w.Time2Wait, w.Time2Retain = number("Time2Wait", 0, 3600), number("Time2Retain", 0, 3600)
	w.ProtocolLevel = number("ProtocolLevel", 1, 2)
	w.TaskReporting = rapid.SampledFrom([][]TaskReporting{nil, {RFC3720}, {FastAbort, RFC3720}, {ResponseFence, FastAbort, RFC3720}}).Draw(t, who+"TaskReporting")
	return w
}

// TestSameParameters: whatever both ends want, and whichever keys the initiator leaves
// out, both ends have the same parameters, or neither has any. The only reasons to fail
// are digests that exclude each other.
func TestSameParameters(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		config := initiatorConfig()
		config.Wishes = someWishes(r, "initiator ")
		if rapid.Bool().Draw(r, "discovery") {
			config.Target = ""
		}
		theirs := someWishes(r, "target ")
		reg := &registry{}
		if rapid.Bool().Draw(r, "CHAP") {
			config.CHAP = &Credentials{User: "alice", Secret: Secret(alice)}
			if rapid.Bool().Draw(r, "mutual") {
				config.CHAP.PeerSecret, config.CHAP.Nonce = Secret(bob), Nonce{1}
			}
			reg.policy.CHAP = &Verifier{Secret: secrets("alice", alice), User: "bob", OwnSecret: Secret(bob), Nonce: testNonce}
		}
		i, m := newInitiator(t, config), newTarget(t, reg, theirs)
		if rapid.Bool().Draw(r, "leave keys out") {
			i.only = keySet(rapid.Uint64().Draw(r, "keys")) | 1<<keyInitiatorName
			inconsistent(i)
		}
		_, err, targetErr := converse(t, i, m)
		if err == nil && targetErr == nil {
			same(t, i, m)
			if t.Failed() {
				r.Fatalf("initiator %+v, target %+v", config.Wishes, theirs)
			}
			checkWithin(r, &config.Wishes, &theirs, i)
			return
		}
		var refused *Refused
		if !errors.As(err, &refused) || !exclusive(i, config.Wishes.HeaderDigest, theirs.HeaderDigest, keyHeaderDigest) &&
			!exclusive(i, config.Wishes.DataDigest, theirs.DataDigest, keyDataDigest) {
			r.Fatalf("%v, %v", err, targetErr)
		}
	})
}

// inconsistent removes the one thing that an initiator may not leave out: it offers a
// FirstBurstLength above 262144, and does not say that its MaxBurstLength is greater.
func inconsistent(i *Initiator) {
	if !i.only.has(keyMaxBurstLength) {
		i.only.remove(keyFirstBurstLength)
	}
}

// exclusive reports whether no digest is in both lists. An initiator that does not offer
// the key takes what the target offers.
func exclusive(i *Initiator, a, b []Digest, _ key) bool {
	if len(a) == 0 {
		a = []Digest{NoDigest}
	}
	if len(b) == 0 {
		b = []Digest{NoDigest}
	}
	for _, x := range a {
		for _, y := range b {
			if x == y {
				return false
			}
		}
	}
	return true
}

// checkWithin checks that the result respects the target's wishes, which hold whatever
// the initiator says, and the initiator's for the keys that it offered.
func checkWithin(r *rapid.T, mine, theirs *Wishes, i *Initiator) {
	p := i.Params()
	if p.Discovery {
		return
	}
	said := func(k key) bool { return i.talk.said.has(k) }
	for name, good := range map[string]bool{
		"MaxBurstLength":     p.MaxBurstLength <= theirs.MaxBurstLength && (!said(keyMaxBurstLength) || p.MaxBurstLength <= mine.MaxBurstLength),
		"FirstBurstLength":   p.FirstBurstLength <= p.MaxBurstLength,
		"MaxConnections":     p.MaxConnections <= theirs.MaxConnections,
		"ErrorRecoveryLevel": uint32(p.ErrorRecoveryLevel) <= theirs.ErrorRecoveryLevel,
		"ImmediateData":      !p.ImmediateData || !theirs.NoImmediateData,
		"InitialR2T":         p.InitialR2T || !theirs.RequireR2T,
		"Time2Wait":          uint32(p.Time2Wait) >= theirs.Time2Wait,
		"HeaderDigest":       p.Digests.Header || !onlyCRC(theirs.HeaderDigest),
	} {
		if !good {
			r.Fatalf("%s: %+v; initiator %+v, target %+v", name, p, mine, theirs)
		}
	}
}

func onlyCRC(l []Digest) bool { return len(l) == 1 && l[0] == CRC32C }

// TestCutText: a login is the same whether its text comes in one PDU or in many.
func TestCutText(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var text []byte
		for _, kv := range append(names[:3:3], "MaxBurstLength=65536", "X-a=1", "ImmediateData=No", "FirstBurstLength=1024", "HeaderDigest=None") {
			text = append(append(text, kv...), 0)
		}
		s := newScript(t, &registry{}, Wishes{})
		for len(text) > 0 {
			n := rapid.IntRange(1, min(len(text), 60)).Draw(r, "cut")
			q := request{stage: operational, flags: pdu.Continue, raw: text[:n]}
			if n == len(text) {
				q.flags, q.next = pdu.Transit, full
			}
			if h, data := s.ok(q); n != len(text) && (len(data) != 0 || h.Flags()&(pdu.Transit|pdu.Continue) != 0) {
				r.Fatalf("answer to a part: flags %x, %q", h.Flags(), data)
			}
			text = text[n:]
			if s.m.exchanges == maxExchanges-1 && len(text) > 0 {
				return
			}
		}
		if p := s.m.Params(); p.TSIH != 7 || p.MaxBurstLength != 65536 || p.ImmediateData || p.FirstBurstLength != 1024 {
			r.Fatalf("%+v", p)
		}
	})
}
