package login

import "github.com/stag-rdma/stag/iscsi/pdu"

// key is the place of a text key in the table.
type key uint8

const (
	keyInitiatorName key = iota
	keyInitiatorAlias
	keyTargetName
	keyTargetAlias
	keyTargetAddress
	keyPortalGroupTag
	keySessionType
	keySendTargets

	keyAuthMethod
	keyCHAPAlgorithm
	keyCHAPIdentifier
	keyCHAPChallenge
	keyCHAPName
	keyCHAPResponse
	keyKerberosRequest
	keyKerberosReply
	keySRPUser
	keySRPGroup
	keySRPSalt

	keyHeaderDigest
	keyDataDigest
	keyMaxRecvDataSegmentLength
	keyMaxConnections
	keyInitialR2T
	keyImmediateData
	keyMaxBurstLength
	keyFirstBurstLength
	keyMaxOutstandingR2T
	keyDataPDUInOrder
	keyDataSequenceInOrder
	keyErrorRecoveryLevel
	keyDefaultTime2Wait
	keyDefaultTime2Retain
	keyTaskReporting
	keyProtocolLevel
	keyIFMarker
	keyOFMarker
	keyIFMarkInt
	keyOFMarkInt
	keyNodeArchitecture

	keyRDMAExtensions
	keyTargetRecvDataSegmentLength
	keyInitiatorRecvDataSegmentLength
	keyMaxOutstandingUnexpectedPDUs
	keyMaxAHSLength
	keyTaggedBufferForSolicitedDataOnly
	keyHelloRequired

	keys // their number
)

// keySet is a set of keys.
type keySet uint64

func (s keySet) has(k key) bool { return s>>k&1 != 0 }
func (s *keySet) add(k key)     { *s |= 1 << k }
func (s *keySet) remove(k key)  { *s &^= 1 << k }

// kind says how the two ends agree on the value of a key.
type kind uint8

const (
	text        kind = iota // declared, no answer
	declared                // a number: each end declares its own, no answer
	number                  // an offer and the result of the row's function
	boolean                 // an offer and the result of the row's function
	list                    // offered values in order of preference, and the chosen one
	exchange                // CHAP: chap.go takes the value
	markerInt               // obsolete, always rejected
	unsupported             // belongs to an authentication method that stag never chooses
)

// stages are the stages of the login in which a key may come.
type stages uint8

const (
	inSecurity    stages = 1 << pdu.SecurityNegotiation
	inOperational stages = 1 << pdu.OperationalNegotiation
	inAny                = inSecurity | inOperational
	inFullFeature stages = 1 << pdu.FullFeaturePhase
)

// role is an end of the connection. A row has the set of those that may send the key.
type role uint8

const (
	initiator role = 1 << iota
	target
	either = initiator | target
)

// row is what RFC 7143 says about a key.
type row struct {
	name   string
	kind   kind
	stages stages
	from   role

	leading bool // only in the login of a session's first connection (LO)
	session bool // without meaning in a discovery session
	repeats bool // may come more than once
	quiet   bool // offered only if the wish is not the default
	spare   bool // a peer may answer NotUnderstood
	rdma    bool // a key of RFC 7145, without meaning over TCP

	initial  uint32   // the value without a negotiation; for a list the place in options
	min, max uint32   // of a number
	options  []string // of a list: those that stag knows
	result   func(offered, wish uint32) uint32
}

// Result functions (RFC 7143 §6.2.2). Booleans are 0 and 1, so that AND is lowest and OR
// is highest.
func lowest(a, b uint32) uint32  { return min(a, b) }
func highest(a, b uint32) uint32 { return max(a, b) }

const (
	longest   = 1<<24 - 1 // of a data segment or a burst, in octets
	shortest  = 512
	mostShort = 1<<16 - 1
	mostLong  = 1<<32 - 1
)

