package main

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/afxdp"
	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
)

// misfortune is a fault that doctor must find.
type misfortune struct {
	config pair.Config
	spoil  func(*testing.T, *pair.Pair, string) // causes the fault; it runs in A's namespace and gets A's interface
	args   []string                             // arguments in addition to the interface
	link   string                               // name of the interface to check, if it is not A's
	guest  bool                                 // run doctor as a user without rights
	caps   []uintptr                            // capabilities of that user
	wrap   func(*testing.T, *exec.Cmd)          // changes the command that runs doctor
	code   int
	failed string // expected requirement that is not met; "": none, or the interface cannot be used
	hinted string // expected row with a hint, and the text of the hint
	says   string
}

var misfortunes = map[string]misfortune{
	"well":      {},
	"queues":    {args: []string{"--queues", "3"}, code: exitFailed, failed: "queues"},
	"mtu":       {config: pair.Config{MTU: 9000}},
	"chunk":     {config: pair.Config{MTU: 3000}, args: []string{"--chunk", "2048"}},
	"generic":   {args: []string{"--generic"}, spoil: spoilGRO, code: exitFailed, failed: "driver mode"},
	"down":      {spoil: spoilDown, code: exitFailed, failed: "link"},
	"foreign":   {spoil: spoilForeign, code: exitFailed, failed: "XDP hook"},
	"stag":      {spoil: spoilStag, code: exitFailed, failed: "XDP hook"},
	"checksums": {spoil: spoilChecksums, link: "near"},
	"missing":   {link: "eth77", code: exitFailed, failed: "link"},
	"rights":    {guest: true, code: exitFailed, failed: "capabilities"},
	"memlock":   {guest: true, caps: engineCaps, code: exitFailed, failed: "locked memory"},
	"allowed":   {guest: true, caps: append(slices.Clone(engineCaps), unix.CAP_IPC_LOCK)},
	"busy":      {spoil: spoilQueue, code: exitFailed, failed: "queue sockets"},
	"elsewhere": {spoil: spoilElsewhere, link: "away", code: exitFailed, failed: "link"},
	"farsums":   {config: pair.Config{ChecksumOffload: true}, spoil: spoilFar},
	"bridge":    {spoil: spoilBridge, code: exitFailed, failed: "master"},
	"nobpffs":   {wrap: withoutBPFFS, hinted: "BPF file system", says: "mount -t bpf"},
	"privs":     {guest: true, wrap: withoutNewPrivs, code: exitFailed, failed: "capabilities", hinted: "confinement", says: "no_new_privs is set"},
	"settings":  {spoil: spoilSettings, hinted: "TCP settings", says: "tcp_sack"},
}

// engineCaps is what ping and perf on an interface need.
var engineCaps = []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_BPF}

func spoilGRO(t *testing.T, _ *pair.Pair, name string) { rig.Must(t, loader.SetGRO(name, true)) }

func spoilDown(t *testing.T, _ *pair.Pair, name string) {
	l, err := netlink.LinkByName(name)
	rig.Must(t, err)
	rig.Must(t, netlink.LinkSetDown(l))
}

// spoilForeign attaches an XDP program that is not stag's.
func spoilForeign(t *testing.T, p *pair.Pair, _ string) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "somebody", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	rig.Must(t, err)
	t.Cleanup(func() { prog.Close() })
	hook, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: p.Ends[pair.A].Index})
	rig.Must(t, err)
	t.Cleanup(func() { hook.Close() })
}

// spoilStag spoils nothing: stag itself runs on the interface.
func spoilStag(t *testing.T, _ *pair.Pair, name string) {
	n, err := nic.Open(nic.Config{Link: name})
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, n.Close()) })
}

// spoilChecksums makes a veth with both ends in one namespace. It leaves the offloads on
// that veth has by default.
func spoilChecksums(t *testing.T, _ *pair.Pair, _ string) {
	near := netlink.NewLinkAttrs()
	near.Name = "near"
	v := netlink.NewVeth(near)
	v.PeerName = "far"
	rig.Must(t, netlink.LinkAdd(v))
	for _, name := range []string{"near", "far"} {
		l, err := netlink.LinkByName(name)
		rig.Must(t, err)
		rig.Must(t, netlink.LinkSetUp(l))
	}
}

// spoilQueue binds a socket of this process to the queue, without a claim file.
func spoilQueue(t *testing.T, p *pair.Pair, name string) {
	c := afxdp.Config{IfName: name, RxFrames: 64, TxFrames: 64, RxRing: 64, TxRing: 64, ZeroCopy: afxdp.ZeroCopyOff}
	size, err := c.RegionSize()
	rig.Must(t, err)
	arena, err := afxdp.NewArena(size)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, arena.Close()) })
	region, err := arena.Cut(size)
	rig.Must(t, err)
	q, err := afxdp.Open(c, region)
	rig.Must(t, err)
	t.Cleanup(func() { rig.Must(t, q.Close()) })
}

// resident keeps a process in B's namespace. Without a process the namespace has no path.
func resident(t *testing.T, p *pair.Pair) {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	rig.Must(t, p.Do(pair.B, cmd.Start))
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
}

// spoilElsewhere asks for an interface that is in B's namespace.
func spoilElsewhere(t *testing.T, p *pair.Pair, _ string) {
	resident(t, p)
	rig.Must(t, p.Do(pair.B, func() error {
		at := netlink.NewLinkAttrs()
		at.Name = "away"
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: at})
	}))
}

// spoilFar only starts a process in B's namespace. B's interface keeps its checksum offloads.
func spoilFar(t *testing.T, p *pair.Pair, _ string) { resident(t, p) }

func spoilBridge(t *testing.T, _ *pair.Pair, name string) {
	at := netlink.NewLinkAttrs()
	at.Name = "bridge"
	bridge := &netlink.Bridge{LinkAttrs: at}
	rig.Must(t, netlink.LinkAdd(bridge))
	l, err := netlink.LinkByName(name)
	rig.Must(t, err)
	rig.Must(t, netlink.LinkSetMaster(l, bridge))
}

// spoilSettings turns off the TCP options that the kernel would negotiate with a peer.
func spoilSettings(t *testing.T, _ *pair.Pair, _ string) {
	rig.Must(t, os.WriteFile("/proc/sys/net/ipv4/tcp_sack", []byte("0"), 0))
}

// withoutBPFFS hides the BPF file system from cmd only.
func withoutBPFFS(t *testing.T, cmd *exec.Cmd) {
	need.Tool(t, "sh", "umount")
	within(cmd, "sh", "-c", `umount /sys/fs/bpf && exec "$0" "$@"`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
}

func withoutNewPrivs(t *testing.T, cmd *exec.Cmd) {
	need.Tool(t, "setpriv")
	within(cmd, "setpriv", "--no-new-privs")
}

// within changes cmd so that another program runs it.
func within(cmd *exec.Cmd, by ...string) {
	path, err := exec.LookPath(by[0])
	if err != nil {
		cmd.Err = err
	}
	cmd.Path, cmd.Args = path, append(by, append([]string{binary}, cmd.Args[1:]...)...)
}
