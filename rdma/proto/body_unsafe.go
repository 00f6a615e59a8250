package proto

import "unsafe"

// MessageLen is the length of a message in octets.
const MessageLen = int(unsafe.Sizeof(Message{}))

// Bytes returns the memory of the message.
func (m *Message) Bytes() []byte { return unsafe.Slice((*byte)(unsafe.Pointer(m)), MessageLen) }

// Each of these functions returns the body of the message as the type of its name.

func (m *Message) Hello() *Hello     { return body[Hello](m) }
func (m *Message) Device() *Device   { return body[Device](m) }
func (m *Message) Port() *Port       { return body[Port](m) }
func (m *Message) GID() *GID         { return body[GID](m) }
func (m *Message) CQ() *CQ           { return body[CQ](m) }
func (m *Message) QP() *QP           { return body[QP](m) }
func (m *Message) QPAttr() *QPAttr   { return body[QPAttr](m) }
func (m *Message) MR() *MR           { return body[MR](m) }
func (m *Message) MW() *MW           { return body[MW](m) }
func (m *Message) SRQ() *SRQ         { return body[SRQ](m) }
func (m *Message) Destroy() *Destroy { return body[Destroy](m) }
func (m *Message) Attach() *Attach   { return body[Attach](m) }
func (m *Message) Async() *Async     { return body[Async](m) }
func (m *Message) ID() *ID           { return body[ID](m) }
func (m *Message) Address() *Address { return body[Address](m) }
func (m *Message) Conn() *Conn       { return body[Conn](m) }
func (m *Message) Migrate() *Migrate { return body[Migrate](m) }
func (m *Message) Option() *Option   { return body[Option](m) }
func (m *Message) CMEvent() *CMEvent { return body[CMEvent](m) }

// bodies are the types of bodies. Each fits into a Message; a test checks that.
type bodies interface {
	Hello | Device | Port | GID | CQ | QP | QPAttr | MR | MW | SRQ | Destroy | Attach | Async | ID | Address | Conn | Migrate | Option | CMEvent
}

func body[T bodies](m *Message) *T { return (*T)(unsafe.Pointer(&m.Body)) }
