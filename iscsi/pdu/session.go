package pdu

// The offsets of the fields of Login (RFC 7143 §11.12, §11.13), Logout (§11.14, §11.15),
// Asynchronous Message (§11.9) and Reject (§11.17).
const (
	atVersionMax  = 2
	atVersionMin  = 3 // VersionActive of a response
	atReason      = 2
	atISID        = 8
	atTSIH        = 14
	atCID         = 20
	atStatusClass = 36
	atEvent       = 36
	atVendorCode  = 37
	atParameter1  = 38
	atParameter2  = 40
	atParameter3  = 42
	atTime2Wait   = 40
	atTime2Retain = 42
	stageShift    = 2
	stageMask     = 0x03
	logoutMask    = 0x7f
	isidLen       = 6
	stagesMask    = 0x0f
)

// Stage is a stage of the login (RFC 7143 §11.12.3).
type Stage uint8

const (
	SecurityNegotiation    Stage = 0
	OperationalNegotiation Stage = 1
	FullFeaturePhase       Stage = 3
)

// CurrentStage returns CSG of a Login.
func (h *Header) CurrentStage() Stage { return Stage(h[atFlags] >> stageShift & stageMask) }

// NextStage returns NSG of a Login. It is valid with Transit.
func (h *Header) NextStage() Stage { return Stage(h[atFlags] & stageMask) }

// SetStages sets CSG and NSG of a Login. The flags stay.
func (h *Header) SetStages(current, next Stage) {
	h[atFlags] = h[atFlags]&^stagesMask | uint8(current)&stageMask<<stageShift | uint8(next)&stageMask
}

// VersionMax returns Version-max of a Login.
func (h *Header) VersionMax() uint8 { return h[atVersionMax] }

// SetVersionMax sets Version-max of a Login.
func (h *Header) SetVersionMax(v uint8) { h[atVersionMax] = v }

// VersionMin returns Version-min of a Login Request.
func (h *Header) VersionMin() uint8 { return h[atVersionMin] }

// SetVersionMin sets Version-min of a Login Request.
func (h *Header) SetVersionMin(v uint8) { h[atVersionMin] = v }

// VersionActive returns Version-active of a Login Response.
func (h *Header) VersionActive() uint8 { return h[atVersionMin] }

// SetVersionActive sets Version-active of a Login Response.
func (h *Header) SetVersionActive(v uint8) { h[atVersionMin] = v }

// ISID is the part of a session's identifier that the initiator chooses (RFC 7143
// §11.12.5).
type ISID [isidLen]byte

// ISID returns the ISID of a Login.
func (h *Header) ISID() ISID { return ISID(h[atISID : atISID+isidLen]) }

// SetISID sets the ISID of a Login.
func (h *Header) SetISID(id ISID) { copy(h[atISID:], id[:]) }

// TSIH returns the session handle of a Login. 0 in a request asks for a new session.
func (h *Header) TSIH() uint16 { return h.u16(atTSIH) }

// SetTSIH sets the session handle of a Login.
func (h *Header) SetTSIH(id uint16) { h.put16(atTSIH, id) }

// CID returns the connection identifier of a Login Request or Logout Request.
func (h *Header) CID() uint16 { return h.u16(atCID) }

// SetCID sets the connection identifier of a Login Request or Logout Request.
func (h *Header) SetCID(id uint16) { h.put16(atCID, id) }

// LoginStatus is Status-Class and Status-Detail of a Login Response, the class in the
// high octet (RFC 7143 §11.13.5).
type LoginStatus uint16

const (
	LoginSuccess            LoginStatus = 0x0000
	TargetMovedTemporarily  LoginStatus = 0x0101
	TargetMovedPermanently  LoginStatus = 0x0102
	InitiatorError          LoginStatus = 0x0200
	AuthenticationFailure   LoginStatus = 0x0201
	AuthorizationFailure    LoginStatus = 0x0202
	TargetNotFound          LoginStatus = 0x0203
	TargetRemoved           LoginStatus = 0x0204
	UnsupportedVersion      LoginStatus = 0x0205
	TooManyConnections      LoginStatus = 0x0206
	MissingParameter        LoginStatus = 0x0207
	CannotIncludeInSession  LoginStatus = 0x0208
	SessionTypeNotSupported LoginStatus = 0x0209
	SessionDoesNotExist     LoginStatus = 0x020a
	InvalidDuringLogin      LoginStatus = 0x020b
	TargetError             LoginStatus = 0x0300
	ServiceUnavailable      LoginStatus = 0x0301
	OutOfResources          LoginStatus = 0x0302
)

// Class returns Status-Class: 0 success, 1 redirection, 2 error of the initiator, 3 error
// of the target.
func (s LoginStatus) Class() uint8 { return uint8(s >> 8) }

