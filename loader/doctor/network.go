package doctor

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// threadSpace is the file of the calling OS thread's network namespace.
const threadSpace = "/proc/thread-self/ns/net"

// namedSpaces is the directory in which `ip netns` keeps the names.
const namedSpaces = "/run/netns"

// probeSpace names the network namespace that is checked. An interface is in one
// network namespace only.
func probeSpace() Probe {
	const name = "network namespace"
	here, err := os.Stat(threadSpace)
	if err != nil {
		return unknown(name, mountProc, "cannot be told: %v", err)
	}
	is := func(path string) bool {
		st, err := os.Stat(path)
		return err == nil && os.SameFile(here, st)
	}
	named, _ := filepath.Glob(filepath.Join(namedSpaces, "*"))
	if i := slices.IndexFunc(named, is); i >= 0 {
		return ok(name, "%q", filepath.Base(named[i]))
	}
	if is("/proc/1/ns/net") {
		return ok(name, "the first one; names are there for %d others", len(named))
	}
	if _, err := os.Stat("/proc/1/ns/net"); err != nil {
		return unknown(name, "readlink /proc/1/ns/net /proc/self/ns/net, as root and outside containers: do they agree?", "one without a name, perhaps the first: pid 1 may not be looked at")
	}
	return ok(name, "not the first one, and without a name")
}

// probeSysfs checks that /sys shows the present network namespace. A sysfs mount shows
// the network namespace in which the mount was made.
func probeSysfs() Probe {
	const name = "sysfs"
	other, err := sysfsShowsOther()
	switch {
	case err != nil:
		return unknown(name, "ls "+sysClassNet+"; ip link show: do they agree?", "cannot be told: %v", err)
	case other != "":
		return hint(name, "mount -t sysfs sysfs /sys in a mount namespace of its own, to read and set NAPI there", "/sys shows another network namespace: %s", other)
	}
	return ok(name, "shows this network namespace")
}

// sysClassNet is the directory in which sysfs lists interfaces.
const sysClassNet = "/sys/class/net"

// sysfsShowsOther compares the interfaces in /sys with those of this network namespace.
// It returns a description of the first difference, or "".
func sysfsShowsOther() (string, error) {
	links, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	entries, err := os.ReadDir(sysClassNet)
	if err != nil {
		return "", err
	}
	for _, l := range links {
		index, err := readNumber(filepath.Join(sysClassNet, l.Name, "ifindex"))
		if err != nil || index != uint64(l.Index) {
			return l.Name + " is not there", nil
		}
	}
	for _, e := range entries {
		known := slices.ContainsFunc(links, func(l net.Interface) bool { return l.Name == e.Name() })
		if _, err := os.Stat(filepath.Join(sysClassNet, e.Name(), "ifindex")); err == nil && !known {
			return e.Name() + " is not here", nil
		}
	}
	return "", nil
}

// probeFilters lists the packet filters, which a steered packet bypasses.
func probeFilters() Probe {
	const name = "packet filters"
	nft, err := nftTables()
	if err != nil {
		return untried(name, []string{capNetAdmin}, err)
	}
	var all []string
	if len(nft) > 0 {
		all = append(all, "nftables: "+strings.Join(nft, ", "))
	}
	for _, family := range []string{"ip", "ip6"} {
		text, err := os.ReadFile("/proc/thread-self/net/" + family + "_tables_names")
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return untried(name, []string{capNetAdmin}, err)
		}
		if tables := strings.Fields(string(text)); len(tables) > 0 {
			all = append(all, family+"tables: "+strings.Join(tables, ", "))
		}
	}
	if len(all) == 0 {
		return ok(name, "none here")
	}
	return hint(name, "nft list ruleset; iptables-save: do not rely on them for the ports that stag uses",
		"connections that were taken over bypass them (%s)", strings.Join(all, "; "))
}

// nftTables returns the family and name of each nftables table.
func nftTables() (names []string, err error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	answers, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	switch {
	case errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return nil, nil // the kernel has no nftables
	case err != nil:
		return nil, fmt.Errorf("list the tables of nftables: %w", err)
	}
	for _, m := range answers {
		if len(m) < nl.SizeofNfgenmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
		if err != nil {
			return nil, fmt.Errorf("list the tables of nftables: %w", err)
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.NFTA_TABLE_NAME {
				names = append(names, nftFamily(m[0])+" "+nl.BytesToString(a.Value))
			}
		}
	}
	return names, nil
}

func nftFamily(n uint8) string {
	switch n {
	case unix.NFPROTO_INET:
		return "inet"
	case unix.NFPROTO_IPV4:
		return "ip"
	case unix.NFPROTO_IPV6:
		return "ip6"
	case unix.NFPROTO_ARP:
		return "arp"
	case unix.NFPROTO_NETDEV:
		return "netdev"
	case unix.NFPROTO_BRIDGE:
		return "bridge"
	}
	return fmt.Sprintf("family %d", n)
}

// probeTCP checks the kernel's TCP settings. The kernel opens the connections, and the
// engine keeps the options that the kernel negotiated.
func probeTCP() Probe {
	const name = "TCP settings"
	var off []string
	for _, setting := range []struct{ file, without string }{
		{"tcp_timestamps", "no protection against old segments"},
		{"tcp_sack", "losses are found slowly"},
		{"tcp_window_scaling", "windows of at most 64 KiB"},
	} {
		value, err := readNumber("/proc/sys/net/ipv4/" + setting.file)
		if err != nil {
			return unknown(name, mountProc, "cannot be told: %v", err)
		}
		if value == 0 {
			off = append(off, fmt.Sprintf("%s is 0: %s", setting.file, setting.without))
		}
	}
	if len(off) > 0 {
		file, _, _ := strings.Cut(off[0], " ")
		return hint(name, "sysctl -w net.ipv4."+file+"=1", "%s", strings.Join(off, "; "))
	}
	idle, err := readNumber("/proc/sys/net/ipv4/tcp_keepalive_time")
	if err != nil {
		return unknown(name, mountProc, "cannot be told: %v", err)
	}
	return ok(name, "timestamps, SACK and window scaling on; keepalive after %d s where the program asks for it and says no time", idle)
}
