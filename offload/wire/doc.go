// Package wire contains the wire formats. For each protocol it has a view that reads a
// header in place, and a struct of fields that appends a header.
//
// The parser checks the length once, so that the methods of a view never fail. A parser
// that can refuse for several reasons returns a Reason. The zero Reason is OK. A view
// borrows the memory that it was parsed from and is valid as long as that memory.
//
// For a received frame, ParsePacket is the first step of the engine's input. For a sent
// frame, HeaderTemplate.Write is the last step before the engine sends the frame.
//
// Part of the API of stag: Opcode, Extensions. Package rdma has aliases of them.
package wire
