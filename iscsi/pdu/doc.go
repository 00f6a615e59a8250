// Package pdu reads and writes the PDUs of iSCSI (RFC 7143 §11, RFC 7144).
//
//	48    TotalAHSLength  4               n      0..3  4
//	| BHS | AHS…        | header digest | data | pad | data digest |
//
// [Header] is the BHS. Its methods have the names of the fields in RFC 7143. A method
// reads or writes one field and checks nothing: the caller knows the opcode. Each opcode
// has a row in [InfoOf].
//
//	header.go   the fields that all PDUs have             opcode.go  a row for each opcode
//	command.go  Command, Response, task management        data.go    Data-In, Data-Out, R2T, SNACK
//	session.go  Login, Text, Logout, Async, Reject        digest.go  header and data digests
//	text.go     key=value pairs
//
// The package does no I/O. Only the Append functions allocate, if their buffer is short.
package pdu
