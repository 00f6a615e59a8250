package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
)

const stream = `go vet ./...
{"Action":"build-output","ImportPath":"x","Output":"# does not build\n"}
{"Action":"run","Package":"github.com/stag-rdma/stag/a","Test":"TestGood"}
{"Action":"output","Package":"github.com/stag-rdma/stag/a","Test":"TestGood","Output":"quiet\n"}
{"Action":"pass","Package":"github.com/stag-rdma/stag/a","Test":"TestGood/case"}
{"Action":"pass","Package":"github.com/stag-rdma/stag/a","Test":"TestGood"}
{"Action":"output","Package":"github.com/stag-rdma/stag/a","Test":"TestSkip","Output":"    a_test.go:7: SKIPPED, needs root\n"}
{"Action":"skip","Package":"github.com/stag-rdma/stag/a","Test":"TestSkip"}
{"Action":"skip","Package":"github.com/stag-rdma/stag/a","Test":"TestPart/case"}
{"Action":"pass","Package":"github.com/stag-rdma/stag/a","Test":"TestPart"}
{"Action":"output","Package":"github.com/stag-rdma/stag/a","Output":"ok  \tgithub.com/stag-rdma/stag/a\t0.1s\n"}
{"Action":"pass","Package":"github.com/stag-rdma/stag/a"}
{"Action":"output","Package":"github.com/stag-rdma/stag/b","Test":"TestBad/case","Output":"wrong\n"}
{"Action":"fail","Package":"github.com/stag-rdma/stag/b","Test":"TestBad/case"}
{"Action":"fail","Package":"github.com/stag-rdma/stag/b","Test":"TestBad"}
{"Action":"fail","Package":"github.com/stag-rdma/stag/b"}
`

func TestFollow(t *testing.T) {
	var out bytes.Buffer
	p := printer{w: &out}
	if err := p.follow(strings.NewReader(stream)); err != nil {
		t.Fatal(err)
	}
	want := "go vet ./...\n# does not build\nSKIP a TestSkip: needs root\nSKIP a TestPart/case: it does not say why\n" +
		"ok  \tgithub.com/stag-rdma/stag/a\t0.1s\nwrong\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
	for name, how := range map[test]outcome{
		{"a", "TestGood"}: passed, {"a", "TestSkip"}: skipped, {"a", "TestPart"}: skipped, {"b", "TestBad"}: failed,
		{"a", ""}: passed, {"b", ""}: failed,
	} {
		if p.seen[name] != how {
			t.Errorf("%v: %q, want %q", name, p.seen[name], how)
		}
	}
}

