package e2e

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/test/need"
)

// abreast is how many tests run at once on a core, because they mostly wait.
const abreast = 2

// TestMain runs the tests with their own mounts, or runs the process that TestKilled kills, or a holder.
func TestMain(m *testing.M) {
	if link := os.Getenv(victimLink); link != "" {
		if err := victim(link, os.Getenv(victimPeer)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	if link := os.Getenv(holderLink); link != "" {
		if err := runHolder(link, os.Getenv(holderFrom)); err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), "\n", "; "))
			os.Exit(1)
		}
		return
	}
	if path := os.Getenv(strangerAt); path != "" {
		if err := stranger(path); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	need.OwnMounts()
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		f.Value.Set(strconv.Itoa(abreast * runtime.GOMAXPROCS(0)))
	}
	os.Exit(m.Run())
}
