package main

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/cmd/stag/internal/doctor"
	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/loader/pair"
	"github.com/stag-rdma/stag/offload/nic"
	"github.com/stag-rdma/stag/test/need"
)

func newPair(t *testing.T, c pair.Config) *pair.Pair {
	t.Helper()
	need.Root(t)
	need.Netns(t)
	need.XDP(t)
	p, err := pair.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// in runs f inside side A's namespace.
func in(t *testing.T, p *pair.Pair, f func() error) {
	t.Helper()
	if err := p.Do(pair.A, f); err != nil {
		t.Fatal(err)
	}
}

// inside runs cmd in side A's namespace.
func inside(t *testing.T, p *pair.Pair, cmd *exec.Cmd) (r result) {
	t.Helper()
	in(t, p, func() error { r = run(t, cmd); return nil })
	return r
}

// misfortune is something that the doctor must find.
type misfortune struct {
	config pair.Config
	spoil  func(*testing.T, *pair.Pair, string) // in A's namespace, with A's interface
	args   []string                             // beside the interface
	link   string                               // another interface than A's
	guest  bool                                 // asked by a user without rights
	code   int
	failed string // the requirement that is not met; "": none, or the interface itself
}

var misfortunes = map[string]misfortune{
	"well":      {},
	"queues":    {args: []string{"--queues", "3"}, code: exitFailed, failed: "queues"},
	"mtu":       {config: pair.Config{MTU: 9000}, code: exitFailed, failed: "MTU"},
	"chunk":     {config: pair.Config{MTU: 3000}, args: []string{"--chunk", "2048"}, code: exitFailed, failed: "MTU"},
	"generic":   {args: []string{"--generic"}, spoil: spoilGRO, code: exitFailed, failed: "driver mode"},
	"down":      {spoil: spoilDown, code: exitFailed, failed: "link"},
	"foreign":   {spoil: spoilForeign, code: exitFailed, failed: "XDP hook"},
	"stag":      {spoil: spoilStag},
	"checksums": {spoil: spoilChecksums, link: "near", code: exitFailed, failed: "checksums of the veth peer"},
	"missing":   {link: "eth77", code: exitFailed},
	"rights":    {guest: true, code: exitFailed, failed: "capabilities"},
}

func spoilGRO(t *testing.T, _ *pair.Pair, name string) { must(t, loader.SetGRO(name, true)) }

func spoilDown(t *testing.T, _ *pair.Pair, name string) {
	l, err := netlink.LinkByName(name)
	must(t, err)
	must(t, netlink.LinkSetDown(l))
}

// spoilForeign puts somebody else's program on the hook.
func spoilForeign(t *testing.T, p *pair.Pair, _ string) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "somebody", Type: ebpf.XDP, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
	})
	must(t, err)
	t.Cleanup(func() { prog.Close() })
	hook, err := link.AttachXDP(link.XDPOptions{Program: prog, Interface: p.Ends[pair.A].Index})
	must(t, err)
	t.Cleanup(func() { hook.Close() })
}

// spoilStag is no misfortune: stag itself runs there.
func spoilStag(t *testing.T, _ *pair.Pair, name string) {
	n, err := nic.Open(nic.Config{Link: name})
	must(t, err)
	t.Cleanup(func() { must(t, n.Close()) })
}

