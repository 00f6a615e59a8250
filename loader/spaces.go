package loader

import "strings"

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
