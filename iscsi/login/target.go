package login

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/seq"
)

// TargetConfig is what a target needs for a login.
type TargetConfig struct {
	Registry Registry
	Wishes   Wishes
	StatSN   seq.Num // number of the first response
	Window   uint32  // how many commands the target takes at once; 0 means 1
}

// Target is the machine of a target's login. The machine belongs to one goroutine.
//
// Departs from RFC 7143 §11.12: a request without the I bit is taken, because initiators
// exist that never set it.
type Target struct {
	config  TargetConfig
	talk    negotiation
	in      inflow
	rest    outflow
	first   pdu.Header // the first request
	request Request
	policy  Policy

	stage     pdu.Stage
	exchanges int
	statSN    seq.Num
	named     bool // the registry has decided about the names
	asked     bool // the text at hand has offers of the target
	step      verifyStep
	proof     chap
	params    Params
}

// verifyStep is what the target waits for in the security stage.
type verifyStep uint8

const (
	verifyMethod verifyStep = iota // AuthMethod
	verifyList                     // CHAP_A
	verifyProof                    // CHAP_N and CHAP_R
	verified                       // nothing: the initiator may leave the stage
)

// NewTarget checks the configuration and makes a machine.
func NewTarget(c TargetConfig) (*Target, error) {
	w, err := c.Wishes.fill()
	if c.Registry == nil {
		err = errors.Join(err, errors.New("iscsi login: a target needs a registry"))
	}
	if err != nil {
		return nil, err
	}
	c.Window = max(c.Window, 1)
	return &Target{config: c, talk: newNegotiation(target, w), statSN: c.StatSN}, nil
}

// Params is the result. It is valid when Step has returned done.
func (t *Target) Params() Params { return t.params }

// Request is what the initiator has said so far.
func (t *Target) Request() Request { return t.request }

// errNoLogin is the error for a connection that begins with something else (RFC 7143
// §6.3.1).
var errNoLogin = errors.New("iscsi login: the connection does not begin with a Login Request")

// Step takes a whole PDU of the initiator and appends the response to out. done means
// that the full feature phase begins behind the response. After an error the caller sends
// what Step appended, if anything, and closes the connection.
func (t *Target) Step(h *pdu.Header, data, out []byte) (_ []byte, done bool, err error) {
	t.exchanges++
	if t.exchanges == 1 && h.Opcode() != pdu.OpLogin {
		return out, false, errNoLogin
	}
	out, done, fault := t.serve(h, data, out)
	if fault == nil {
		return out, done, nil
	}
	return t.refusal(h, fault, out), false, fault
}

// serve is Step for a connection that began with a Login Request.
func (t *Target) serve(h *pdu.Header, data, out []byte) ([]byte, bool, *Refused) {
	if fault := t.accept(h); fault != nil {
		return out, false, fault
	}
	if len(t.rest.rest) > 0 {
		if len(data) != 0 {
			return out, false, illegal("a request has text although the target has not finished its own")
		}
		return t.respond(h, out)
	}
	if !t.in.add(h, data) {
		return out, false, refuse(pdu.OutOfResources, "a text is longer than %d octets", maxSequence)
	}
	if t.in.going {
		return t.respond(h, out)
	}
	if fault := t.talk.take(t.in.text, t.stage); fault != nil {
		return out, false, fault
	}
	t.in.text = t.in.text[:0]
	if fault := t.hear(h); fault != nil {
		return out, false, fault
	}
	return t.respond(h, out)
}

// accept checks the header of a request.
func (t *Target) accept(h *pdu.Header) *Refused {
	if h.Opcode() != pdu.OpLogin {
		return refuse(pdu.InvalidDuringLogin, "the initiator sends %v", h.Opcode())
	}
	if t.exchanges == 1 {
		if fault := t.begin(h); fault != nil {
			return fault
		}
	}
	f := &t.first
	switch {
	case t.exchanges > maxExchanges:
		return illegal("no end of the login after %d requests", maxExchanges)
	case h.AHSLength() != 0 || h.DataLength() > MaxText:
		return illegal("a Login Request has additional header segments or more than %d octets", MaxText)
	case h.InitiatorTaskTag() != f.InitiatorTaskTag() || h.ISID() != f.ISID() || h.TSIH() != f.TSIH() || h.CID() != f.CID():
		return illegal("a request has another tag, ISID, TSIH or CID than the first one")
	case h.VersionMax() != f.VersionMax() || h.VersionMin() != f.VersionMin():
		return illegal("a request has other versions than the first one")
	case h.TSIH() == 0 && h.CmdSN() != f.CmdSN():
		return illegal("CmdSN changes during the login of a session's first connection")
	case h.CurrentStage() != t.stage:
		return illegal("the request is in stage %d, and the login in stage %d", h.CurrentStage(), t.stage)
	case h.Has(pdu.Transit | pdu.Continue):
		return illegal("Transit and Continue are both set")
	case h.Has(pdu.Transit) && !follows(t.stage, h.NextStage()):
		return illegal("stage %d does not follow stage %d", h.NextStage(), t.stage)
	}
	return nil
}

