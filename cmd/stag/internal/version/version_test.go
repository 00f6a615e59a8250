package version

import (
	"runtime/debug"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func text(t *testing.T, v Info, verbose bool) string {
	t.Helper()
	var b strings.Builder
	if err := v.Print(&b, verbose); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestOf: of returns what the build records, and leaves the rest empty.
func TestOf(t *testing.T) {
	v := of(&debug.BuildInfo{
		GoVersion: "go1.26.0",
		Main:      debug.Module{Version: "v1.2.3"},
		Deps:      []*debug.Module{{Path: "example.org/m", Version: "v0.1.0"}},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123abcd"}, {Key: "vcs.modified", Value: "true"},
			{Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		},
	})
	if v.Version != "v1.2.3" || v.Commit != "0123abcd" || !v.Dirty || v.Time != "2026-01-02T03:04:05Z" || v.Go != "go1.26.0" {
		t.Errorf("%+v", v)
	}
	if s := text(t, v, false); !strings.Contains(s, "0123abcd, with changes that are not in it\n") || strings.Contains(s, "example.org") {
		t.Errorf("printed %q", s)
	}
	if s := text(t, v, true); !strings.Contains(s, "module  example.org/m v0.1.0\n") {
		t.Errorf("printed %q", s)
	}

	bare := of(&debug.BuildInfo{GoVersion: "go1.26.0"})
	if bare.Version != "(devel)" || bare.Commit != "" || bare.Dirty || bare.Time != "" {
		t.Errorf("%+v", bare)
	}
	if s := text(t, bare, false); !strings.Contains(s, "commit  unknown") {
		t.Errorf("printed %q", s)
	}
	bare.Commit = "0123abcd"
	if s := text(t, bare, false); !strings.Contains(s, "commit  0123abcd\n") {
		t.Errorf("printed %q", s)
	}
}

func TestRead(t *testing.T) {
	v, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	if v.Kernel == "" || v.Kernel != unix.ByteSliceToString(name.Release[:]) || !strings.HasPrefix(v.System, "linux/") {
		t.Errorf("%+v", v)
	}
}
