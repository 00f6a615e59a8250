package run

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// names are the libraries that take the place of those of rdma-core.
var names = []string{"libibverbs.so.1", "librdmacm.so.1"}

// directoryVariable names a directory with the libraries.
const directoryVariable = "STAG_VERBS"

// libraries returns the directory with the libraries. self is the path of this program.
func libraries(self string) (string, error) {
	if dir := os.Getenv(directoryVariable); dir != "" {
		if missing := missingIn(dir); missing != "" {
			return "", fmt.Errorf("%s=%s: there is no %s", directoryVariable, dir, missing)
		}
		return filepath.Abs(dir)
	}
	near := filepath.Dir(self)
	looked := []string{filepath.Join(near, "verbs"), filepath.Join(near, "..", "lib", "stag"), "/usr/local/lib/stag", "/usr/lib/stag"}
	for _, dir := range looked {
		if missingIn(dir) == "" {
			return filepath.Abs(dir)
		}
	}
	return "", fmt.Errorf("no %s in %s: build them with make verbs, and name their directory in %s", strings.Join(names, " and "), strings.Join(looked, ", "), directoryVariable)
}

// missingIn returns a library that a directory lacks, or "".
func missingIn(dir string) string {
	for _, name := range names {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || !st.Mode().IsRegular() {
			return name
		}
	}
	return ""
}

// environment returns the environment of the program: ours, with changes.
func environment(old []string, changes map[string]string) (env []string) {
	for _, line := range old {
		name, _, _ := strings.Cut(line, "=")
		if _, changed := changes[name]; !changed {
			env = append(env, line)
		}
	}
	for name, value := range changes {
		env = append(env, name+"="+value)
	}
	return env
}

// before puts a directory in front of a list of directories.
func before(dir, list string) string {
	if list == "" {
		return dir
	}
	return dir + ":" + list
}
