package bpf

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/cilium/ebpf"
)

// Version is the version of every layout in abi.h (STAG_VERSION).
const Version = 7

// Magic is the first word of a steering record that may be believed.
const Magic = 0x53544700 | Version

// Names in the object, and of the pins.
const (
	MapFlows   = steerMapFlows
	MapSocks   = steerMapXsks
	MapLanes   = steerMapLanes
	MapStats   = steerMapStats
	MapConfig  = steerMapConfig
	MapOptions = steerMapOptions
	MapTable   = steerMapTpt
	MapPages   = steerMapAtt
	Program    = steerProgStagSteer
)

// Spec is the steering program and its maps, as compiled. The caller sets the
// sizes of MapFlows, MapSocks, MapTable and MapPages, which have one entry each.
// The program needs neither of the last two.
func Spec() (*ebpf.CollectionSpec, error) {
	spec, err := loadSteer()
	if err != nil {
		return nil, fmt.Errorf("read the steering program that this binary carries: %w", err)
	}
	return spec, nil
}

// Kind is what a flow carries, or what kind of packet a record describes.
type Kind uint8

// Kinds (enum stag_kind).
const (
	KindRDMA  Kind = 1
	KindISCSI Kind = 2
	KindBytes Kind = 3 // any other upper-layer protocol
	KindICMP  Kind = 4 // of records only: "too big" about a segment of the flow
)

func (k Kind) String() string {
	switch k {
	case KindRDMA:
		return "rdma"
	case KindISCSI:
		return "iscsi"
	case KindBytes:
		return "bytes"
	case KindICMP:
		return "icmp"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// State is how far a flow has moved into the engine. The program steers in
// every state.
type State uint8

// States (enum stag_state).
const (
	Park   State = 1 // being taken over: the engine holds segments back
	Live   State = 2 // the engine is the connection
	Orphan State = 3 // reserved: what tools call a flow whose engine died
)

func (s State) String() string {
	switch s {
	case Park:
		return "park"
	case Live:
		return "live"
	case Orphan:
		return "orphan"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// FlowID names a flow, unique per adapter: a 20-bit index below a 12-bit
// generation.
type FlowID uint32

// FlowIndexBits is how many bits of a FlowID are its index.
const FlowIndexBits = 20

// NewFlowID joins an index and a generation, of which the low 20 and 12 bits
// count.
func NewFlowID(index, generation uint32) FlowID {
	return FlowID(generation<<FlowIndexBits | index&(1<<FlowIndexBits-1))
}

// Index is the flow's slot.
func (f FlowID) Index() uint32 { return uint32(f) & (1<<FlowIndexBits - 1) }

// Generation tells users of the same slot apart.
func (f FlowID) Generation() uint32 { return uint32(f) >> FlowIndexBits }

// LogValue is the id as the tools write it.
func (f FlowID) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf("%#x", uint32(f))) }

// NoOwner is the Owner, and the Queue, of a flow that no lane's engine owns yet.
const NoOwner uint16 = 0xffff

// Lanes is how many lanes an adapter can have (STAG_LANES).
const Lanes = 1024

// FlowKey is struct stag_flow_key: the ends and VLAN of a connection as packets
// that arrive have them. Make it with NewFlowKey; it can be compared.
type FlowKey struct {
	Remote     [16]byte // IPv4: the first 4 octets, the rest zero
	Local      [16]byte
	RemotePort [2]byte // network order
	LocalPort  [2]byte // network order
	VLAN       uint16  // VLAN id, 0 for untagged
	Family     uint8   // 4 or 6
	Pad        uint8   // zero
}

// NewFlowKey is the key of the connection between two ends, which must be of
// one family. IPv4 addresses mapped into IPv6 count as IPv4, and a zone is left
// out, as packets have neither. vlan is 0 for untagged packets.
func NewFlowKey(remote, local netip.AddrPort, vlan uint16) (FlowKey, error) {
	r, l := remote.Addr().Unmap(), local.Addr().Unmap()
	if !r.IsValid() || !l.IsValid() || r.Is4() != l.Is4() {
		return FlowKey{}, fmt.Errorf("flow between %v and %v: want two addresses of one family", remote, local)
	}
	if vlan > 4094 {
		return FlowKey{}, fmt.Errorf("VLAN %d: want 1 to 4094, or 0 for untagged", vlan)
	}
	k := FlowKey{VLAN: vlan, Family: 6}
	if r.Is4() {
		k.Family = 4
	}
	copy(k.Remote[:], r.AsSlice())
	copy(k.Local[:], l.AsSlice())
	binary.BigEndian.PutUint16(k.RemotePort[:], remote.Port())
	binary.BigEndian.PutUint16(k.LocalPort[:], local.Port())
	return k, nil
}

// RemoteAddr is the peer's end.
func (k FlowKey) RemoteAddr() netip.AddrPort { return k.end(k.Remote, k.RemotePort) }

// LocalAddr is our end.
func (k FlowKey) LocalAddr() netip.AddrPort { return k.end(k.Local, k.LocalPort) }

func (k FlowKey) end(addr [16]byte, port [2]byte) netip.AddrPort {
	ip := netip.AddrFrom16(addr)
	if k.Family == 4 {
		ip = netip.AddrFrom4([4]byte(addr[:4]))
	}
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port[:]))
}

func (k FlowKey) String() string {
	s := fmt.Sprintf("%v from %v", k.LocalAddr(), k.RemoteAddr())
	if k.VLAN != 0 {
		s += fmt.Sprintf(" vlan %d", k.VLAN)
	}
	return s
}

// Flow is struct stag_flow, the value of a flow entry.
type Flow struct {
	ID       FlowID
	Kind     Kind
	State    State
	Owner    uint16 // lane whose engine owns the flow, or NoOwner
	PID      uint32 // process that made the entry
	Longest  uint32 // octets of the longest packet that the sockets take, Ethernet header included; 0: any
	Created  uint64 // CLOCK_MONOTONIC, nanoseconds
	Orphaned uint64 // CLOCK_MONOTONIC, nanoseconds, at the first packet that found the owner's engine gone; 0: none
	Program  uint32 // number of the program on the flow's own port
	Queue    uint16 // of that port, whose engine owns the flow, or NoOwner
	Reserved uint16
}

// Options is struct stag_options, the one entry of MapOptions.
type Options struct {
	// OrphanWait is how long, in nanoseconds, the program keeps a flow's packets
	// from the kernel once they find the engine gone. Then it gives the flow up.
	OrphanWait uint64
}

// EntryLen is the length in octets of struct stag_entry, an entry of MapTable.
const EntryLen = 64

// Config is struct stag_config, the one entry of MapConfig: which layouts the
// maps beside it have.
type Config struct {
	Version    uint32
	KeySize    uint16 // octets
	FlowSize   uint16 // octets
	RecordSize uint16 // octets
	Reasons    uint16 // entries in MapStats
	EntrySize  uint16 // octets, of MapTable
	Reserved   uint16
}

// Layout is the Config of this build.
func Layout() Config {
	return Config{
		Version:    Version,
		KeySize:    uint16(binary.Size(FlowKey{})),
		FlowSize:   uint16(binary.Size(Flow{})),
		RecordSize: RecordLen,
		Reasons:    uint16(Reasons),
		EntrySize:  EntryLen,
	}
}
