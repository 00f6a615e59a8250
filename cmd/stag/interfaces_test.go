package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestInterfaces: a flag of ports takes lists and repetition, also by the name --device,
// and no name twice.
func TestInterfaces(t *testing.T) {
	for args, want := range map[string]string{
		"-i eth1":                        "eth1",
		"-i eth1,eth2":                   "eth1 eth2",
		"--device eth1,eth2 --port-if e": "eth1 eth2 e",
		"-i eth1 --device=eth2":          "eth1 eth2",
		"--device ,eth1":                 "give the name of an interface",
		"-i eth1,":                       "give the name of an interface",
		"-i eth1,eth2 -i eth1":           "eth1 is there twice",
	} {
		var names []string
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		portsFlag(f, &names, "port-if", "i", "")
		err := f.Parse(strings.Fields(args))
		switch {
		case err != nil && !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %s", args, err, want)
		case err == nil && !slices.Equal(names, strings.Fields(want)):
			t.Errorf("%s: %q, want %s", args, names, want)
		}
	}
}
