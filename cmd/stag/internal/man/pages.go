package man

import "github.com/spf13/cobra"

// values has the placeholder for the value of a flag whose type does not say it.
var values = map[string]string{
	"interface": "IFACE", "ib-dev": "IFACE", "port-if": "IFACE", "instance": "NAME", "tune": "MODE", "write": "FILE",
	"flow": "ID", "kind": "KIND[,KIND]...", "listen": "ADDRESS:PORT", "address": "HOST", "out_json_file": "FILE",
	"connection": "TYPE", "pid": "PID", "port": "PORT",
}

// environment describes the variables that commands read.
var environment = map[string]string{
	"XDG_RUNTIME_DIR": "Below it are the sockets of an ordinary user's engines. Without it they are below TMPDIR.",
	"TMPDIR":          "Where the sockets of an ordinary user's engines are without XDG_RUNTIME_DIR (default /tmp).",
	"NO_COLOR":        "If it is set, there are no colours.",
	"TERM":            "If it is dumb, there are no colours, and the screen is not redrawn.",
	"GOMAXPROCS":      "How many processors to use at a time. If it is not set, the command chooses.",
}

// files describes the files that commands read or write.
var files = map[string]string{
	"/run/stag": "Which process uses which interface and queue, what settings were before --tune, and the sockets of " +
		"root's engines. What is left of processes that are gone is removed by the next command that meets it.",
	"/sys/fs/bpf/stag":      "What stag load keeps in the kernel, by instance: the program, its link and its maps.",
	"$XDG_RUNTIME_DIR/stag": "The sockets of an ordinary user's engines.",
}

// about is what a page has beyond the text of --help.
type about struct {
	environment, files []string
	related            []string // of stag without its section, of others with it
}

var (
	runs    = []string{"/run/stag", "$XDG_RUNTIME_DIR/stag"}
	sockets = []string{"XDG_RUNTIME_DIR", "TMPDIR"}
	pinned  = []string{"/run/stag", "/sys/fs/bpf/stag"}
	looks   = []string{"/run/stag", "$XDG_RUNTIME_DIR/stag", "/sys/fs/bpf/stag"}
)

// moreAbout returns the entry of a command. A command without an entry has that of the
// command above it, without the related pages.
func moreAbout(cmd *cobra.Command) about {
	for c := cmd; c != nil; c = c.Parent() {
		if a, ok := pages[c.Name()]; ok {
			if c != cmd {
				a.related = nil
			}
			return a
		}
	}
	return about{}
}

// pages is indexed by the name of the command.
var pages = map[string]about{
	"stag":       {related: []string{"ip(8)", "ethtool(8)"}},
	"doctor":     {environment: []string{"NO_COLOR", "TERM"}, files: pinned, related: []string{"load", "show", "ethtool(8)", "ip-link(8)"}},
	"load":       {files: pinned, related: []string{"unload", "doctor", "show", "ethtool(8)"}},
	"unload":     {files: pinned, related: []string{"load", "show"}},
	"show":       {environment: append(sockets, "TERM"), files: looks, related: []string{"dump", "metrics", "ss(8)", "rdma(8)", "ethtool(8)"}},
	"dump":       {environment: sockets, files: runs, related: []string{"show", "tcpdump(8)", "tshark(1)"}},
	"metrics":    {environment: sockets, files: looks, related: []string{"show"}},
	"ping":       {environment: sockets, files: runs, related: []string{"perf", "doctor", "rping(1)"}},
	"perf":       {environment: sockets, files: runs, related: []string{"ping", "bench", "doctor"}},
	"demo":       {environment: []string{"GOMAXPROCS"}, files: []string{"/run/stag"}, related: []string{"doctor", "bench"}},
	"bench":      {environment: []string{"GOMAXPROCS"}, files: []string{"/run/stag"}, related: []string{"perf", "demo"}},
	"completion": {related: []string{"bash(1)", "zsh(1)", "fish(1)"}},
	"version":    {related: []string{"doctor"}},
}
