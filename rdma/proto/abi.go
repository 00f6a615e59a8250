package proto

// Versions and paths.
const (
	Version        = 1
	LayoutVersion  = 3 // work.LayoutVersion
	DefaultSocket  = "/run/stag/stagd.sock"
	SocketVariable = "STAG_DAEMON"
)

// Lengths in octets.
const (
	PrivateMax = 512
	BodyLen    = 256
	AddrLen    = 28
	NameLen    = 64
	OptionLen  = 64
)

// Op says what a message is.
type Op uint32

const (
	OpHello  Op = 1
	OpDevice Op = 2
	OpPort   Op = 3
	OpGID    Op = 4

	OpPD        Op = 10
	OpChannel   Op = 11
	OpCQ        Op = 12
	OpResizeCQ  Op = 13
	OpQP        Op = 14
	OpModifyQP  Op = 15
	OpQueryQP   Op = 16
	OpMR        Op = 17
	OpMW        Op = 18
	OpSRQ       Op = 19
	OpModifySRQ Op = 20
	OpQuerySRQ  Op = 21
	OpDestroy   Op = 22

	OpAsync      Op = 30
	OpAsyncEvent Op = 31

	OpEventChannel Op = 40
	OpCMEvent      Op = 41
	OpID           Op = 42
	OpBind         Op = 43
	OpResolve      Op = 44
	OpRoute        Op = 45
	OpListen       Op = 46
	OpConnect      Op = 47
	OpAccept       Op = 48
	OpReject       Op = 49
	OpDisconnect   Op = 50
	OpEstablish    Op = 51
	OpMigrate      Op = 52
	OpSetOption    Op = 53
	OpGetOption    Op = 54
)

// Kind is what a handle names.
type Kind uint32

const (
	KindPD      Kind = 1
	KindChannel Kind = 2 // completion channel
	KindCQ      Kind = 3
	KindQP      Kind = 4
	KindMR      Kind = 5
	KindMW      Kind = 6
	KindSRQ     Kind = 7
	KindEvents  Kind = 8 // event channel of the connection manager
	KindID      Kind = 9
)

// Personality is the kind of RDMA device as which a client shows the device to its program.
type Personality uint32

const (
	PersonalityIWARP Personality = 0
	PersonalityRoCE  Personality = 1
)

// Features.
const (
	FeatureAtomics   uint64 = 1 << 0
	FeatureImmediate uint64 = 1 << 1
	FeatureSRQ       uint64 = 1 << 2
	FeatureMW        uint64 = 1 << 3
	FeatureResizeCQ  uint64 = 1 << 4
	FeatureByQPN     uint64 = 1 << 5
	FeatureCopied    uint64 = 1 << 6
	FeatureMapped    uint64 = 1 << 7
	FeatureHold      uint64 = 1 << 8
)

// Flags of several messages.
const (
	QPSignalAll uint32 = 1
	QPNoHold    uint32 = 2
	QPNoKeep    uint32 = 4

	ReachCopied uint32 = 1
	ReachMapped uint32 = 2

	SRQDepth uint32 = 1
	SRQLimit uint32 = 2

	ConnResponse uint32 = 1
)

// Message is a request, an answer or an event. The type of Body depends on Op; the functions
// of the same name as the type return it.
type Message struct {
	Op          Op
	Err         int32
	Handle      uint64
	Body        [BodyLen / 8]uint64
	PrivateLen  uint32
	Reserved    uint32
	PrivateData [PrivateMax]byte
}

// Hello is the body of OpHello.
type Hello struct {
	Version     uint32
	Layout      uint32
	MessageLen  uint32
	Personality Personality
	Features    uint64
	Token       [2]uint64
	BellLen     uint32
	BellBits    uint32
	Generation  uint32
	Devices     uint32
	Ports       uint32
	PID         uint32
}

// Device is the body of OpDevice.
type Device struct {
	Name        [NameLen]byte
	Firmware    [32]byte
	GUID        [8]byte
	Features    uint64
	MaxMRSize   uint64
	PageSizeCap uint64
	VendorID    uint32
	VendorPart  uint32
	Ports       uint32
	MaxPD       uint32
	MaxQP       uint32
	MaxQPWR     uint32
	MaxSGE      uint32
	MaxSGERd    uint32
	MaxInline   uint32
	MaxCQ       uint32
	MaxCQE      uint32
	MaxMR       uint32
	MaxMW       uint32
	MaxSRQ      uint32
	MaxSRQWR    uint32
	MaxSRQSGE   uint32
	MaxRdAtomic uint32
	MaxPrivate  uint32
}

// Port is the body of OpPort.
type Port struct {
	PortNum uint32
	State   uint32
	MTU     uint32
	GIDs    uint32
	Speed   uint32
	Ifindex uint32
	MAC     [8]byte
	Netdev  [NameLen]byte
}