// TestUnfinished: a package that ends in the middle of a test shows what the test has said.
func TestUnfinished(t *testing.T) {
	var out bytes.Buffer
	p := printer{w: &out}
	err := p.follow(strings.NewReader(`{"Action":"run","Package":"github.com/stag-rdma/stag/c","Test":"TestSlow"}
{"Action":"output","Package":"github.com/stag-rdma/stag/c","Test":"TestSlow/case","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"github.com/stag-rdma/stag/c"}
`))
	if err != nil {
		t.Fatal(err)
	}
	if want := "UNFINISHED c TestSlow:\npanic: test timed out\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// TestAgain: at the end stands why each test, or else its package, has failed.
func TestAgain(t *testing.T) {
	var out bytes.Buffer
	p := printer{w: io.Discard}
	err := p.follow(strings.NewReader(`{"Action":"build-output","ImportPath":"x","Output":"a.go:1: syntax error\n"}
{"Action":"build-fail","ImportPath":"x"}
{"Action":"output","Package":"github.com/stag-rdma/stag/a","Test":"TestBad/one","Output":"=== RUN   TestBad/one\n"}
{"Action":"output","Package":"github.com/stag-rdma/stag/a","Test":"TestBad/one","Output":"    a_test.go:3: want 1\n"}
{"Action":"output","Package":"github.com/stag-rdma/stag/a","Test":"TestBad/one","Output":"        and 2\n"}
{"Action":"fail","Package":"github.com/stag-rdma/stag/a","Test":"TestBad/one"}
{"Action":"output","Package":"github.com/stag-rdma/stag/a","Test":"TestBad/two","Output":"    a_test.go:4: a remark\n"}
{"Action":"pass","Package":"github.com/stag-rdma/stag/a","Test":"TestBad/two"}
{"Action":"output","Package":"github.com/stag-rdma/stag/a","Test":"TestBad","Output":"--- FAIL: TestBad (0.00s)\n"}
{"Action":"fail","Package":"github.com/stag-rdma/stag/a","Test":"TestBad"}
{"Action":"output","Package":"github.com/stag-rdma/stag/a","Test":"TestSlow","Output":"panic: test timed out\n"}
{"Action":"output","Package":"github.com/stag-rdma/stag/a","Output":"FAIL\n"}
{"Action":"fail","Package":"github.com/stag-rdma/stag/a"}
{"Action":"output","Package":"github.com/stag-rdma/stag/b","Output":"needs root\n"}
{"Action":"fail","Package":"github.com/stag-rdma/stag/b"}
`))
	if err != nil {
		t.Fatal(err)
	}
	p.w = &out
	p.again()
	want := "NOT BUILT x: a.go:1: syntax error\na.go:1: syntax error\n" +
		"FAILED a TestBad/one: a_test.go:3: want 1\n    a_test.go:3: want 1\n        and 2\n" +
		"UNFINISHED a TestSlow: panic: test timed out\npanic: test timed out\n" +
		"FAILED b: needs root\nneeds root\n"
	if out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

// TestSlowest: the tests that took the most time are told, the slowest one first.
func TestSlowest(t *testing.T) {
	var out bytes.Buffer
	p := printer{w: &out}
	if err := p.follow(strings.NewReader(`{"Action":"pass","Package":"github.com/stag-rdma/stag/c","Test":"TestQuick","Elapsed":0.9}
{"Action":"pass","Package":"github.com/stag-rdma/stag/c","Test":"TestSlow","Elapsed":7.2}
{"Action":"pass","Package":"github.com/stag-rdma/stag/c","Test":"TestSlow/case","Elapsed":7.1}
{"Action":"fail","Package":"github.com/stag-rdma/stag/c","Test":"TestSlower","Elapsed":60}
{"Action":"fail","Package":"github.com/stag-rdma/stag/c","Elapsed":68.1}
`)); err != nil {
		t.Fatal(err)
	}
	p.slowest(3)
	if want := "ran:   60 s c TestSlower\nran:    7 s c TestSlow\n"; out.String() != want {
		t.Errorf("printed %q, want %q", out.String(), want)
	}
}

func TestCompare(t *testing.T) {
	x := test{"a", "TestX"}
	for name, c := range map[string]struct {
		list list
		seen run
		dirs string
		want []string
	}{
		"all ran":            {list{x}, run{x: passed, {"a", ""}: passed}, "", nil},
		"vanished":           {list{x}, run{}, "", []string{"a TestX did not run"}},
		"skipped":            {list{x}, run{x: skipped}, "", []string{"a TestX was skipped"}},
		"failed":             {list{x}, run{x: failed}, "", []string{"a TestX failed"}},
		"unlisted":           {nil, run{x: passed}, "", []string{"a TestX is not in the list: go run ./test/ran -update"}},
		"package failed":     {nil, run{{"a", ""}: failed}, "", []string{"package a failed"}},
		"no tests":           {nil, run{{"a", ""}: skipped}, "", nil},
		"skipped inside":     {list{x}, run{x: skipped}, "a,b", []string{"a TestX was skipped"}},
		"skipped elsewhere":  {list{x}, run{x: skipped}, "b", nil},
		"vanished elsewhere": {list{x}, run{}, "b", nil},
		"failed elsewhere":   {list{x}, run{x: failed}, "b", []string{"a TestX failed"}},
	} {
		if got := compare(c.list, c.seen, c.dirs); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestListReadsBack(t *testing.T) {
	l := list{{"b/c", "TestY"}, {"a", "FuzzX"}}
	got, err := parseList(l.String())
	if err != nil || !slices.Equal(got, list{{"a", "FuzzX"}, {"b/c", "TestY"}}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseList("a b c\n"); err == nil {
		t.Error("a line of three words was taken")
	}
}

func TestWithin(t *testing.T) {
	l := list{{"a", "T"}, {"a/b", "T"}, {"ab", "T"}, {"c", "T"}}
	for dirs, want := range map[string]int{"a,c": 2, "a/...,c": 3, "a/b": 1, "": 4} {
		if got := l.count(dirs); got != want {
			t.Errorf("%d within %q, want %d", got, dirs, want)
		}
	}
}

func TestListed(t *testing.T) {
	const out = `{"Action":"output","Package":"github.com/stag-rdma/stag/a","Output":"TestX\n"}
{"Action":"output","Package":"github.com/stag-rdma/stag/a","Output":"ok  \tgithub.com/stag-rdma/stag/a\t0.1s\n"}
{"Action":"output","Package":"github.com/stag-rdma/stag/b","Output":"?   \tTestless [no test files]\n"}
{"Action":"build-output","ImportPath":"c","Output":"wrong\n"}
`
	var said bytes.Buffer
	l, err := listed(strings.NewReader(out), &said)
	if err != nil || !slices.Equal(l, list{{"a", "TestX"}}) || said.String() != "wrong\n" {
		t.Errorf("%v, %v", l, err)
	}
}
