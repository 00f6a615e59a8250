package login

import "github.com/stag-rdma/stag/iscsi/pdu"

// Request is what an initiator says about itself. The names are valid from the first
// whole text on. Names are in lower case.
type Request struct {
	InitiatorName, InitiatorAlias string
	TargetName                    string // empty in a discovery session
	Discovery                     bool
	ISID                          pdu.ISID
	TSIH, CID                     uint16
	User                          string // proven by CHAP; empty before and without it
}

// Policy is what a target decides about an initiator before the authentication.
type Policy struct {
	// Status other than LoginSuccess ends the login. The statuses of class 1 need Address.
	Status  pdu.LoginStatus
	Address string // host[:port] or [host][:port], with no portal group tag

	PortalGroupTag uint16
	Alias          string    // TargetAlias; empty is not sent
	CHAP           *Verifier // nil: no authentication
}

// Verifier is what a target needs for CHAP.
type Verifier struct {
	// Secret returns the secret of a user. Secret is called once, with a name that the
	// initiator chose.
	Secret func(user string) (s Secret, known bool)

	// The name and the secret by which the target proves who it is. An initiator that asks
	// for the proof is refused without them.
	User      string
	OwnSecret Secret

	Algorithms   []Algorithm // that are permitted; empty means Algorithms
	ShortSecrets bool        // permits secrets of less than MinSecret octets
	Nonce        Nonce
}

// Existing is what a target already has for the InitiatorName, ISID, TargetName and
// portal group of a request.
type Existing struct {
	Session        bool // there is such a session
	TSIH           uint16
	Connection     bool // the session has a connection with the CID of the request
	Connections    int  // how many connections the session has
	MaxConnections int  // as negotiated
}

// Action is what a successful login does to the sessions of the target (RFC 7143 §6.3.5,
// §11.12.6).
type Action uint8

const (
	NewSession          Action = iota // make a session
	ReinstateSession                  // end the old session, then make a new one
	AddConnection                     // the session gets a further connection
	ReinstateConnection               // end the old connection, then add the new one
)

// Decide returns what a login does, or the status that refuses it:
//
//	existing session   TSIH of the request   CID       action
//	no                 0                     any       NewSession
//	no                 not 0                 any       refused, 020a
//	yes                0                     any       ReinstateSession
//	yes                that of the session   new       AddConnection, or 0206 if there are too many
//	yes                that of the session   existing  ReinstateConnection
//	yes                another               any       refused, 020a
func (e *Existing) Decide(tsih uint16) (Action, pdu.LoginStatus) {
	switch {
	case tsih == 0 && !e.Session:
		return NewSession, pdu.LoginSuccess
	case tsih == 0:
		return ReinstateSession, pdu.LoginSuccess
	case !e.Session || e.TSIH != tsih:
		return NewSession, pdu.SessionDoesNotExist
	case e.Connection:
		return ReinstateConnection, pdu.LoginSuccess
	case e.Connections >= e.MaxConnections:
		return AddConnection, pdu.TooManyConnections
	}
	return AddConnection, pdu.LoginSuccess
}

// Registry is what the machine of a target asks. The machine calls Policy after the first
// text, and Existing and Enter when the login is about to succeed: after the
// authentication.
type Registry interface {
	// Policy decides about the names of a request.
	Policy(*Request) Policy
	// Existing looks for the session of a request.
	Existing(*Request) Existing
	// Enter performs the action and returns the session's handle, which is not 0. A status
	// other than LoginSuccess ends the login. For a further connection, Enter sets the
	// session's parameters, CmdSN and MaxCmdSN in p.
	Enter(r *Request, a Action, p *Params) (tsih uint16, status pdu.LoginStatus)
}