// LoginStatus returns the status of a Login Response.
func (h *Header) LoginStatus() LoginStatus { return LoginStatus(h.u16(atStatusClass)) }

// SetLoginStatus sets the status of a Login Response.
func (h *Header) SetLoginStatus(s LoginStatus) { h.put16(atStatusClass, uint16(s)) }

// LogoutReason is what a Logout Request closes (RFC 7143 §11.14.1).
type LogoutReason uint8

const (
	CloseSession      LogoutReason = 0
	CloseConnection   LogoutReason = 1
	RemoveForRecovery LogoutReason = 2 // the connection's tasks go on over another one
)

// LogoutReason returns what a Logout Request closes.
func (h *Header) LogoutReason() LogoutReason { return LogoutReason(h[atFlags] & logoutMask) }

// SetLogoutReason sets what a Logout Request closes, and the bit above it that must be 1.
func (h *Header) SetLogoutReason(r LogoutReason) { h[atFlags] = uint8(Final) | uint8(r)&logoutMask }

// The values of Response in a Logout Response (RFC 7143 §11.15.1).
const (
	LogoutClosed               uint8 = 0
	LogoutCIDNotFound          uint8 = 1
	LogoutRecoveryNotSupported uint8 = 2
	LogoutCleanupFailed        uint8 = 3
)

// Time2Wait returns how long an initiator waits before it reconnects, in seconds. It is
// a field of a Logout Response.
func (h *Header) Time2Wait() uint16 { return h.u16(atTime2Wait) }

// SetTime2Wait sets Time2Wait of a Logout Response in seconds.
func (h *Header) SetTime2Wait(s uint16) { h.put16(atTime2Wait, s) }

// Time2Retain returns how long a target keeps the tasks after Time2Wait, in seconds. It
// is a field of a Logout Response.
func (h *Header) Time2Retain() uint16 { return h.u16(atTime2Retain) }

// SetTime2Retain sets Time2Retain of a Logout Response in seconds.
func (h *Header) SetTime2Retain(s uint16) { h.put16(atTime2Retain, s) }

// Event is the event of an Asynchronous Message (RFC 7143 §11.9.1). Events of 248 and
// more belong to vendors.
type Event uint8

const (
	EventSCSI           Event = 0 // the data segment holds sense data
	EventLogout         Event = 1 // log out within Parameter3 seconds
	EventDropConnection Event = 2 // connection Parameter1 ends
	EventDropSession    Event = 3
	EventNegotiate      Event = 4 // send a Text Request within Parameter3 seconds
	EventTasksEnded     Event = 5 // FastAbort: all tasks of the logical unit have ended
)

// Event returns the event of an Asynchronous Message.
func (h *Header) Event() Event { return Event(h[atEvent]) }

// SetEvent sets the event of an Asynchronous Message.
func (h *Header) SetEvent(e Event) { h[atEvent] = uint8(e) }

// VendorCode returns AsyncVCode of an Asynchronous Message.
func (h *Header) VendorCode() uint8 { return h[atVendorCode] }

// SetVendorCode sets AsyncVCode of an Asynchronous Message.
func (h *Header) SetVendorCode(c uint8) { h[atVendorCode] = c }

// Parameters returns Parameter1, Parameter2 and Parameter3 of an Asynchronous Message.
func (h *Header) Parameters() (p1, p2, p3 uint16) {
	return h.u16(atParameter1), h.u16(atParameter2), h.u16(atParameter3)
}

// SetParameters sets the parameters of an Asynchronous Message.
func (h *Header) SetParameters(p1, p2, p3 uint16) {
	h.put16(atParameter1, p1)
	h.put16(atParameter2, p2)
	h.put16(atParameter3, p3)
}

// RejectReason is why a target rejects a PDU (RFC 7143 §11.17.1).
type RejectReason uint8

const (
	RejectDataDigest       RejectReason = 0x02
	RejectSNACK            RejectReason = 0x03
	RejectProtocolError    RejectReason = 0x04
	RejectNotSupported     RejectReason = 0x05
	RejectTooManyImmediate RejectReason = 0x06
	RejectTaskInProgress   RejectReason = 0x07
	RejectInvalidDataACK   RejectReason = 0x08
	RejectInvalidField     RejectReason = 0x09
	RejectLongOperation    RejectReason = 0x0a // no resources for it: the data segment says how long
	RejectDeprecated       RejectReason = 0x0b
	RejectWaitingForLogout RejectReason = 0x0c
)

// RejectReason returns why a target rejects a PDU. The data segment of the Reject is the
// header of that PDU.
func (h *Header) RejectReason() RejectReason { return RejectReason(h[atReason]) }

// SetRejectReason sets why a target rejects a PDU.
func (h *Header) SetRejectReason(r RejectReason) { h[atReason] = uint8(r) }
