package login

import (
	"bytes"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha3"
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// Algorithm is a hash of CHAP, by its number on the wire. RFC 7143 §12.1.3 names MD5; the
// others are IANA's PPP Authentication Algorithms.
type Algorithm uint8

const (
	MD5     Algorithm = 5
	SHA1    Algorithm = 6
	SHA256  Algorithm = 7
	SHA3256 Algorithm = 8
)

// Algorithms are all of CHAP's algorithms, the strongest first.
var Algorithms = []Algorithm{SHA3256, SHA256, SHA1, MD5}

func (a Algorithm) String() string {
	switch a {
	case MD5:
		return "MD5"
	case SHA1:
		return "SHA1"
	case SHA256:
		return "SHA256"
	case SHA3256:
		return "SHA3-256"
	}
	return "CHAP algorithm " + strconv.Itoa(int(a))
}

// sum is the hash of b, and its length is that of challenges and responses.
func (a Algorithm) sum(b []byte) []byte {
	switch a {
	case MD5:
		h := md5.Sum(b)
		return h[:]
	case SHA1:
		h := sha1.Sum(b)
		return h[:]
	case SHA256:
		h := sha256.Sum256(b)
		return h[:]
	default:
		h := sha3.Sum256(b)
		return h[:]
	}
}

func (a Algorithm) size() int { return len(a.sum(nil)) }

// response is the hash of the identifier, the secret and the challenge (RFC 1994 §4.1).
func (a Algorithm) response(id uint8, s Secret, challenge []byte) []byte {
	b := make([]byte, 0, 1+len(s)+len(challenge))
	b = append(append(append(b, id), s...), challenge...)
	defer clear(b)
	return a.sum(b)
}

// MinSecret is the least length of a CHAP secret in octets: 96 bits (RFC 7143 §12.1.3).
const MinSecret = 12

// NonceLen is how many octets of chance a challenger needs: the identifier, and the
// longest challenge.
const NonceLen = 1 + 32

// Nonce holds the chance from which a login makes its CHAP challenge. Each login needs a
// new one from a source that nobody can predict. The zero Nonce is refused.
type Nonce [NonceLen]byte

// Credentials are what an initiator needs for CHAP.
type Credentials struct {
	User   string
	Secret Secret // at least MinSecret octets

	// The target must prove PeerSecret too, if it is there. PeerUser is the name that the
	// target must use. An empty PeerUser accepts every name.
	PeerUser   string
	PeerSecret Secret

	Algorithms   []Algorithm // in order of preference; empty means Algorithms
	ShortSecrets bool        // permits secrets of less than MinSecret octets
	Nonce        Nonce       // needed with PeerSecret
}

// check reports every mistake.
func (c *Credentials) check() error {
	var err error
	if c.User == "" {
		err = errors.Join(err, errors.New("iscsi login: CHAP needs a user name"))
	}
	err = errors.Join(err, checkSecret("secret", c.Secret, c.ShortSecrets))
	if c.PeerSecret != nil {
		err = errors.Join(err, checkSecret("target's secret", c.PeerSecret, c.ShortSecrets), c.Nonce.check())
		if bytes.Equal(c.Secret, c.PeerSecret) {
			err = errors.Join(err, errSameSecret)
		}
	} else if c.PeerUser != "" {
		err = errors.Join(err, errors.New("iscsi login: there is a user name of the target, but no secret for it"))
	}
	return errors.Join(err, checkAlgorithms(c.Algorithms))
}

var errSameSecret = errors.New("iscsi login: the secrets of the initiator and of the target must differ (RFC 7143 §12.1.3)")

func checkSecret(what string, s Secret, short bool) error {
	if len(s) < MinSecret && !short || len(s) == 0 {
		return fmt.Errorf("iscsi login: the %s of CHAP has %d octets: take at least %d", what, len(s), MinSecret)
	}
	return nil
}

func checkAlgorithms(all []Algorithm) error {
	for _, a := range all {
		if !slices.Contains(Algorithms, a) {
			return fmt.Errorf("iscsi login: %v is unknown: use MD5, SHA1, SHA256 or SHA3-256", a)
		}
	}
	return nil
}

func (n *Nonce) check() error {
	if *n == (Nonce{}) {
		return errors.New("iscsi login: a CHAP challenge needs a Nonce of random octets")
	}
	return nil
}

func orAll(list []Algorithm) []Algorithm {
	if len(list) == 0 {
		return Algorithms
	}
	return list
}

// chap is what both roles keep of a CHAP exchange.
type chap struct {
	algorithm Algorithm
	id        uint8
	challenge []byte // that this end sent
	replied   bool   // this end has answered the peer's challenge
}

// dare makes this end's challenge.
func (c *chap) dare(n *Nonce) {
	c.id = n[0]
	if c.challenge == nil {
		c.challenge = n[1 : 1+c.algorithm.size()]
	}
}

// question is the peer's challenge.
type question struct {
	id        uint8
	challenge []byte
}

// questionOf reads CHAP_I and CHAP_C. Both are there or none is.
func questionOf(keys map[key]string) (*question, *Refused) {
	i, hasI := keys[keyCHAPIdentifier]
	c, hasC := keys[keyCHAPChallenge]
	if !hasI && !hasC {
		return nil, nil
	}
	if !hasI || !hasC {
		return nil, refuse(pdu.MissingParameter, "CHAP_I and CHAP_C come together")
	}
	id, err := parseNumber(i, 0, 255)
	if err != nil {
		return nil, illegal("CHAP_I: %v", err)
	}
	challenge, err := parseBinary(c)
	if err != nil {
		return nil, illegal("CHAP_C: %v", err)
	}
	return &question{uint8(id), challenge}, nil
}

// reply computes the response to the peer's challenge. A challenge that this end has sent
// itself is reflected: the peer wants this end's own answer (RFC 7143 §12.1.3).
func (c *chap) reply(q *question, s Secret) ([]byte, *Refused) {
	if c.challenge != nil && subtle.ConstantTimeCompare(q.challenge, c.challenge) == 1 {
		return nil, refuse(pdu.AuthenticationFailure, "the peer reflects the CHAP challenge of this end")
	}
	c.replied = true
	return c.algorithm.response(q.id, s, q.challenge), nil
}

// verify checks the peer's response against its secret. own is this end's secret, or nil:
// a response made with it proves nothing. All comparisons take the same time for every
// response of the right length.
func (c *chap) verify(response string, peer, own Secret) *Refused {
	r, err := parseBinary(response)
	if err != nil {
		return illegal("CHAP_R: %v", err)
	}
	good := subtle.ConstantTimeCompare(r, c.algorithm.response(c.id, peer, c.challenge))
	if own != nil {
		good &^= subtle.ConstantTimeCompare(r, c.algorithm.response(c.id, own, c.challenge))
	}
	if good != 1 {
		return refuse(pdu.AuthenticationFailure, "the CHAP response is wrong")
	}
	return nil
}

// algorithmList formats CHAP_A.
func algorithmList(all []Algorithm) string {
	names := make([]string, len(all))
	for i, a := range all {
		names[i] = strconv.Itoa(int(a))
	}
	return strings.Join(names, ",")
}

// firstAlgorithm returns the first of the offered algorithms that this end permits.
func firstAlgorithm(offered string, permitted []Algorithm) (Algorithm, bool) {
	for s := range strings.SplitSeq(offered, ",") {
		n, err := parseNumber(s, 0, 255)
		if err == nil && slices.Contains(permitted, Algorithm(n)) {
			return Algorithm(n), true
		}
	}
	return 0, false
}
