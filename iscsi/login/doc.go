// Package login is the login of iSCSI (RFC 7143 §6), both roles, as machines without I/O.
//
//	keys.go       a row for each text key           values.go     numbers, booleans, lists, octets
//	negotiate.go  offers, answers, declarations     params.go     wishes of an end, and the result
//	chap.go       CHAP, both roles                  secret.go     a secret that no text shows
//	initiator.go  the initiator's machine           target.go     the target's machine
//	registry.go   what a target knows               sendtargets.go  the text of a discovery
//	exchange.go   text that is longer than a PDU    inbox.go      a PDU from octets
//
// A machine takes one PDU and appends the PDU to send next:
//
//	out, err := initiator.Start(nil)
//	for !done && err == nil {
//		header, text := …                                   // by an Inbox
//		out, done, err = initiator.Step(header, text, out[:0])
//	}
//	params := initiator.Params()
//
// If Step fails and returns octets all the same, the caller sends them and then closes the
// connection. The package starts no goroutine and reads neither a clock nor a source of
// chance: the caller gives the octets of the CHAP challenge.
//
// Part of the API of stag: Wishes, Digest, TaskReporting. Package iscsi has aliases of them.
package login
