package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stag-rdma/stag/cmd/stag/internal/doctor"
	"github.com/stag-rdma/stag/cmd/stag/internal/version"
	"github.com/stag-rdma/stag/test/rig"
)

// commands returns root and all commands below it, hidden ones included.
func commands(root *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{root}
	for _, c := range root.Commands() {
		list = append(list, commands(c)...)
	}
	return list
}

// TestHelpIsThere: every command has a long description, examples with the command, and a text for each flag.
func TestHelpIsThere(t *testing.T) {
	stag := root()
	stag.InitDefaultHelpCmd() // Execute does the same
	all := commands(stag)
	if len(all) < 5 {
		t.Fatalf("only %d commands", len(all))
	}
	for _, c := range all {
		path := c.CommandPath()
		if c.Short == "" || c.Long == "" || c.Example == "" {
			t.Errorf("%s: Short %q, Long %q, Example %q: write all three", path, c.Short, c.Long, c.Example)
		}
		if !strings.Contains(c.Example, path) {
			t.Errorf("the examples of %s do not use it: %q", path, c.Example)
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s: say what it is for", path, f.Name)
			}
		})
	}
}

// versionLine matches a line of which only the first word is the same on every machine.
var versionLine = regexp.MustCompile(`(?m)^(stag|commit |go     |kernel ) .*$`)

// TestVersion: the text and the JSON agree, and describe this build.
func TestVersion(t *testing.T) {
	r := run(t, command(t, "version"))
	r.ends(t, 0)
	golden(t, "version", versionLine.ReplaceAllString(r.stdout, "$1 ..."))
	answer := run(t, command(t, "version", "--json"))
	schema(t, "version", answer.stdout)
	v := decode[version.Info](t, answer, 0)
	for _, part := range []string{v.Version, v.Commit, v.Kernel, runtime.Version()} {
		if !strings.Contains(r.stdout, part) {
			t.Errorf("%q is not in %q", part, r.stdout)
		}
	}
	out, err := exec.Command("uname", "-r").Output()
	rig.Must(t, err)
	if v.Kernel != strings.TrimSpace(string(out)) || v.Go != runtime.Version() || len(v.Modules) == 0 {
		t.Errorf("%+v", v)
	}
	if r := run(t, command(t, "version", "-v")); !strings.Contains(r.stdout, "module  github.com/spf13/cobra ") {
		t.Errorf("printed %q", r.stdout)
	}
}

// TestManualPages: every command has a page that names its flags and shows its examples. A second run writes the same
// pages.
func TestManualPages(t *testing.T) {
	dir, again := filepath.Join(t.TempDir(), "man"), t.TempDir()
	for _, d := range []string{dir, again} {
		r := run(t, command(t, "man", "-o", d))
		r.ends(t, 0)
		if r.stdout+r.stderr != "" {
			t.Errorf("printed %q and %q", r.stdout, r.stderr)
		}
	}
	pages := 0
	for _, c := range commands(root()) {
		if c.Hidden {
			continue
		}
		pages++
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".8"
		page, err := os.ReadFile(filepath.Join(dir, name))
		rig.Must(t, err)
		same, err := os.ReadFile(filepath.Join(again, name))
		rig.Must(t, err)
		if string(page) != string(same) {
			t.Errorf("%s is not the same when made again", name)
		}
		isManualPage(t, name, string(page))
		text := plain(string(page))
		if odd := oddOption.FindAllString(text, -1); odd != nil {
			t.Errorf("%s writes %q, and no user would", name, odd)
		}
		c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !strings.Contains(text, "--"+f.Name) {
				t.Errorf("%s does not name --%s", name, f.Name)
			}
		})
		for _, line := range strings.Split(c.Long, "\n") {
			if strings.HasPrefix(line, " ") && !strings.Contains(text, "\n"+line+"\n") {
				t.Errorf("%s has lost the line of a table: %q", name, line)
			}
		}
		for _, line := range strings.Split(c.Example, "\n") {
			if !strings.Contains(text, strings.TrimSpace(line)) {
				t.Errorf("%s does not show %q", name, line)
			}
		}
	}
	for name, words := range map[string][]string{
		"stag-load.8": {"stag-unload(8)", "\n.SH FILES\n", "/sys/fs/bpf/stag", "--tune[=MODE]"},
		"stag-show.8": {"\n.SH ENVIRONMENT\n", "XDG_RUNTIME_DIR", "-w, --watch SECONDS"},
		"stag-perf.8": {"\n.SH COMMANDS\n", "stag-perf-write_bw(8)"},

		"stag-iscsi.8":        {"stag-iscsi-target(8)", "LIBISCSI_CHAP_PASSWORD", "iscsi-perf(1)"},
		"stag-iscsi-target.8": {"--lun N=MEDIUM", "--chap-file FILE", "/run/stag"},
		"stag-iscsi-dd.8":     {"--bs SIZE"},
	} {
		page, err := os.ReadFile(filepath.Join(dir, name))
		rig.Must(t, err)
		contains(t, plain(string(page)), words...)
	}
	list, err := fs.Glob(os.DirFS(dir), "*")
	rig.Must(t, err)
	if len(list) != pages {
		t.Errorf("%d commands, and the pages %q", pages, list)
	}
	page, err := os.ReadFile(filepath.Join(dir, "stag-version.8"))
	rig.Must(t, err)
	golden(t, "man_version", titleLine.ReplaceAllString(string(page), "$1 ..."))
}

