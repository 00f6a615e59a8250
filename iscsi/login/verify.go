package login

import (
	"errors"
	"strconv"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// check reports every mistake of a target's configuration for CHAP.
func (v *Verifier) check() error {
	err := errors.Join(v.Nonce.check(), checkAlgorithms(v.Algorithms))
	if v.Secret == nil {
		err = errors.Join(err, errors.New("iscsi login: CHAP needs a function for the users' secrets"))
	}
	if v.OwnSecret != nil {
		err = errors.Join(err, checkSecret("target's secret", v.OwnSecret, v.ShortSecrets))
	}
	return err
}

// authenticate goes on with the authentication after a text of the initiator.
func (t *Target) authenticate(h *pdu.Header) *Refused {
	keys, v := t.talk.chap, t.policy.CHAP
	if t.talk.heard.has(keyAuthMethod) && !t.talk.said.has(keyAuthMethod) {
		if fault := t.talk.choose(keyAuthMethod, t.talk.texts[keyAuthMethod]); fault != nil {
			return fault
		}
	}
	switch {
	case t.step == verified || t.step == verifyMethod:
		if len(keys) != 0 {
			return illegal("CHAP keys without AuthMethod=CHAP")
		}
		if t.step == verifyMethod && t.talk.heard.has(keyAuthMethod) {
			t.step = verifyList
		}
		if t.step == verifyMethod && h.Has(pdu.Transit) {
			return refuse(pdu.AuthenticationFailure, "the initiator offers no authentication")
		}
	case len(keys) == 0:
		// The initiator may send requests without text.
	case t.step == verifyList:
		return t.challenge(keys, v)
	case t.step == verifyProof:
		return t.check(keys, v)
	}
	return nil
}

// challenge chooses an algorithm and sends the challenge.
func (t *Target) challenge(keys map[key]string, v *Verifier) *Refused {
	offered, ok := keys[keyCHAPAlgorithm]
	if !ok || len(keys) != 1 {
		return illegal("CHAP begins with CHAP_A and nothing else")
	}
	if t.proof.algorithm, ok = firstAlgorithm(offered, orAll(v.Algorithms)); !ok {
		return refuse(pdu.AuthenticationFailure, "the initiator offers no CHAP algorithm that the target permits")
	}
	t.proof.dare(&v.Nonce)
	t.talk.answer(keyCHAPAlgorithm, strconv.Itoa(int(t.proof.algorithm)))
	t.talk.answer(keyCHAPIdentifier, strconv.Itoa(int(t.proof.id)))
	t.talk.answer(keyCHAPChallenge, formatBinary(t.proof.challenge))
	t.step = verifyProof
	return nil
}

// check checks the initiator's response, and answers its challenge if there is one.
func (t *Target) check(keys map[key]string, v *Verifier) *Refused {
	name, hasName := keys[keyCHAPName]
	response, hasResponse := keys[keyCHAPResponse]
	if !hasName || !hasResponse {
		return refuse(pdu.MissingParameter, "CHAP_N and CHAP_R come together")
	}
	q, fault := questionOf(keys)
	if fault != nil {
		return fault
	}
	secret, known := v.Secret(name)
	if !known {
		secret = make(Secret, MinSecret) // the same work as for a known user
	}
	if fault := t.proof.verify(response, secret, v.OwnSecret); fault != nil {
		return fault
	}
	if !known || len(secret) < MinSecret && !v.ShortSecrets {
		return refuse(pdu.AuthenticationFailure, "the user is unknown, or the secret is too short")
	}
	t.step, t.request.User = verified, name
	if q == nil {
		return nil
	}
	if v.OwnSecret == nil {
		return refuse(pdu.AuthenticationFailure, "the target has no secret to prove who it is")
	}
	r, fault := t.proof.reply(q, v.OwnSecret)
	if fault != nil {
		return fault
	}
	t.talk.answer(keyCHAPName, v.User)
	t.talk.answer(keyCHAPResponse, formatBinary(r))
	return nil
}
