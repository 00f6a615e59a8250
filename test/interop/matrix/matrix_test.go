package main

import (
	"strings"
	"testing"
)

// These are lines of go test -json of a run with a row that passes.
const (
	begins = `{"Action":"start","Package":"p"}
{"Action":"run","Test":"TestA"}
{"Action":"run","Test":"TestA/small"}
{"Action":"attr","Test":"TestA/small","Key":"row","Value":"small, 1 octet"}
{"Action":"attr","Test":"TestA/small","Key":"peer","Value":"rping -s"}
{"Action":"attr","Test":"TestA/small","Key":"ops","Value":"10 x 1"}
{"Action":"output","Test":"TestA/small","Output":"    a_test.go:1: a remark\n"}
`
	passes = `{"Action":"pass","Test":"TestA/small","Elapsed":1.5}
{"Action":"pass","Test":"TestA","Elapsed":1.5}
`
	fails = `{"Action":"fail","Test":"TestA/small","Elapsed":1.5}
{"Action":"fail","Test":"TestA","Elapsed":1.5}
`
	dumps = `{"Action":"output","Test":"TestA/small","Output":"    a_test.go:2: it hangs\n"}
{"Action":"output","Test":"TestA/small","Output":"        for 3 minutes\n"}
{"Action":"output","Test":"TestA/small","Output":"    a_test.go:3: capture: /tmp/x\n"}
{"Action":"output","Test":"TestA/small","Output":"    a_test.go:3: the guest\n"}
`
	ends = `{"Action":"output","Output":"PASS\n"}
{"Action":"pass","Package":"p","Elapsed":2}
`
	endsBadly = `{"Action":"fail","Package":"p","Elapsed":2}
`
)

func TestMatrix(t *testing.T) {
	for _, c := range []struct {
		name, events string
		shown        []string // texts in the table
		hidden       string
		err          string // text of the error; "" means no error
	}{
		{"a row passes", begins + passes + ends,
			[]string{"small, 1 octet                                     rping -s             10 x 1                     ok        1.5", "1 rows passed in 2 s"}, "a remark", ""},
		{"a row fails", begins + fails + endsBadly, []string{"FAILED", "a_test.go:1: a remark"}, "", "TestA/small has not passed: a_test.go:1: a remark\n    a_test.go:1: a remark"},
		{"a row fails, and its capture is kept", begins + dumps + fails + endsBadly, []string{"a_test.go:3: the guest"}, "",
			"TestA/small has not passed: a_test.go:2: it hangs\n    a_test.go:1: a remark\n    a_test.go:2: it hangs\n        for 3 minutes"},
		{"a row is skipped", begins + strings.ReplaceAll(fails, `"fail"`, `"skip"`) + ends, []string{"NOT RUN"}, "", "TestA/small has not passed"},
		{"a test without rows", `{"Action":"run","Test":"TestB"}` + "\n" + begins + passes + ends, nil, "", "TestB has no rows"},
		{"killed in the middle", begins, nil, "", "was ended before it was done"},
		{"out of time", begins + dumps + endsBadly, []string{"UNFINISHED TestA/small\n    a_test.go:1: a remark"}, "", "TestA/small has not passed: a_test.go:2: it hangs"},
		{"killed between rows", begins + passes, nil, "", "was ended before it was done"},
		{"it does not build", `{"Action":"build-output","Output":"a.go:1: syntax error\n"}` + "\n" + endsBadly, []string{"a.go:1: syntax error"}, "", "the run itself has not passed: a.go:1: syntax error"},
		{"no rows at all", ends, nil, "", "there were no rows"},
		{"nothing", "", nil, "", "was ended before it was done"},
		{"something else", "ok p 2 s\n", nil, "", "no line of go test -json"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var out strings.Builder
			err := show(strings.NewReader(c.events), &out)
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			for _, s := range c.shown {
				if !strings.Contains(out.String(), s) {
					t.Errorf("%q is not shown in\n%s", s, out.String())
				}
			}
			if c.hidden != "" && strings.Contains(out.String(), c.hidden) {
				t.Errorf("%q is shown in\n%s", c.hidden, out.String())
			}
		})
	}
}
