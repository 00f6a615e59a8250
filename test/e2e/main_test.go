package e2e

import (
	"fmt"
	"os"
	"testing"
)

// TestMain lets the test binary be the process that TestKilled kills.
func TestMain(m *testing.M) {
	if link := os.Getenv(victimLink); link != "" {
		if err := victim(link, os.Getenv(victimPeer)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}
