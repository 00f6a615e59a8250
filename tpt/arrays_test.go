package tpt_test

import (
	"testing"

	"github.com/stag-rdma/stag/loader"
	"github.com/stag-rdma/stag/tpt"
)

func init() {
	tpt.NewArrays = func(t testing.TB, entries, pages uint32) tpt.Config {
		t.Helper()
		table, err := loader.NewTable(entries, pages, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { table.Close() })
		return tpt.Config{Memory: table.Memory(), PageMemory: table.PageMemory()}
	}
}
