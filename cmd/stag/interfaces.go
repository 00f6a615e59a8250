package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// interfaces is the value of a flag that names the ports of an adapter: names with commas
// between them. The flag may be repeated.
type interfaces struct{ names *[]string }

// String implements pflag.Value.
func (i interfaces) String() string {
	if i.names == nil {
		return ""
	}
	return strings.Join(*i.names, ",")
}

// Set implements pflag.Value. Set adds names.
func (i interfaces) Set(text string) error {
	for name := range strings.SplitSeq(text, ",") {
		switch {
		case name == "":
			return errors.New("give the name of an interface, or several with commas between them")
		case slices.Contains(*i.names, name):
			return fmt.Errorf("%s is there twice", name)
		}
		*i.names = append(*i.names, name)
	}
	return nil
}

// Type implements pflag.Value.
func (i interfaces) Type() string { return "IFACE[,IFACE]..." }

// portsFlag adds a flag that names the ports of an adapter. Each command that opens an
// adapter also takes it by the name --device.
func portsFlag(f *pflag.FlagSet, to *[]string, name, letter, usage string) {
	f.VarP(interfaces{to}, name, letter, usage)
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, given string) pflag.NormalizedName {
		if given == "device" {
			given = name
		}
		return pflag.NormalizedName(given)
	})
}
