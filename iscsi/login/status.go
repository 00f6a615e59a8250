package login

import (
	"fmt"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// Refused is the error for a login that ends with a status, at either end. It never holds
// a secret.
type Refused struct {
	Status  pdu.LoginStatus
	Reason  string // what is wrong, if this end found it
	Address string // where the target has moved to: host[:port]; statuses of class 1 only
	ByPeer  bool   // the peer sent the status

	found role // the end that found it, if not the peer
}

// statuses has the name of each status and what an operator can do (RFC 7143 §11.13.5).
var statuses = map[pdu.LoginStatus][2]string{
	pdu.TargetMovedTemporarily:  {"target moved temporarily", ""},
	pdu.TargetMovedPermanently:  {"target moved permanently", "use the new address"},
	pdu.InitiatorError:          {"initiator error", ""},
	pdu.AuthenticationFailure:   {"authentication failure", "check the user names and secrets of CHAP at both ends"},
	pdu.AuthorizationFailure:    {"authorization failure", "permit the initiator's name at the target"},
	pdu.TargetNotFound:          {"target not found", "list the targets of the portal by a discovery"},
	pdu.TargetRemoved:           {"target removed", ""},
	pdu.UnsupportedVersion:      {"unsupported version", ""},
	pdu.TooManyConnections:      {"too many connections in the session", ""},
	pdu.MissingParameter:        {"missing parameter", ""},
	pdu.CannotIncludeInSession:  {"the session cannot have a connection to this portal", ""},
	pdu.SessionTypeNotSupported: {"session type not supported", ""},
	pdu.SessionDoesNotExist:     {"session does not exist", ""},
	pdu.InvalidDuringLogin:      {"invalid request during login", ""},
	pdu.TargetError:             {"target error", "see the target's log"},
	pdu.ServiceUnavailable:      {"service unavailable", "try again later"},
	pdu.OutOfResources:          {"target out of resources", "try again later"},
}

func (r *Refused) Error() string {
	if r.found == initiator {
		return "iscsi login: " + r.Reason
	}
	name := statuses[r.Status]
	s := fmt.Sprintf("iscsi login: status %04x", uint16(r.Status))
	if r.ByPeer {
		s = fmt.Sprintf("iscsi login: the target answers status %04x", uint16(r.Status))
	}
	for _, part := range []struct{ before, text string }{{", ", name[0]}, {": ", r.Reason}, {" to ", r.Address}, {": ", name[1]}} {
		if part.text != "" {
			s += part.before + part.text
		}
	}
	return s
}

// refuse makes the error for a fault that this end found.
func refuse(s pdu.LoginStatus, format string, args ...any) *Refused {
	return &Refused{Status: s, Reason: fmt.Sprintf(format, args...)}
}

// illegal is refuse with the status for whatever an initiator may not send.
func illegal(format string, args ...any) *Refused {
	return refuse(pdu.InitiatorError, format, args...)
}
