package flow

import "fmt"

// Reason is why a PDU is refused, a command fails, or a connection ends.
type Reason uint8

// OK is the Reason of what went well.
const OK Reason = 0

// These reasons refuse a PDU of the peer. Its data segment is dropped, and nothing is
// placed. The connection goes on.
const (
	NoTask         Reason = 1 + iota // no command in progress has the tag (US 7,299,266, FIG. 17B: not valid, not iSCSI, or another instance)
	Stale                            // the command of the tag was canceled; of a target also: it has ended
	OtherSession                     // the tag is another protection domain's or connection's
	OutOfBounds                      // the octets are not wholly within the command's buffer
	WrongDirection                   // the command does not transfer data that way
	DataSNGap                        // DataSN or R2TSN is not the next one
	OutOfOrder                       // the Buffer Offset is not the next one, although DataPDUInOrder is Yes
	BurstLength                      // an R2T asks for no octets or for more than MaxBurstLength, or a sequence has more than was asked for
	TooManyR2T                       // more R2Ts than MaxOutstandingR2T are outstanding
	NotExpected                      // the command or the connection expects no PDU of that opcode
	Repeated                         // the StatSN was there already
)

// These reasons end the connection.
const (
	HeaderDigest  Reason = 32 + iota // the header digest is wrong
	ControlDigest                    // the data digest of a PDU that belongs to no command's data is wrong
	DataTooLong                      // the data segment is longer than MaxRecvDataSegmentLength or than its opcode allows
	AHSTooLong                       // the additional header segments are longer than allowed
	BadOpcode                        // the opcode is unknown, or of the other role
	StatSNGap                        // a status is missing
	CmdSNGap                         // a command is missing
	Unreadable                       // memory of a command cannot be read in the middle of a PDU
	Silent                           // the initiator does not answer a ping
	Closed                           // this end has closed the connection
)

// These reasons fail a command.
const (
	Lost        Reason = 64 + iota // the connection ended before the command's status
	Canceled                       // this end has canceled the command
	DataDigest                     // a data digest is wrong
	DataMissing                    // fewer or more octets have arrived than the status says
	MemoryGone                     // memory of the command cannot be accessed any more
	BadData                        // the target has sent data of the command that was refused
	Rejected                       // the target has rejected the request
	Uncertain                      // the connection ended; the target may have executed the command, and a second execution may do harm

	reasons
)

var reasonNames = [reasons]string{
	OK:             "ok",
	NoTask:         "no command has that tag",
	Stale:          "the command of that tag was canceled or has ended",
	OtherSession:   "the tag is another session's or connection's",
	OutOfBounds:    "the octets reach outside of the command's buffer",
	WrongDirection: "the command does not transfer data that way",
	DataSNGap:      "DataSN or R2TSN is not the next one",
	OutOfOrder:     "the buffer offset is not the next one",
	BurstLength:    "the length of the burst is not allowed",
	TooManyR2T:     "more R2Ts than MaxOutstandingR2T are outstanding",
	NotExpected:    "nothing expects a PDU of that opcode",
	Repeated:       "the StatSN was there already",
	HeaderDigest:   "the header digest is wrong",
	ControlDigest:  "the data digest of a control PDU is wrong",
	DataTooLong:    "the data segment is longer than allowed",
	AHSTooLong:     "the additional header segments are longer than allowed",
	BadOpcode:      "the opcode is unknown, or is the other role's",
	StatSNGap:      "a StatSN is missing",
	CmdSNGap:       "a CmdSN is missing",
	Unreadable:     "memory of a command cannot be read in the middle of a PDU",
	Silent:         "the initiator does not answer a ping",
	Closed:         "this end has closed the connection",
	Lost:           "the connection ended before the status of the command",
	Canceled:       "the command was canceled",
	DataDigest:     "a data digest of the command's data is wrong",
	DataMissing:    "the number of octets that arrived is not the number that the status says",
	MemoryGone:     "memory of the command cannot be accessed any more: it was unmapped, protected, or its file truncated",
	BadData:        "data of the command was refused",
	Rejected:       "the target has rejected the request",
	Uncertain:      "the connection was lost: the target may have executed the command or not, and the command must not be repeated",
}

// reasonWords are the names of the counters of the reasons.
var reasonWords = [reasons]string{
	NoTask:         "no_task",
	Stale:          "stale",
	OtherSession:   "other_session",
	OutOfBounds:    "out_of_bounds",
	WrongDirection: "wrong_direction",
	DataSNGap:      "data_sn_gap",
	OutOfOrder:     "out_of_order",
	BurstLength:    "burst_length",
	TooManyR2T:     "too_many_r2t",
	NotExpected:    "not_expected",
	Repeated:       "repeated",
	HeaderDigest:   "header_digest",
	ControlDigest:  "control_digest",
	DataTooLong:    "data_too_long",
	AHSTooLong:     "ahs_too_long",
	BadOpcode:      "bad_opcode",
	StatSNGap:      "stat_sn_gap",
	CmdSNGap:       "cmd_sn_gap",
	Unreadable:     "unreadable",
	Silent:         "silent",
	Closed:         "closed",
	Lost:           "lost",
	Canceled:       "canceled",
	DataDigest:     "data_digest",
	DataMissing:    "data_missing",
	MemoryGone:     "memory_gone",
	BadData:        "bad_data",
	Rejected:       "rejected",
	Uncertain:      "uncertain",
}

// Word returns the name of the counter of the reason, in snake_case.
func (r Reason) Word() string { return reasonWords[r] }

// Reasons returns all reasons but OK.
func Reasons() (all []Reason) {
	for r := range reasons {
		if reasonWords[r] != "" {
			all = append(all, r)
		}
	}
	return all
}

func (r Reason) String() string {
	if r < reasons && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Error implements error, for every Reason but OK.
func (r Reason) Error() string { return "iscsi: " + r.String() }

// refuses reports whether the reason refuses a PDU, and the connection goes on.
func (r Reason) refuses() bool { return r != OK && r < HeaderDigest }

// Ends reports whether the reason ends the connection.
func (r Reason) Ends() bool { return r >= HeaderDigest && r <= Closed }