// spoilChecksums makes a veth with both ends in one namespace and the offloads
// that veth has by default.
func spoilChecksums(t *testing.T, _ *pair.Pair, _ string) {
	near := netlink.NewLinkAttrs()
	near.Name = "near"
	v := netlink.NewVeth(near)
	v.PeerName = "far"
	must(t, netlink.LinkAdd(v))
	for _, name := range []string{"near", "far"} {
		l, err := netlink.LinkByName(name)
		must(t, err)
		must(t, netlink.LinkSetUp(l))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDoctor has the doctor look at each misfortune, as text and as JSON.
func TestDoctor(t *testing.T) {
	for name, m := range misfortunes {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, m.config)
			near := p.Ends[pair.A].Name
			if m.spoil != nil {
				in(t, p, func() error { m.spoil(t, p, near); return nil })
			}
			if m.link != "" {
				near = m.link
			}
			ask := func(more ...string) result {
				cmd := command(t, append(append([]string{"doctor", near}, m.args...), more...)...)
				if m.guest {
					defer lowMemlock(t)()
					as(cmd)
				}
				return inside(t, p, cmd)
			}
			text := ask()
			text.ends(t, m.code)
			golden(t, "doctor_"+name, mask(text.stdout))
			report := decode[doctor.Report](t, ask("--json"), m.code)
			agree(t, report, text.stdout)
			if m.failed != "" && !failed(report, m.failed) || report.OK != (m.code == 0) {
				t.Errorf("%q should have failed, exit code %d: %+v", m.failed, m.code, report)
			}
		})
	}
}

// lowMemlock is a limit that the frames do not fit in, and undoes it.
func lowMemlock(t *testing.T) (undo func()) {
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was))
	low := was
	low.Cur = 8 << 20
	must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &low))
	return func() { must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was)) }
}

// decode reads all of a command's standard output as one T, with no field that
// T does not have.
func decode[T any](t *testing.T, r result, code int) (v T) {
	t.Helper()
	r.ends(t, code)
	d := json.NewDecoder(strings.NewReader(r.stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v\n%s", err, r.stdout)
	}
	if d.More() {
		t.Errorf("more than one value: %s", r.stdout)
	}
	return v
}

// agree demands that text says all that the report does.
func agree(t *testing.T, r doctor.Report, text string) {
	t.Helper()
	for _, row := range append(r.Host, r.Link...) {
		line := regexp.MustCompile(fmt.Sprintf(`(?m)^  %s +%s +\S`, regexp.QuoteMeta(row.Name), row.Status))
		if !line.MatchString(text) || !strings.Contains(text, row.Fix) {
			t.Errorf("not in the text: %+v\n%s", row, text)
		}
	}
	if !strings.Contains(text, r.Error) {
		t.Errorf("not in the text: %s", r.Error)
	}
}

func failed(r doctor.Report, name string) bool {
	for _, row := range append(r.Host, r.Link...) {
		if row.Name == name && row.Status == doctor.Fail && row.Fix != "" {
			return true
		}
	}
	return false
}

// TestDoctorOfHost: without an interface it looks at the host, and says which
// interfaces there are.
func TestDoctorOfHost(t *testing.T) {
	p := newPair(t, pair.Config{})
	text := inside(t, p, command(t, "doctor"))
	text.ends(t, 0)
	golden(t, "doctor", mask(text.stdout))
	r := decode[doctor.Report](t, inside(t, p, command(t, "doctor", "--json")), 0)
	agree(t, r, text.stdout)
	list := strings.Join(r.Interfaces, ", ")
	if !strings.Contains(list, p.Ends[pair.A].Name) || strings.Contains(list, "lo,") || !strings.Contains(text.stdout, list) {
		t.Errorf("interfaces %s, and in the text\n%s", list, text.stdout)
	}
}

// TestDoctorLeavesNothing: what it tried is gone, and a demonstration runs.
func TestDoctorLeavesNothing(t *testing.T) {
	p := newPair(t, pair.Config{})
	before := tracesOf(t)
	inside(t, p, command(t, "doctor", p.Ends[pair.A].Name)).ends(t, 0)
	if after := tracesOf(t); after != before {
		t.Errorf("%v before, %v after", before, after)
	}
	in(t, p, func() error { spoilStag(t, p, p.Ends[pair.A].Name); return nil })
}

// TestDoctorAsAnyone must work whoever runs the tests.
func TestDoctorAsAnyone(t *testing.T) {
	r := decode[doctor.Report](t, result{stdout: run(t, command(t, "doctor", "--json")).stdout}, 0)
	if len(r.Host) == 0 || r.OK != (r.Failures() == 0) {
		t.Errorf("%+v", r)
	}
}