// begin takes what all requests of the login have in common.
func (t *Target) begin(h *pdu.Header) *Refused {
	t.first = *h
	t.request.ISID, t.request.TSIH, t.request.CID = h.ISID(), h.TSIH(), h.CID()
	t.talk.joining = h.TSIH() != 0
	t.stage = h.CurrentStage()
	switch {
	case h.VersionMin() > 0:
		return refuse(pdu.UnsupportedVersion, "the initiator speaks version %d or later", h.VersionMin())
	case t.stage != pdu.SecurityNegotiation && t.stage != pdu.OperationalNegotiation:
		return illegal("a login cannot begin in stage %d", t.stage)
	case h.ISID()[0]&isidType == isidType:
		return illegal("the type of the ISID is reserved")
	}
	return nil
}

// isidType are the bits of the first octet that hold the type. Type 3 is reserved (RFC
// 7143 §11.12.5).
const isidType = 0xc0

// hear goes on after a whole text.
func (t *Target) hear(h *pdu.Header) *Refused {
	if !t.named {
		if fault := t.names(); fault != nil {
			return fault
		}
	}
	if t.stage == pdu.SecurityNegotiation {
		return t.authenticate(h)
	}
	t.talk.declareLimits()
	if h.Has(pdu.Transit) && t.talk.open == 0 {
		t.talk.offerRest()
		t.asked = t.talk.open != 0
	}
	return nil
}

// names reads the names of the first text and asks the registry about them.
func (t *Target) names() *Refused {
	r, texts := &t.request, &t.talk.texts
	r.InitiatorName, r.InitiatorAlias = strings.ToLower(texts[keyInitiatorName]), texts[keyInitiatorAlias]
	r.TargetName = strings.ToLower(texts[keyTargetName])
	switch kind := texts[keySessionType]; {
	case kind == "Discovery":
		r.Discovery, t.talk.discovery = true, true
	case kind != "Normal" && t.talk.heard.has(keySessionType):
		return refuse(pdu.SessionTypeNotSupported, "SessionType is neither Normal nor Discovery")
	}
	switch {
	case r.InitiatorName == "":
		return refuse(pdu.MissingParameter, "the first text has no InitiatorName")
	case r.TargetName == "" && !r.Discovery:
		return refuse(pdu.MissingParameter, "the first text of a normal session has no TargetName")
	case len(r.InitiatorName) > maxName || len(r.TargetName) > maxName:
		return illegal("a name has more than %d octets", maxName)
	}
	t.policy = t.config.Registry.Policy(r)
	if t.policy.Status != pdu.LoginSuccess {
		return &Refused{Status: t.policy.Status, Address: t.policy.Address}
	}
	t.named = true
	return t.introduce()
}

// introduce declares what belongs to the first response, and prepares the authentication.
func (t *Target) introduce() *Refused {
	if !t.request.Discovery {
		t.talk.answer(keyPortalGroupTag, strconv.Itoa(int(t.policy.PortalGroupTag)))
		if t.policy.Alias != "" {
			t.talk.answer(keyTargetAlias, t.policy.Alias)
		}
	}
	v := t.policy.CHAP
	if v == nil {
		t.step = verified
		t.talk.wish.lists[keyAuthMethod] = []uint8{authNone}
		return nil
	}
	if err := v.check(); err != nil {
		return refuse(pdu.TargetError, "%v", err)
	}
	t.talk.wish.lists[keyAuthMethod] = []uint8{authCHAP}
	if t.stage != pdu.SecurityNegotiation {
		return refuse(pdu.AuthenticationFailure, "the initiator skips the security stage")
	}
	return nil
}