// GID is the body of OpGID.
type GID struct {
	PortNum  uint32
	Index    uint32
	Ifindex  uint32
	Reserved uint32
	GID      [16]byte
}

// CQ is the body of OpCQ and OpResizeCQ.
type CQ struct {
	Channel uint64
	Cookie  uint64
	Depth   uint32
	Vector  uint32
	Length  uint64
}

// QP is the body of OpQP.
type QP struct {
	PD         uint64
	SendCQ     uint64
	RecvCQ     uint64
	SRQ        uint64
	Cookie     uint64
	Flags      uint32
	Type       uint32
	SendDepth  uint32
	RecvDepth  uint32
	SendSGE    uint32
	RecvSGE    uint32
	InlineLen  uint32
	QPN        uint32
	Bit        uint32
	Reserved   uint32
	RecvOffset uint64
	RecvLen    uint64
	SendLen    uint64
	Length     uint64
}

// QPAttr is the body of OpModifyQP and OpQueryQP.
type QPAttr struct {
	Mask            uint32
	State           uint32
	CurState        uint32
	QPN             uint32
	DestQPN         uint32
	RQPSN           uint32
	SQPSN           uint32
	Access          uint32
	PortNum         uint32
	SGIDIndex       uint32
	PathMTU         uint32
	MaxRdAtomic     uint32
	MaxDestRdAtomic uint32
	MinRNRTimer     uint32
	Timeout         uint32
	RetryCnt        uint32
	RNRRetry        uint32
	Flags           uint32
	SendDepth       uint32
	RecvDepth       uint32
	SendSGE         uint32
	RecvSGE         uint32
	InlineLen       uint32
	Reserved        uint32
	DGID            [16]byte
}

// MR is the body of OpMR.
type MR struct {
	PD     uint64
	Addr   uint64
	Length uint64
	IOVA   uint64
	Access uint32
	LKey   uint32
	RKey   uint32
	Reach  uint32
}

// MW is the body of OpMW.
type MW struct {
	PD   uint64
	Type uint32
	RKey uint32
}

// SRQ is the body of OpSRQ, OpModifySRQ and OpQuerySRQ.
type SRQ struct {
	PD       uint64
	Cookie   uint64
	Length   uint64
	Mask     uint32
	Depth    uint32
	SGE      uint32
	Limit    uint32
	Bit      uint32
	Reserved uint32
}

// Destroy is the body of OpDestroy.
type Destroy struct {
	Kind   Kind
	Events uint32
}

// Attach is the body of OpAsync and OpEventChannel.
type Attach struct {
	Token [2]uint64
}

// Async is the body of OpAsyncEvent.
type Async struct {
	Cookie   uint64
	Event    uint32
	Kind     Kind
	PortNum  uint32
	Reserved uint32
}

// ID is the body of OpID.
type ID struct {
	Channel   uint64
	Cookie    uint64
	PortSpace uint32
	Reserved  uint32
}

// Address is the body of OpBind, OpResolve, OpRoute and OpListen.
type Address struct {
	Src      [AddrLen]byte
	Dst      [AddrLen]byte
	Timeout  uint32
	Backlog  uint32
	PortNum  uint32
	Reserved uint32
}

// Conn is the body of OpConnect and OpAccept.
type Conn struct {
	Cookie             uint64
	QPN                uint32
	Flags              uint32
	ResponderResources uint32
	InitiatorDepth     uint32
	FlowControl        uint32
	RetryCount         uint32
	RNRRetryCount      uint32
	SRQ                uint32
}

// Migrate is the body of OpMigrate.
type Migrate struct {
	Channel  uint64
	Cookie   uint64
	Events   uint32
	Reserved uint32
}

// Option is the body of OpSetOption and OpGetOption.
type Option struct {
	Level    uint32
	Name     uint32
	Length   uint32
	Reserved uint32
	Value    [OptionLen]byte
}

// CMEvent is the body of OpCMEvent.
type CMEvent struct {
	Cookie             uint64
	Listener           uint64
	Event              uint32
	Status             int32
	Src                [AddrLen]byte
	Dst                [AddrLen]byte
	PortNum            uint32
	ResponderResources uint32
	InitiatorDepth     uint32
	FlowControl        uint32
	RetryCount         uint32
	RNRRetryCount      uint32
	SRQ                uint32
	QPN                uint32
}

// Lengths of the bell page, in octets and bits.
const (
	BellLen  = 4096
	BellBits = (BellLen - 64) * 8
)

// Bell is the bell page.
type Bell struct {
	Asleep     uint32
	Generation uint32
	Gone       uint32
	Reserved   [13]uint32
	Bits       [(BellLen - 64) / 8]uint64
}