// DefaultMaxRecvDataSegmentLength is the length of a data segment in octets that every end
// takes, during the login and without a declaration (RFC 7143 §13.12).
const DefaultMaxRecvDataSegmentLength = 8192

// The options of lists, by their places.
var (
	digestOptions = []string{"None", "CRC32C"}
	authOptions   = []string{"None", "CHAP"}
	reportOptions = []string{"RFC3720", "ResponseFence", "FastAbort"}
)

const (
	noDigest = 0
	crc32c   = 1
	authNone = 0
	authCHAP = 1
)

// table has a row for each key: RFC 7143 §12.1 and §13, RFC 7144 §7.1, RFC 7145 §6.
var table = [keys]row{
	keyInitiatorName:  {name: "InitiatorName", stages: inAny, from: initiator},
	keyInitiatorAlias: {name: "InitiatorAlias", stages: inAny, from: initiator},
	keyTargetName:     {name: "TargetName", stages: inAny, from: initiator},
	keyTargetAlias:    {name: "TargetAlias", stages: inAny, from: target},
	keyTargetAddress:  {name: "TargetAddress", stages: inAny, from: target, repeats: true},
	keyPortalGroupTag: {name: "TargetPortalGroupTag", kind: declared, stages: inAny, from: target, max: mostShort},
	keySessionType:    {name: "SessionType", stages: inAny, from: initiator},
	keySendTargets:    {name: "SendTargets", stages: inFullFeature, from: initiator},

	keyAuthMethod:      {name: "AuthMethod", kind: list, stages: inSecurity, from: initiator, options: authOptions},
	keyCHAPAlgorithm:   {name: "CHAP_A", kind: exchange, stages: inSecurity, from: either},
	keyCHAPIdentifier:  {name: "CHAP_I", kind: exchange, stages: inSecurity, from: either},
	keyCHAPChallenge:   {name: "CHAP_C", kind: exchange, stages: inSecurity, from: either},
	keyCHAPName:        {name: "CHAP_N", kind: exchange, stages: inSecurity, from: either},
	keyCHAPResponse:    {name: "CHAP_R", kind: exchange, stages: inSecurity, from: either},
	keyKerberosRequest: {name: "KRB_AP_REQ", kind: unsupported, stages: inSecurity, from: initiator},
	keyKerberosReply:   {name: "KRB_AP_REP", kind: unsupported, stages: inSecurity, from: target},
	keySRPUser:         {name: "SRP_U", kind: unsupported, stages: inSecurity, from: initiator},
	keySRPGroup:        {name: "SRP_GROUP", kind: unsupported, stages: inSecurity, from: either},
	keySRPSalt:         {name: "SRP_s", kind: unsupported, stages: inSecurity, from: target},

	keyHeaderDigest:             {name: "HeaderDigest", kind: list, stages: inOperational, from: either, options: digestOptions},
	keyDataDigest:               {name: "DataDigest", kind: list, stages: inOperational, from: either, options: digestOptions},
	keyMaxRecvDataSegmentLength: {name: "MaxRecvDataSegmentLength", kind: declared, stages: inOperational, from: either, initial: DefaultMaxRecvDataSegmentLength, min: shortest, max: longest},

	keyMaxConnections:      {name: "MaxConnections", kind: number, stages: inOperational, from: either, leading: true, session: true, initial: 1, min: 1, max: mostShort, result: lowest},
	keyInitialR2T:          {name: "InitialR2T", kind: boolean, stages: inOperational, from: either, leading: true, session: true, initial: 1, result: highest},
	keyImmediateData:       {name: "ImmediateData", kind: boolean, stages: inOperational, from: either, leading: true, session: true, initial: 1, result: lowest},
	keyMaxBurstLength:      {name: "MaxBurstLength", kind: number, stages: inOperational, from: either, leading: true, session: true, initial: 262144, min: shortest, max: longest, result: lowest},
	keyFirstBurstLength:    {name: "FirstBurstLength", kind: number, stages: inOperational, from: either, leading: true, session: true, initial: 65536, min: shortest, max: longest, result: lowest},
	keyMaxOutstandingR2T:   {name: "MaxOutstandingR2T", kind: number, stages: inOperational, from: either, leading: true, session: true, initial: 1, min: 1, max: mostShort, result: lowest},
	keyDataPDUInOrder:      {name: "DataPDUInOrder", kind: boolean, stages: inOperational, from: either, leading: true, session: true, initial: 1, result: highest},
	keyDataSequenceInOrder: {name: "DataSequenceInOrder", kind: boolean, stages: inOperational, from: either, leading: true, session: true, initial: 1, result: highest},
	keyErrorRecoveryLevel:  {name: "ErrorRecoveryLevel", kind: number, stages: inOperational, from: either, leading: true, session: true, max: 2, result: lowest},
	keyDefaultTime2Wait:    {name: "DefaultTime2Wait", kind: number, stages: inOperational, from: either, leading: true, initial: 2, max: 3600, result: highest},
	keyDefaultTime2Retain:  {name: "DefaultTime2Retain", kind: number, stages: inOperational, from: either, leading: true, initial: 20, max: 3600, result: lowest},
	keyTaskReporting:       {name: "TaskReporting", kind: list, stages: inOperational, from: either, leading: true, session: true, quiet: true, spare: true, options: reportOptions},
	keyProtocolLevel:       {name: "iSCSIProtocolLevel", kind: number, stages: inOperational, from: either, leading: true, session: true, quiet: true, spare: true, initial: 1, max: 31, result: lowest},

	keyIFMarker:         {name: "IFMarker", kind: boolean, stages: inOperational, from: either, quiet: true, spare: true, result: lowest},
	keyOFMarker:         {name: "OFMarker", kind: boolean, stages: inOperational, from: either, quiet: true, spare: true, result: lowest},
	keyIFMarkInt:        {name: "IFMarkInt", kind: markerInt, stages: inOperational, from: either},
	keyOFMarkInt:        {name: "OFMarkInt", kind: markerInt, stages: inOperational, from: either},
	keyNodeArchitecture: {name: "X#NodeArchitecture", stages: inAny, from: either},

	keyRDMAExtensions:                   {name: "RDMAExtensions", kind: boolean, stages: inOperational, from: either, leading: true, quiet: true, spare: true, result: lowest},
	keyTargetRecvDataSegmentLength:      {name: "TargetRecvDataSegmentLength", kind: number, stages: inOperational, from: either, rdma: true, initial: 8192, min: shortest, max: longest, result: lowest},
	keyInitiatorRecvDataSegmentLength:   {name: "InitiatorRecvDataSegmentLength", kind: number, stages: inOperational, from: either, rdma: true, initial: 8192, min: shortest, max: longest, result: lowest},
	keyMaxOutstandingUnexpectedPDUs:     {name: "MaxOutstandingUnexpectedPDUs", kind: declared, stages: inOperational, from: either, leading: true, rdma: true, quiet: true, max: mostLong},
	keyMaxAHSLength:                     {name: "MaxAHSLength", kind: declared, stages: inOperational, from: either, leading: true, rdma: true, quiet: true, initial: 256, max: mostLong},
	keyTaggedBufferForSolicitedDataOnly: {name: "TaggedBufferForSolicitedDataOnly", kind: text, stages: inOperational, from: initiator, rdma: true},
	keyHelloRequired:                    {name: "iSERHelloRequired", kind: text, stages: inOperational, from: initiator, rdma: true},
}

// byName finds a key by its name. Names are case-sensitive (RFC 7143 §6.1).
var byName = func() map[string]key {
	m := make(map[string]key, keys)
	for k := range keys {
		m[table[k].name] = k
	}
	return m
}()

// place returns the place of an option in the list of a row, or -1.
func (r *row) place(option string) int {
	for i, o := range r.options {
		if o == option {
			return i
		}
	}
	return -1
}
