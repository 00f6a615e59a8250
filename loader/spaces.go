package loader

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// SpaceNames are the network namespaces that have a name or a process and may be
// entered, by their cookies: "" for that of the calling thread, the name that `ip
// netns` has, or pid:N of a process in it.
func SpaceNames() map[uint64]string {
	f := newFinder()
	defer f.close()
	names := map[uint64]string{}
	for _, s := range f.spaces {
		s.Do(func() error {
			n, err := Open()
			if err != nil {
				return err // it cannot be entered
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

// short is the name in one word.
func (s namedSpace) short() string {
	if pid, of := strings.CutPrefix(s.name, "the network namespace of pid "); of {
		return "pid:" + pid
	}
	return strings.TrimPrefix(s.name, "network namespace ")
}

// SpacesWith returns the commands, such as nsenter --net=FILE, that enter the other
// network namespaces in which there is an interface called link. It looks in those
// that have a name or a process and may be entered.
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

// others are the namespaces except that of the calling thread.
func (f *finder) others() []namedSpace {
	return slices.DeleteFunc(slices.Clone(f.spaces), func(s namedSpace) bool { return s.name == "" })
}

// enter is the command that runs another command in the namespace. It is not `ip
// netns exec`, which hides what is mounted below /sys.
func (s namedSpace) enter() string {
	if name, named := strings.CutPrefix(s.name, "network namespace "); named {
		return "nsenter --net=" + namedSpaces + "/" + name
	}
	var pid int
	fmt.Sscanf(s.name, "the network namespace of pid %d", &pid)
	return fmt.Sprintf("nsenter --net=/proc/%d/ns/net", pid)
}