// respond appends the response to a request.
func (t *Target) respond(h *pdu.Header, out []byte) ([]byte, bool, *Refused) {
	if len(t.rest.rest) == 0 && !t.in.going {
		t.rest.rest, t.talk.out = t.talk.out, nil
	}
	segment, more := t.rest.next()
	var r pdu.Header
	t.fill(&r, h)
	r.SetStages(t.stage, 0)
	agree, fault := false, (*Refused)(nil)
	if h.Has(pdu.Transit) && !more {
		agree, fault = t.agree()
	}
	if fault != nil {
		return out, false, fault
	}
	done := false
	if agree {
		next := t.transit(h.NextStage())
		if next == pdu.FullFeaturePhase {
			if fault := t.enter(&r); fault != nil {
				return out, false, fault
			}
			done = true
		}
		r.SetFlags(pdu.Transit)
		r.SetStages(t.stage, next)
		t.stage = next
	}
	if more {
		r.SetFlags(r.Flags() | pdu.Continue)
	}
	t.statSN = t.statSN.Add(1)
	return appendPDU(out, &r, segment, noDigests), done, nil
}

// fill sets the fields that all responses have.
func (t *Target) fill(r, h *pdu.Header) {
	r.Reset(pdu.OpLoginResponse)
	r.SetISID(h.ISID())
	r.SetTSIH(h.TSIH())
	r.SetInitiatorTaskTag(h.InitiatorTaskTag())
	r.SetStatSN(t.statSN)
	r.SetExpCmdSN(h.CmdSN())
	r.SetMaxCmdSN(h.CmdSN().Add(seq.Len(t.config.Window - 1)))
}

// agree reports whether the target can leave its stage now.
func (t *Target) agree() (bool, *Refused) {
	if t.stage == pdu.SecurityNegotiation {
		return t.step == verified, nil
	}
	if t.asked { // the offers of this response want an answer
		t.asked = false
		return false, nil
	}
	if fault := t.talk.finish(); fault != nil {
		return false, fault
	}
	return true, t.talk.checkBursts()
}

// transit returns the stage that the target goes to if the initiator asks for next. The
// target passes through the operational stage if it has something to ask for.
func (t *Target) transit(next pdu.Stage) pdu.Stage {
	if t.stage == pdu.SecurityNegotiation && next == pdu.FullFeaturePhase {
		trial := t.talk
		trial.out = nil
		if trial.offerRest(); trial.open != 0 {
			return pdu.OperationalNegotiation
		}
	}
	return next
}

// enter asks the registry for the session, and fills the result.
func (t *Target) enter(r *pdu.Header) *Refused {
	q, p := &t.request, &t.params
	existing := t.config.Registry.Existing(q)
	action, status := existing.Decide(q.TSIH)
	if status != pdu.LoginSuccess {
		return refuse(status, "")
	}
	t.talk.params(p)
	if t.talk.wish.rdma && !p.RDMA && !q.Discovery {
		return illegal("the initiator does not offer RDMAExtensions")
	}
	p.Discovery = q.Discovery
	p.InitiatorName, p.InitiatorAlias, p.TargetName = q.InitiatorName, q.InitiatorAlias, q.TargetName
	p.TargetAlias, p.PortalGroupTag = t.policy.Alias, t.policy.PortalGroupTag
	p.ISID, p.CID, p.User = q.ISID, q.CID, q.User
	if t.proof.replied {
		p.PeerUser = t.policy.CHAP.User
	}
	p.CmdSN, p.MaxCmdSN, p.StatSN = r.ExpCmdSN(), r.MaxCmdSN(), t.statSN.Add(1)
	p.TSIH, status = t.config.Registry.Enter(q, action, p)
	if status != pdu.LoginSuccess {
		return refuse(status, "")
	}
	r.SetTSIH(p.TSIH)
	r.SetExpCmdSN(p.CmdSN)
	r.SetMaxCmdSN(p.MaxCmdSN)
	return nil
}

// refusal appends the response that ends the login with a status. Its numbers have no
// meaning (RFC 7143 §11.13.5).
func (t *Target) refusal(h *pdu.Header, fault *Refused, out []byte) []byte {
	var r pdu.Header
	r.Reset(pdu.OpLoginResponse)
	f := &t.first
	if t.exchanges == 1 {
		f = h
	}
	r.SetISID(f.ISID())
	r.SetTSIH(f.TSIH())
	r.SetInitiatorTaskTag(f.InitiatorTaskTag())
	r.SetStages(t.stage, 0)
	r.SetStatSN(t.statSN)
	r.SetExpCmdSN(f.CmdSN())
	r.SetMaxCmdSN(f.CmdSN())
	r.SetLoginStatus(fault.Status)
	var data []byte
	if fault.Status.Class() == classRedirection {
		data = pdu.AppendText(nil, table[keyTargetAddress].name, fault.Address)
	}
	return appendPDU(out, &r, data, noDigests)
}

// String names the initiator for a log.
func (r *Request) String() string {
	return fmt.Sprintf("%s (ISID %x, TSIH %d, CID %d)", r.InitiatorName, r.ISID[:], r.TSIH, r.CID)
}
