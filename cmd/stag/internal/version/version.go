// Package version implements `stag version`: the build of stag, and the system on which
// it runs.
package version

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"
)

// Info describes a build and the running kernel.
type Info struct {
	Version string `json:"version"`          // version of the module; "(devel)" if the build does not record it
	Commit  string `json:"commit,omitempty"` // commit of the build; "" if the build does not record it
	Dirty   bool   `json:"dirty"`            // the build had changes that are not in the commit
	Time    string `json:"time,omitempty"`   // time of the commit, in the format of RFC 3339
	Go      string `json:"go"`
	System  string `json:"system"` // operating system and processor architecture, in the words of Go
	Kernel  string `json:"kernel"` // release of the running kernel
	// Modules are the modules in the build, each as path and version.
	Modules []string `json:"modules"`
}

// Read returns the build information of the running program, and the release of the kernel.
func Read() (Info, error) {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return Info{}, fmt.Errorf("the program carries no build information: build it with Go modules")
	}
	v := of(build)
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return Info{}, fmt.Errorf("ask for the kernel's release: %w", err)
	}
	v.Kernel = unix.ByteSliceToString(name.Release[:])
	return v, nil
}

// of returns the Info of a build, without the kernel's release.
func of(b *debug.BuildInfo) Info {
	v := Info{
		Version: b.Main.Version, Go: b.GoVersion,
		System:  runtime.GOOS + "/" + runtime.GOARCH,
		Modules: []string{},
	}
	if v.Version == "" {
		v.Version = "(devel)"
	}
	for _, s := range b.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Commit = s.Value
		case "vcs.modified":
			v.Dirty = s.Value == "true"
		case "vcs.time":
			v.Time = s.Value
		}
	}
	for _, m := range b.Deps {
		v.Modules = append(v.Modules, m.Path+" "+m.Version)
	}
	return v
}

// Print writes v as text. verbose adds the modules.
func (v Info) Print(w io.Writer, verbose bool) error {
	var b strings.Builder
	fmt.Fprintf(&b, "stag %s\n", v.Version)
	fmt.Fprintf(&b, "commit  %s\n", v.commit())
	fmt.Fprintf(&b, "go      %s %s\n", v.Go, v.System)
	fmt.Fprintf(&b, "kernel  %s\n", v.Kernel)
	if verbose {
		for _, m := range v.Modules {
			fmt.Fprintf(&b, "module  %s\n", m)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (v Info) commit() string {
	switch {
	case v.Commit == "":
		return "unknown: built outside of a repository, or with -buildvcs=false"
	case v.Dirty:
		return v.Commit + ", with changes that are not in it"
	}
	return v.Commit
}
