//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// Addresses of the bond in the guest, and of the host.
const bondGuest, bondHost = "198.51.100.21", "198.51.100.1"

// bondSeconds is the duration of the traffic.
const bondSeconds = 25

// bondStep is a change to the bond in the guest, after which the connection must be at a
// member.
type bondStep struct {
	do func(r *rig)
	to string
}

// bonds are the rows. Connections are at eth1 first.
var bonds = []struct {
	mode  string
	steps []bondStep
	cause []string // every one of them must occur
}{
	{"active-backup", []bondStep{
		{func(r *rig) { r.activate("eth2") }, "eth2"},
		{func(r *rig) { r.link(bondTaps[1], false) }, "eth1"},
		{func(r *rig) { r.link(bondTaps[1], true); r.activate("eth2") }, "eth2"},
		{func(r *rig) { r.activate("eth1") }, "eth1"},
	}, []string{"route", "carrier"}},
	{"balance-xor", []bondStep{
		{func(r *rig) { r.link(bondTaps[0], false) }, "eth2"},
		{func(r *rig) { r.link(bondTaps[0], true); r.running("eth1"); r.link(bondTaps[1], false) }, "eth1"},
		{func(r *rig) { r.link(bondTaps[1], true); r.running("eth2"); r.link(bondTaps[0], false) }, "eth2"},
		{func(r *rig) { r.link(bondTaps[0], true); r.running("eth1"); r.link(bondTaps[1], false) }, "eth1"},
	}, []string{"carrier"}},
}

// TestBond runs stag in the guest on a bond of two interfaces, with verified Sends in both
// directions. The connection follows the bond when its active slave changes, and when the
// link of its member is cut.
func TestBond(t *testing.T) {
	for _, b := range bonds {
		row(t, b.mode+", stag in the guest", about{"bonding, stag", fmt.Sprintf("send_bw -b -D %d", bondSeconds)}, func(r *rig) {
			r.bond(b.mode)
			server := r.serves(r.stag("perf", "send_bw", "-b", "--verify", "-d", r.port(), "-D", fmt.Sprint(bondSeconds)), "Waiting for client")
			client := r.startInGuest(fmt.Sprintf("/host/stag perf send_bw -v -b --verify -d bond0 -D %d %s", bondSeconds, bondHost))
			r.goesOn(client)
			for _, step := range b.steps {
				before := r.moves(client, step.to)
				step.do(r)
				r.while(client, "the connection was at "+step.to, func() bool { return r.moves(client, step.to) > before })
				r.goesOn(client)
			}
			out := r.ended(client)
			for _, cause := range b.cause {
				if !strings.Contains(out, "cause="+cause+" ") {
					r.Errorf("no connection has moved because of %s", cause)
				}
			}
			if r.Failed() || testing.Verbose() {
				r.Logf("%s", out)
			}
			r.succeeds(server, nil)
		})
	}
}

// bond makes a bond of the guest's other interfaces.
func (r *rig) bond(mode string) {
	r.Helper()
	r.storage()
	r.Must(copyFile(r.bin, filepath.Join(r.shared, "stag")))
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: netip.MustParseAddr(bondHost).AsSlice(), Mask: net.CIDRMask(24, 32)}}
	on := &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: r.pair.Ends[pair.A].Index}}
	r.Must(r.pair.Do(pair.A, func() error { return netlink.AddrReplace(on, addr) }))
	r.Cleanup(func() {
		if err := r.pair.Do(pair.A, func() error { return netlink.AddrDel(on, addr) }); err != nil {
			r.Errorf("remove %s: %v", bondHost, err)
		}
		if !r.guest.alive() {
			return
		}
		for _, tap := range bondTaps {
			r.link(tap, true)
		}
		r.inGuest(ip + " link del bond0; " + ip + " link set eth1 down; " + ip + " link set eth2 down")
	})
	r.inGuest("modprobe tcp_diag && modprobe bonding max_bonds=0 && " + ip + " link add bond0 type bond mode " + mode + " miimon 100 && " +
		ip + " link set eth1 master bond0 && " + ip + " link set eth2 master bond0 && " +
		ip + " link set bond0 up && " + ip + " addr add " + bondGuest + "/24 dev bond0")
	for _, member := range []string{"eth2", "eth1"} {
		if r.running(member); mode == "active-backup" {
			r.activate(member)
		}
	}
	if said, _, err := r.guest.run("/host/stag doctor -v eth1", patience); err != nil || !strings.Contains(said, "bond0, a bond") {
		r.Errorf("%v, stag doctor eth1 says\n%s", err, said)
	}
}

// running waits until the guest's bond has seen that a member has its link.
func (r *rig) running(member string) {
	r.Helper()
	r.inGuest("for i in $(seq 600); do " + ip + " -d link show " + member + " | grep -q 'mii_status UP' && exit 0; usleep 50000; done; exit 1")
}

// activate makes a member the active slave. The bond must have seen the member's link.
func (r *rig) activate(member string) {
	r.Helper()
	r.running(member)
	r.inGuest(ip + " link set bond0 type bond active_slave " + member)
}

// moves returns how many moves to a member the program in the guest has logged.
func (r *rig) moves(client *job, to string) int {
	r.Helper()
	out, _, err := r.guest.run("grep 'flow moved' "+client.file, patience)
	r.Must(err)
	return strings.Count(out, " to="+to+" ")
}

// while waits until a condition is true. The job must go on until then.
func (r *rig) while(client *job, what string, condition func() bool) {
	r.Helper()
	for end := time.Now().Add(patience); !condition(); time.Sleep(20 * time.Millisecond) {
		_, ended, err := r.guest.run("[ -e "+client.file+".end ]", patience)
		r.Must(err)
		if ended == 0 || time.Now().After(end) {
			out, _, _ := r.guest.run("cat "+client.file, patience)
			r.Fatalf("%q has ended, or %v has passed, before %s:\n%s", client.command, patience, what, out)
		}
	}
}

// goesOn waits until the bond has carried a piece of traffic.
func (r *rig) goesOn(client *job) {
	r.Helper()
	end := r.passed(bondTaps[:]...) + 1<<20
	r.while(client, "the traffic went on", func() bool { return r.passed(bondTaps[:]...) >= end })
}

// link cuts the link of one of the guest's interfaces, or gives it back.
func (r *rig) link(tap string, up bool) {
	r.Helper()
	c, err := net.Dial("unix", r.guest.monitor)
	r.Must(err)
	defer c.Close()
	r.Must(c.SetDeadline(time.Now().Add(patience)))
	answers := json.NewDecoder(c)
	var said map[string]any
	r.Must(answers.Decode(&said)) // the greeting
	for _, command := range []string{
		`{"execute": "qmp_capabilities"}`,
		fmt.Sprintf(`{"execute": "set_link", "arguments": {"name": %q, "up": %v}}`, tap, up),
	} {
		_, err := fmt.Fprintln(c, command)
		r.Must(err)
		for said = nil; said["return"] == nil; { // events may come before the answer
			said = nil
			r.Must(answers.Decode(&said))
			if said["error"] != nil {
				r.Fatalf("%s: %v", command, said["error"])
			}
		}
	}
}
