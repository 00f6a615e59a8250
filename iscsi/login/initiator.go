package login

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/stag-rdma/stag/iscsi/pdu"
	"github.com/stag-rdma/stag/offload/seq"
)

// InitiatorConfig is what an initiator needs for a login.
type InitiatorConfig struct {
	Name   string // InitiatorName, at most 223 octets
	Alias  string // InitiatorAlias; empty is not sent
	Target string // TargetName; empty means a discovery session

	ISID  pdu.ISID
	TSIH  uint16  // 0 asks for a new session
	CID   uint16  // connection within the session
	Tag   pdu.Tag // Initiator Task Tag of the login
	CmdSN seq.Num // number of the first command

	Wishes Wishes
	CHAP   *Credentials // nil: the initiator has no secret and offers no authentication
}

func (c *InitiatorConfig) check() error {
	var err error
	if c.Name == "" || len(c.Name) > maxName || len(c.Target) > maxName {
		err = fmt.Errorf("iscsi login: an initiator needs a name; names have at most %d octets", maxName)
	}
	if c.CHAP != nil {
		err = errors.Join(err, c.CHAP.check())
	}
	return err
}

// Initiator is the machine of an initiator's login. The machine belongs to one goroutine.
type Initiator struct {
	config InitiatorConfig
	talk   negotiation
	in     inflow
	rest   outflow

	stage     pdu.Stage
	next      pdu.Stage // asked for in the last request
	asked     bool      // the last request had Transit set
	exchanges int
	expStatSN seq.Num
	step      authStep
	proof     chap
	peerUser  string
	only      keySet // a test's choice of the keys to offer; 0 means all
	params    Params
}

// authStep is what the initiator waits for in the security stage.
type authStep uint8

const (
	authUnneeded authStep = iota // the initiator has no secret
	authMethod                   // AuthMethod
	authQuestion                 // CHAP_A, CHAP_I, CHAP_C
	authProof                    // the end of the stage, with CHAP_N and CHAP_R if mutual
	authDone
)

// NewInitiator checks the configuration and makes a machine.
func NewInitiator(c InitiatorConfig) (*Initiator, error) {
	w, err := c.Wishes.fill()
	if err = errors.Join(err, c.check()); err != nil {
		return nil, err
	}
	i := &Initiator{config: c, stage: pdu.OperationalNegotiation}
	w.lists[keyAuthMethod] = []uint8{authNone}
	if c.CHAP != nil {
		i.stage, i.step = pdu.SecurityNegotiation, authMethod
		w.lists[keyAuthMethod] = []uint8{authCHAP, authNone}
		if c.CHAP.PeerSecret != nil {
			w.lists[keyAuthMethod] = []uint8{authCHAP}
		}
	}
	i.talk = newNegotiation(initiator, w)
	i.talk.discovery, i.talk.joining = c.Target == "", c.TSIH != 0
	return i, nil
}

// Params is the result. It is valid when Step has returned done.
func (i *Initiator) Params() Params { return i.params }

// Start appends the first request to out.
func (i *Initiator) Start(out []byte) []byte {
	i.talk.answer(keyInitiatorName, i.config.Name)
	if i.config.Alias != "" {
		i.talk.answer(keyInitiatorAlias, i.config.Alias)
	}
	kind := "Discovery"
	if !i.talk.discovery {
		i.talk.answer(keyTargetName, i.config.Target)
		kind = "Normal"
	}
	i.talk.answer(keySessionType, kind)
	if i.stage == pdu.SecurityNegotiation {
		i.talk.offer(keyAuthMethod)
		return i.request(out, false)
	}
	i.talk.offerAll(i.only)
	return i.request(out, true)
}

// request appends a request with the next part of the text. ready asks for the next
// stage.
func (i *Initiator) request(out []byte, ready bool) []byte {
	if len(i.rest.rest) == 0 {
		i.rest.rest, i.talk.out = i.talk.out, nil
	}
	segment, more := i.rest.next()
	var h pdu.Header
	h.Reset(pdu.OpLogin)
	h.SetImmediate(true)
	i.asked = ready && !more
	i.next = i.stage
	if i.asked {
		i.next = pdu.FullFeaturePhase
		if i.stage == pdu.SecurityNegotiation {
			i.next = pdu.OperationalNegotiation
		}
		h.SetFlags(pdu.Transit)
		h.SetStages(i.stage, i.next)
	} else {
		h.SetStages(i.stage, 0)
	}
	if more {
		h.SetFlags(h.Flags() | pdu.Continue)
	}
	h.SetISID(i.config.ISID)
	h.SetTSIH(i.config.TSIH)
	h.SetInitiatorTaskTag(i.config.Tag)
	h.SetCID(i.config.CID)
	h.SetCmdSN(i.config.CmdSN)
	h.SetExpStatSN(i.expStatSN)
	return appendPDU(out, &h, segment, noDigests)
}