// oddOption matches an option with a default, as in --bare[=false] and --kind=[].
var oddOption = regexp.MustCompile(`(?m)^(-., )?--\S+?(=""|=\[\]|=\d\S*|\[=(false|""|\d+)\])$`)

var titleLine = regexp.MustCompile(`(?m)^(\.TH "[^"]+" "8") .*$`)

// isManualPage demands that a manual page has its sections in order. If the formatter is installed, it must print no
// warning.
func isManualPage(t *testing.T, name, page string) {
	t.Helper()
	at := 0
	for _, section := range []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "EXAMPLES", "SEE ALSO"} {
		found := strings.Index(page, "\n.SH "+section+"\n")
		if found < at || strings.Count(page, "\n.SH "+section+"\n") != 1 {
			t.Errorf("%s: section %s is not there once, and behind those before it", name, section)
		}
		at = max(at, found)
	}
	if _, err := exec.LookPath("groff"); err != nil {
		t.Logf("no groff here to format %s", name)
		return
	}
	format := exec.Command("groff", "-man", "-ww", "-z", "-Tutf8")
	format.Stdin = strings.NewReader(page)
	if out, err := format.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%s: %v\n%s", name, err, out)
	}
}

// plain removes the formatter's requests from a page.
func plain(page string) string {
	return strings.NewReplacer(`\-`, "-", `\&`, "", `\fB`, "", `\fP`, "", `\fI`, "", `\fR`, "", `\:`, "", `\e`, `\`).Replace(page)
}

// TestManualPagesNowhere: man prints one line if it cannot write the pages.
func TestManualPagesNowhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	rig.Must(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct {
		args []string
		code int
	}{{[]string{"man"}, exitUsage}, {[]string{"man", "-o", file}, exitFailed}} {
		r := run(t, command(t, c.args...))
		r.ends(t, c.code)
		if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 || !strings.HasPrefix(r.stderr, "stag: man: ") {
			t.Errorf("%q printed %q and %q", c.args, r.stdout, r.stderr)
		}
	}
}

// TestCompletionScripts: each installed shell reads its script.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range shells {
		r := run(t, command(t, "completion", shell))
		r.ends(t, 0)
		if !strings.Contains(r.stdout, "__complete") || r.stderr != "" {
			t.Errorf("%s: %d octets, and %q", shell, len(r.stdout), r.stderr)
		}
		first := strings.SplitAfterN(r.stdout, "\n", 4)
		golden(t, "completion_"+shell, strings.Join(first[:3], ""))
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("no %s here to read its script", shell)
			continue
		}
		check := exec.Command(shell, "-n")
		check.Stdin = strings.NewReader(r.stdout)
		if out, err := check.CombinedOutput(); err != nil {
			t.Errorf("%s does not read its script: %v\n%s", shell, err, out)
		}
	}
	for _, args := range [][]string{{"completion"}, {"completion", "powershell"}, {"completion", "bash", "zsh"}} {
		r := run(t, command(t, args...))
		r.ends(t, exitUsage)
		if r.stdout != "" || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("%q printed %q and %q", args, r.stdout, r.stderr)
		}
	}
}

// TestCompletion: completion offers the right words for the beginning of a word.
func TestCompletion(t *testing.T) {
	links, err := doctor.Interfaces()
	rig.Must(t, err)
	for args, want := range map[string][]string{
		"doc":             {"doctor"},
		"completion ":     shells,
		"doctor --gen":    {"--generic"},
		"doctor --chunk ": {"2048", "4096"},
		"doctor ":         links,
		"ping --port-if ": links,

		"perf send_bw -d ":  links,
		"perf send_":        {"send_bw", "send_lat"},
		"perf send_bw --cq": {"--cq-mod"},

		"iscsi ":                     {"discover", "ls", "inq", "readcap", "dd", "perf", "target", "nbd", "attach", "detach"},
		"iscsi attach --driver ":     {"nbd", "ublk"},
		"iscsi perf --max":           {"--max-requests"},
		"iscsi target --interface ":  links,
		"iscsi inq --vpd ":           {"id", "limits", "serial"},
		"iscsi target --block-size ": {"512", "4096"},
	} {
		r := run(t, command(t, append([]string{"__completeNoDesc"}, strings.Split(args, " ")...)...))
		r.ends(t, 0)
		lines := strings.Split(r.stdout, "\n")
		for _, w := range want {
			if !slices.Contains(lines, w) {
				t.Errorf("%q is completed to %q, want %q among them", args, lines, w)
			}
		}
	}
	// Completion offers neither a second interface nor files.
	for _, args := range []string{"doctor eth0 ", "perf write_bw ", "ping ", "version ", "iscsi ls ", "iscsi target ", "iscsi attach ", "iscsi detach "} {
		r := run(t, command(t, append([]string{"__completeNoDesc"}, strings.Split(args, " ")...)...))
		if !strings.HasPrefix(r.stdout, ":4\n") {
			t.Errorf("%q is completed to %q", args, r.stdout)
		}
	}
}
