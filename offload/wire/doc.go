// Package wire contains the wire formats: for each protocol a view that reads a
// header in place, and a struct of fields that appends one.
//
// The parser checks the length once, so the methods of a view never fail. A parser
// that can refuse for several reasons returns a Reason; OK is zero. A view borrows
// the memory that it was parsed from and is valid as long as that memory.
//
// On the path of a received frame ParsePacket is the first step of the
// engine's input; on the way out HeaderTemplate.Write is the last step before
// the frame is sent.
//
// Part of the API of stag: Opcode. Package rdma has an alias of it.
package wire