// Step takes a whole PDU of the target and appends the next request to out. done means
// that the full feature phase has begun; nothing is appended then. After an error the
// connection must be closed.
func (i *Initiator) Step(h *pdu.Header, data, out []byte) (_ []byte, done bool, err error) {
	out, done, err = i.serve(h, data, out)
	if fault := (*Refused)(nil); errors.As(err, &fault) && !fault.ByPeer {
		fault.found = initiator
	}
	return out, done, err
}

// serve is Step without the last touch to its errors.
func (i *Initiator) serve(h *pdu.Header, data, out []byte) ([]byte, bool, error) {
	if i.exchanges++; i.exchanges > maxExchanges {
		return out, false, illegal("no end of the login after %d requests", maxExchanges)
	}
	if err := i.accept(h, data); err != nil {
		return out, false, err
	}
	i.expStatSN = h.StatSN().Add(1)
	switch {
	case len(i.rest.rest) > 0: // the target waits for the rest of a text
		if len(data) != 0 || h.Has(pdu.Transit) {
			return out, false, illegal("the target answers before it has the whole text")
		}
		return i.request(out, i.ready()), false, nil
	case !i.in.add(h, data):
		return out, false, illegal("a text of the target is longer than %d octets", maxSequence)
	case i.in.going:
		return i.request(out, false), false, nil
	}
	if fault := i.talk.take(i.in.text, i.stage); fault != nil {
		return out, false, fault
	}
	i.in.text = i.in.text[:0]
	return i.proceed(h, out)
}

// accept checks the header of a response.
func (i *Initiator) accept(h *pdu.Header, data []byte) error {
	switch h.Opcode() {
	case pdu.OpLoginResponse:
	case pdu.OpReject:
		return fmt.Errorf("iscsi login: the target rejects the request, reason %#02x", uint8(h.RejectReason()))
	default:
		return refuse(pdu.InvalidDuringLogin, "the target sends %v", h.Opcode())
	}
	if s := h.LoginStatus(); s != pdu.LoginSuccess {
		return i.refused(s, data)
	}
	switch {
	case h.AHSLength() != 0 || h.DataLength() > MaxText:
		return illegal("the target sends additional header segments or more than %d octets", MaxText)
	case h.InitiatorTaskTag() != i.config.Tag || h.ISID() != i.config.ISID:
		return illegal("the response belongs to another login")
	case i.config.TSIH != 0 && h.TSIH() != i.config.TSIH:
		return illegal("the response belongs to another session")
	case h.VersionActive() != 0:
		return refuse(pdu.UnsupportedVersion, "the target speaks version %d", h.VersionActive())
	case h.CurrentStage() != i.stage:
		return illegal("the target is in stage %d, and this end in stage %d", h.CurrentStage(), i.stage)
	case h.Has(pdu.Continue | pdu.Transit):
		return illegal("Transit and Continue are both set")
	case h.Has(pdu.Transit) && (!i.asked || !follows(i.stage, h.NextStage()) || h.NextStage() > i.next):
		return illegal("the target goes to a stage that this end did not ask for")
	}
	return nil
}

// refused makes the error for a status of the target.
func (i *Initiator) refused(s pdu.LoginStatus, data []byte) error {
	r := &Refused{Status: s, ByPeer: true}
	if s.Class() != classRedirection {
		return r
	}
	for t := pdu.NewText(data); t.Next(); {
		if string(t.Key) == table[keyTargetAddress].name {
			r.Address = string(t.Value)
			return r
		}
	}
	return illegal("the target has moved, and does not say where")
}

// classRedirection is the status class of a target that has moved.
const classRedirection = 1

// follows reports whether a stage may come after another (RFC 7143 §6.3).
func follows(from, to pdu.Stage) bool {
	return to > from && (to == pdu.OperationalNegotiation || to == pdu.FullFeaturePhase)
}

// proceed goes on after a whole text.
func (i *Initiator) proceed(h *pdu.Header, out []byte) ([]byte, bool, error) {
	if i.stage == pdu.SecurityNegotiation {
		if fault := i.authenticate(); fault != nil {
			return out, false, fault
		}
	} else if len(i.talk.chap) != 0 {
		return out, false, illegal("CHAP keys outside of the security stage")
	}
	if !h.Has(pdu.Transit) {
		return i.request(out, i.ready()), false, nil
	}
	if i.step != authDone && i.step != authUnneeded {
		return out, false, refuse(pdu.AuthenticationFailure, "the target ends the security stage without a proof of who it is")
	}
	if i.talk.owes {
		return out, false, illegal("the target ends a stage and wants an answer")
	}
	i.talk.out = nil
	if fault := i.talk.finish(); fault != nil {
		return out, false, fault
	}
	i.stage = h.NextStage()
	if i.stage == pdu.OperationalNegotiation {
		i.talk.offerAll(i.only)
		return i.request(out, true), false, nil
	}
	err := i.complete(h)
	return out, err == nil, err
}

