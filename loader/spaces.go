package loader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// SpaceNames returns a name for each network namespace that can be entered and has a
// name or a process, by cookie. The name is "" for the namespace of the calling thread,
// else the name of `ip netns`, else pid:N for a process N in the namespace.
func SpaceNames() map[uint64]string {
	f := newFinder()
	defer f.close()
	names := map[uint64]string{}
	for _, s := range f.spaces {
		s.Do(func() error {
			n, err := Open()
			if err != nil {
				return err // the namespace cannot be opened
			}
			defer n.Close()
			if _, known := names[n.cookie]; !known {
				names[n.cookie] = s.short()
			}
			return nil
		})
	}
	return names
}

// short returns the name as one word.
func (s namedSpace) short() string {
	if pid, of := strings.CutPrefix(s.name, "the network namespace of pid "); of {
		return "pid:" + pid
	}
	return strings.TrimPrefix(s.name, "network namespace ")
}

// SpacesWith finds the other network namespaces with an interface called link. It
// returns a command that enters each, such as nsenter --net=FILE. SpacesWith searches
// namespaces that can be entered and have a name or a process.
func SpacesWith(link string) (enter []string) {
	f := newFinder()
	defer f.close()
	for _, s := range f.others() {
		s.Do(func() error {
			if _, err := LookupLink(link); err == nil || !errors.Is(err, ErrNoLink) {
				enter = append(enter, s.enter())
			}
			return nil
		})
	}
	return enter
}

// others returns all namespaces except that of the calling thread.
func (f *finder) others() []namedSpace {
	return slices.DeleteFunc(slices.Clone(f.spaces), func(s namedSpace) bool { return s.name == "" })
}

// enter returns the command that runs another command in the namespace. The command is
// not `ip netns exec`, which hides the mounts below /sys.
func (s namedSpace) enter() string {
	if name, named := strings.CutPrefix(s.name, "network namespace "); named {
		return "nsenter --net=" + namedSpaces + "/" + name
	}
	var pid int
	fmt.Sscanf(s.name, "the network namespace of pid %d", &pid)
	return fmt.Sprintf("nsenter --net=/proc/%d/ns/net", pid)
}
