// Package wire is the layout of what travels: for each protocol a view that
// reads a header in place, and a struct of fields that appends one.
//
// A view proves its length once, when it is parsed; its methods never fail. A
// parser that can refuse for several causes returns a Reason, OK being zero.
// Views borrow the memory they were made from and are valid as long as it is.
//
// On the path of a received frame ParsePacket is the first step of the
// engine's input; on the way out HeaderTemplate.Write is the last step before
// the frame is sent.
//
// Part of the API of stag: Opcode. Package rdma has an alias of it.
package wire