// ready reports whether this end has nothing more to say in the stage.
func (i *Initiator) ready() bool {
	return i.stage != pdu.SecurityNegotiation || i.step >= authProof
}

// authenticate goes on with the authentication after a text of the target.
func (i *Initiator) authenticate() *Refused {
	c := i.config.CHAP
	switch {
	case i.step == authMethod && i.talk.open.has(keyAuthMethod):
		return nil // the target has not chosen yet
	case i.step == authMethod && i.talk.value[keyAuthMethod] == authNone:
		if !i.talk.wants(keyAuthMethod, authNone) {
			return refuse(pdu.AuthenticationFailure, "the target does not authenticate itself")
		}
		i.step = authDone
	case i.step == authMethod:
		i.step = authQuestion
		i.talk.answer(keyCHAPAlgorithm, algorithmList(orAll(c.Algorithms)))
	case i.step == authQuestion && len(i.talk.chap) == 0:
		return nil // the target has not asked yet
	case i.step == authQuestion:
		i.step = authProof
		return i.respond(c)
	case i.step == authProof:
		return i.checkProof(c)
	}
	return nil
}

// respond answers the target's challenge, and sends this end's own if the target must
// prove who it is.
func (i *Initiator) respond(c *Credentials) *Refused {
	a, ok := firstAlgorithm(i.talk.chap[keyCHAPAlgorithm], orAll(c.Algorithms))
	if !ok {
		return refuse(pdu.AuthenticationFailure, "the target chose a CHAP algorithm that this end did not offer")
	}
	i.proof.algorithm = a
	q, fault := questionOf(i.talk.chap)
	if fault != nil {
		return fault
	}
	if q == nil {
		return refuse(pdu.MissingParameter, "the target sends no CHAP challenge")
	}
	if c.PeerSecret != nil {
		i.proof.dare(&c.Nonce)
	}
	r, fault := i.proof.reply(q, c.Secret)
	if fault != nil {
		return fault
	}
	i.talk.answer(keyCHAPName, c.User)
	i.talk.answer(keyCHAPResponse, formatBinary(r))
	if c.PeerSecret != nil {
		i.talk.answer(keyCHAPIdentifier, strconv.Itoa(int(i.proof.id)))
		i.talk.answer(keyCHAPChallenge, formatBinary(i.proof.challenge))
	}
	return nil
}

// checkProof checks the target's response.
func (i *Initiator) checkProof(c *Credentials) *Refused {
	name, hasName := i.talk.chap[keyCHAPName]
	response, hasResponse := i.talk.chap[keyCHAPResponse]
	switch {
	case c.PeerSecret == nil && len(i.talk.chap) != 0:
		return illegal("the target sends CHAP keys that nobody asked for")
	case c.PeerSecret == nil:
		i.step = authDone
		return nil
	case !hasName && !hasResponse:
		return nil // proceed fails if the target ends the stage now
	case !hasName || !hasResponse:
		return refuse(pdu.MissingParameter, "CHAP_N and CHAP_R come together")
	case c.PeerUser != "" && name != c.PeerUser:
		return refuse(pdu.AuthenticationFailure, "the target uses another CHAP name than the expected one")
	}
	if fault := i.proof.verify(response, c.PeerSecret, c.Secret); fault != nil {
		return fault
	}
	i.step, i.peerUser = authDone, name
	return nil
}

// complete fills the result from the last response.
func (i *Initiator) complete(h *pdu.Header) error {
	if h.TSIH() == 0 && !i.talk.discovery {
		return illegal("the target gives the session no handle")
	}
	p := &i.params
	i.talk.params(p)
	if i.talk.wish.rdma && !p.RDMA && !i.talk.discovery {
		return illegal("the target refuses RDMAExtensions")
	}
	// A target may answer with a FirstBurstLength above MaxBurstLength. The lesser is in
	// the bounds of both.
	p.FirstBurstLength = min(p.FirstBurstLength, p.MaxBurstLength)
	p.Discovery = i.talk.discovery
	p.InitiatorName, p.InitiatorAlias = i.config.Name, i.config.Alias
	p.TargetName, p.TargetAlias = i.config.Target, i.talk.texts[keyTargetAlias]
	p.PortalGroupTag = uint16(i.talk.value[keyPortalGroupTag])
	p.ISID, p.TSIH, p.CID = i.config.ISID, h.TSIH(), i.config.CID
	if i.talk.value[keyAuthMethod] == authCHAP {
		p.User, p.PeerUser = i.config.CHAP.User, i.peerUser
	}
	p.CmdSN, p.MaxCmdSN, p.StatSN = i.config.CmdSN, h.MaxCmdSN(), i.expStatSN
	return nil
}
