package man

import (
	"strings"

	"github.com/spf13/cobra"
)

// values has the placeholder for the value of a flag, by the name of the flag. It has
// the flags whose type does not determine the placeholder.
var values = map[string]string{
	"interface": "IFACE", "ib-dev": "IFACE[,IFACE]...", "port-if": "IFACE[,IFACE]...", "instance": "NAME", "tune": "MODE", "write": "FILE",
	"flow": "ID", "kind": "KIND[,KIND]...", "listen": "ADDRESS:PORT", "address": "HOST", "out_json_file": "FILE",
	"connection": "TYPE", "pid": "PID", "port": "PORT",
	"name": "IQN", "portal": "ADDRESS[:PORT]", "lun": "N=MEDIUM", "chap-file": "FILE", "vpd": "PAGE", "initiator-name": "IQN",
	"bs": "SIZE", "skip": "SIZE", "seek": "SIZE", "length": "SIZE", "allow": "PATTERN", "allow-from": "PREFIX",
}

// environment describes the variables that commands read.
var environment = map[string]string{
	"XDG_RUNTIME_DIR": "The directory for the sockets of an ordinary user's engines. If it is not set, they are below TMPDIR.",
	"TMPDIR":          "The directory for these sockets if XDG_RUNTIME_DIR is not set (default /tmp).",
	"NO_COLOR":        "If it is set, the output has no colours.",
	"TERM":            "If it is dumb, the output has no colours, and the screen is not redrawn.",
	"LIBISCSI_CHAP_USERNAME, LIBISCSI_CHAP_PASSWORD":               "The name and secret by which this end logs in, if the URL has none.",
	"LIBISCSI_CHAP_TARGET_USERNAME, LIBISCSI_CHAP_TARGET_PASSWORD": "The name and secret that the target must prove, if the URL has none.",
	"GOMAXPROCS": "How many processors to use at a time. If it is not set, the command chooses.",
}

// files describes the files that commands read or write.
var files = map[string]string{
	"/run/stag": "Records of the processes that use interfaces and queues, the settings from before --tune, and the " +
		"sockets of root's engines. A command that finds the records of a dead process removes them.",
	"/sys/fs/bpf/stag":      "The objects that stag load has pinned, by instance: programs, links and maps.",
	"/run/stag/attach":      "A file for each process that has attached a disk, by which stag iscsi detach finds it.",
	"$XDG_RUNTIME_DIR/stag": "The sockets of an ordinary user's engines.",
}

// about has the parts of a page that the text of --help does not have.
type about struct {
	environment, files []string
	related            []string // related pages: a page of stag without its section, as in "load", and any other page with its section, as in "ss(8)"
}

var (
	runs    = []string{"/run/stag", "$XDG_RUNTIME_DIR/stag"}
	sockets = []string{"XDG_RUNTIME_DIR", "TMPDIR"}
	pinned  = []string{"/run/stag", "/sys/fs/bpf/stag"}
	looks   = []string{"/run/stag", "$XDG_RUNTIME_DIR/stag", "/sys/fs/bpf/stag"}
)

// moreAbout returns the entry of a command in pages. If there is none, it returns the
// entry of the parent command, without the related pages.
func moreAbout(cmd *cobra.Command) about {
	for c := cmd; c != nil; c = c.Parent() {
		if a, ok := pages[strings.TrimPrefix(c.CommandPath(), c.Root().Name()+" ")]; ok {
			if c != cmd {
				a.related = nil
			}
			return a
		}
	}
	return about{}
}

// pages is indexed by the command as it is typed after "stag".
var pages = map[string]about{
	"stag":    {related: []string{"ip(8)", "ethtool(8)"}},
	"doctor":  {environment: []string{"NO_COLOR", "TERM"}, files: pinned, related: []string{"load", "show", "ethtool(8)", "ip-link(8)"}},
	"load":    {files: pinned, related: []string{"unload", "doctor", "show", "ethtool(8)"}},
	"unload":  {files: pinned, related: []string{"load", "show"}},
	"show":    {environment: append(sockets, "TERM"), files: looks, related: []string{"dump", "drain", "metrics", "ss(8)", "rdma(8)", "ethtool(8)"}},
	"dump":    {environment: sockets, files: runs, related: []string{"show", "tcpdump(8)", "tshark(1)"}},
	"drain":   {environment: sockets, files: runs, related: []string{"show"}},
	"metrics": {environment: sockets, files: looks, related: []string{"show"}},
	"ping":    {environment: sockets, files: runs, related: []string{"perf", "doctor", "rping(1)"}},
	"perf":    {environment: sockets, files: runs, related: []string{"ping", "doctor"}},
	"iscsi": {environment: append([]string{"LIBISCSI_CHAP_USERNAME, LIBISCSI_CHAP_PASSWORD", "LIBISCSI_CHAP_TARGET_USERNAME, LIBISCSI_CHAP_TARGET_PASSWORD"}, sockets...),
		files: runs, related: []string{"show", "dump", "iscsi-ls(1)", "iscsi-inq(1)", "iscsi-perf(1)"}},
	"iscsi attach": {files: append([]string{"/run/stag/attach"}, runs...), related: []string{"mount(8)", "fstab(5)"}},
	"iscsi detach": {files: []string{"/run/stag/attach"}},
	"iscsi nbd":    {files: runs, related: []string{"nbd(8)", "nbdcopy(1)", "qemu-img(1)"}},
	"demo":         {environment: []string{"GOMAXPROCS"}, files: []string{"/run/stag"}, related: []string{"doctor", "ping"}},
	"completion":   {related: []string{"bash(1)", "zsh(1)", "fish(1)"}},
	"version":      {related: []string{"doctor"}},
}
