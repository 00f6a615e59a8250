package need

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// OnStage is a TestMain for a program whose tests share one stage and need root. It runs the
// tests in a copy of the program (OwnMounts), between setUp and tearDown, and exits. tearDown
// runs also if setUp fails. The end of the copy, even by Ctrl-C, ends everything else: its
// children are killed with it if they are started so, and namespaces without names vanish.
func OnStage(m *testing.M, setUp func() error, tearDown func()) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "namespaces and XDP take root: run it as root")
		os.Exit(1)
	}
	OwnMounts()
	flag.Parse()
	os.Exit(onStage(m, setUp, tearDown))
}

func onStage(m interface{ Run() int }, setUp func() error, tearDown func()) (code int) {
	err := setUp()
	if err == nil {
		code = m.Run()
	}
	tearDown()
	if err != nil {
		fmt.Fprintln(os.Stderr, "set up the stage:", err)
		return 1
	}
	return code
}
