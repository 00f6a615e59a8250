package bpf

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"

	"github.com/cilium/ebpf"
)

// Version is the version of every layout in abi.h (STAG_VERSION).
const Version = 9

// Magic is the first word of a valid steering record.
const Magic = 0x53544700 | Version

// These are the names of the maps and of the program in the object. Pins have the same
// names.
const (
	MapFlows4  = steerMapFlows4
	MapFlows6  = steerMapFlows6
	MapSocks   = steerMapXsks
	MapLanes   = steerMapLanes
	MapStats   = steerMapStats
	MapConfig  = steerMapConfig
	MapOptions = steerMapOptions
	MapTable   = steerMapTpt
	MapPages   = steerMapAtt
	Program    = steerProgStagSteer
)

// Spec returns the compiled steering program and its maps. MapFlows4, MapFlows6, MapSocks,
// MapTable and MapPages have one entry each, so the caller must set their sizes. The
// program does not use MapTable and MapPages.
func Spec() (*ebpf.CollectionSpec, error) {
	spec, err := loadSteer()
	if err != nil {
		return nil, fmt.Errorf("read the steering program that this binary carries: %w", err)
	}
	return spec, nil
}

// Kind is the protocol that a flow carries, or the kind of packet that a record
// describes.
type Kind uint8

// These are the kinds (enum stag_kind).
const (
	KindRDMA  Kind = 1
	KindISCSI Kind = 2
	KindBytes Kind = 3 // any other upper-layer protocol
	KindICMP  Kind = 4 // in records only: an ICMP "too big" about a segment of the flow
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

// State is the progress of a flow's take-over by the engine. The program steers
// in every state.
type State uint8

// These are the states (enum stag_state).
const (
	Park   State = 1 // the connection is being taken over: the engine holds segments back
	Live   State = 2 // the engine runs the connection
	Orphan State = 3 // reserved: the name that tools give a flow whose engine died
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

// FlowID identifies a flow within its adapter. The low 20 bits are an index, and the
// upper 12 bits a generation.
type FlowID uint32

// FlowIndexBits is the number of index bits in a FlowID.
const FlowIndexBits = 20

// NewFlowID combines the low 20 bits of index and the low 12 bits of generation.
func NewFlowID(index, generation uint32) FlowID {
	return FlowID(generation<<FlowIndexBits | index&(1<<FlowIndexBits-1))
}

// Index returns the number of the flow's slot.
func (f FlowID) Index() uint32 { return uint32(f) & (1<<FlowIndexBits - 1) }

// Generation returns the number that distinguishes successive flows in the same slot.
func (f FlowID) Generation() uint32 { return uint32(f) >> FlowIndexBits }

// LogValue formats the id as the tools do: hexadecimal with 0x.
func (f FlowID) LogValue() slog.Value { return slog.StringValue(fmt.Sprintf("%#x", uint32(f))) }

// NoOwner is the Queue of a flow that has no engine yet. It is also the number of a
// lane that does not exist.
const NoOwner uint16 = 0xffff

// Lanes is the largest number of lanes of all adapters that share MapLanes (STAG_LANES).
const Lanes = 1024

// FlowKey identifies a connection of either address family: the addresses, ports and VLAN
// as arriving packets carry them. NewFlowKey makes a FlowKey. Keys can be compared with ==.
// InMap gives the key that the program looks up.
type FlowKey struct {
	Remote     [16]byte // IPv4 uses the first 4 octets, and the rest is zero
	Local      [16]byte
	RemotePort [2]byte // network order
	LocalPort  [2]byte // network order
	VLAN       uint16  // VLAN id, 0 for untagged
	Family     uint8   // 4 or 6
	Pad        uint8   // zero; without it a comparison would cost more
}

// Key4 is struct stag_flow_key4, the key of a flow in MapFlows4.
type Key4 struct {
	Remote, Local [4]byte
	Ports         [2][2]byte // remote and local, in network order
	VLAN          uint32
}

// Key6 is struct stag_flow_key6, the key of a flow in MapFlows6.
type Key6 struct {
	Remote, Local [16]byte
	Ports         [2][2]byte
	VLAN          uint32
}

// InMap returns the name of the map that has the flow, and the flow's key there: a Key4
// or a Key6.
func (k FlowKey) InMap() (name string, key any) {
	ports := [2][2]byte{k.RemotePort, k.LocalPort}
	if k.Family == 4 {
		return MapFlows4, Key4{[4]byte(k.Remote[:4]), [4]byte(k.Local[:4]), ports, uint32(k.VLAN)}
	}
	return MapFlows6, Key6{k.Remote, k.Local, ports, uint32(k.VLAN)}
}

// FlowKey returns the FlowKey of which InMap returns k.
func (k Key4) FlowKey() FlowKey {
	f := FlowKey{RemotePort: k.Ports[0], LocalPort: k.Ports[1], VLAN: uint16(k.VLAN), Family: 4}
	copy(f.Remote[:], k.Remote[:])
	copy(f.Local[:], k.Local[:])
	return f
}

// FlowKey returns the FlowKey of which InMap returns k.
func (k Key6) FlowKey() FlowKey {
	return FlowKey{k.Remote, k.Local, k.Ports[0], k.Ports[1], uint16(k.VLAN), 6, 0}
}

// NewFlowKey returns the key of the connection between two ends of one address family.
// It converts IPv4-mapped IPv6 addresses to IPv4 and drops zones, because packets have
// neither. vlan is 0 for untagged packets, otherwise 1 to 4094.
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

// RemoteAddr returns the peer's address and port.
func (k FlowKey) RemoteAddr() netip.AddrPort { return k.end(k.Remote, k.RemotePort) }

// LocalAddr returns the local address and port.
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
	Owner    uint16 // slot in MapLanes of the engine that owns the flow; in state Park, the slot of one engine of the adapter that takes the flow over
	PID      uint32 // process that made the entry
	Longest  uint32 // largest packet that the sockets take, in octets with the Ethernet header; 0 means no limit
	Created  uint64 // time at which the entry was made, in nanoseconds of CLOCK_MONOTONIC
	Orphaned uint64 // arrival time of the first packet after the owner's engine died, in nanoseconds of CLOCK_MONOTONIC; 0 means none
	Program  uint32 // number of the program on the flow's own port
	Queue    uint16 // queue of that port whose engine owns the flow, or NoOwner
	Reserved uint16
}

// Options is struct stag_options, the one entry of MapOptions.
type Options struct {
	// OrphanWait is how long the program drops a flow's packets after the flow's engine
	// has died, in nanoseconds. Then the program passes them to the kernel.
	OrphanWait uint64
}

// EntryLen is the size of an entry of MapTable (struct stag_entry), in octets.
const EntryLen = 64

// PageLen is the size of an entry of MapPages, in octets.
const PageLen = 8

// Config is struct stag_config, the one entry of MapConfig. It describes the
// layouts of the other maps.
type Config struct {
	Version    uint32
	Key6Size   uint16 // octets of a key of MapFlows6
	FlowSize   uint16 // octets
	RecordSize uint16 // octets
	Reasons    uint16 // number of entries in MapStats
	EntrySize  uint16 // octets of an entry of MapTable
	Key4Size   uint16 // octets of a key of MapFlows4
}

// Layout returns the Config of this build.
func Layout() Config {
	return Config{
		Version:    Version,
		Key6Size:   uint16(binary.Size(Key6{})),
		FlowSize:   uint16(binary.Size(Flow{})),
		RecordSize: RecordLen,
		Reasons:    uint16(Reasons),
		EntrySize:  EntryLen,
		Key4Size:   uint16(binary.Size(Key4{})),
	}
}
