// Package pdu reads and writes the PDUs of iSCSI (RFC 7143 §11, RFC 7144) and the header
// of iSER (RFC 7145 §9).
//
//	48    TotalAHSLength  4               n      0..3  4
//	| BHS | AHS…        | header digest | data | pad | data digest |
//
// [Header] is the BHS. Its methods have the names of the fields in RFC 7143. A method
// reads or writes one field and checks nothing: the caller knows the opcode. Each opcode
// has a row in [InfoOf]. [Header.Check] finds the values that no state of a connection
// permits. [Parse] and [Append] read and write a whole PDU in memory; on the data path
// no PDU is ever whole.
//
//	header.go   the fields that all PDUs have         opcode.go  a row for each opcode
//	command.go  Command, Response, task management    data.go    Data-In, Data-Out, R2T, SNACK
//	session.go  Login, Text, Logout, Async, Reject    check.go   values that are never valid
//	pdu.go      a whole PDU                           digest.go  header and data digests
//	plausible.go  reserved bits, for captures
//	ahs.go      additional header segments            sense.go   the data of a Response
//	text.go     key=value pairs                       value.go   numbers and binary values
//	iser.go     the header of iSER
//
// The package does no I/O. Only the Append functions allocate, if their buffer is short.
package pdu
