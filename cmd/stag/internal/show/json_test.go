package show

import (
	"bytes"
	"encoding/json"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/stag-rdma/stag/cmd/stag/internal/engines"
	"github.com/stag-rdma/stag/offload/rdmap"
	"github.com/stag-rdma/stag/offload/report"
	"github.com/stag-rdma/stag/offload/tcp"
)

// schemaFile returns the path of a schema in the command's test data.
func schemaFile(name string) string {
	return filepath.Join("..", "..", "testdata", "schema", name+".json")
}

func valid(t *testing.T, name, text string) error {
	t.Helper()
	s, err := jsonschema.NewCompiler().Compile(schemaFile(name))
	if err != nil {
		t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s.Validate(v)
}

// TestSchemasAreWhole: a schema lists exactly the members that a row can have. With -update the test first adds the new
// members of the schema of reports, and removes members that no row has any more.
func TestSchemasAreWhole(t *testing.T) {
	for subject, row := range map[string]any{
		"devices": device{}, "flows": flow{}, "qps": qp{}, "mrs": mr{}, "cqs": cq{}, "srqs": srq{}, "queues": queue{}, "stats": counter{}, "iscsi": session{}, "luns": lun{}, "ports": port{}, "clients": client{},
	} {
		has := members(reflect.TypeOf(row))
		slices.Sort(has)
		if object := objects[subject]; *update && object != "" {
			complete(t, schemaFile("show-"+subject), object, has)
		}
		raw, err := jsonschema.NewCompiler().Compile(schemaFile("show-" + subject))
		if err != nil {
			t.Fatal(err)
		}
		items := raw.Items2020
		for items.Ref != nil {
			items = items.Ref
		}
		if lists := slices.Sorted(maps.Keys(items.Properties)); !slices.Equal(lists, has) {
			t.Errorf("%s: the schema lists %q, a row has %q: run go test with -update", subject, lists, has)
		}
	}
}

// TestJSON: the rows of the fixture match their schema. A row with one member fewer or more does not.
func TestJSON(t *testing.T) {
	for _, subject := range Subjects {
		text := rendered(t, Options{Subject: subject, JSON: true})
		if err := valid(t, "show-"+subject, text); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
		for _, change := range []func(map[string]any){
			func(row map[string]any) { delete(row, "pid") },
			func(row map[string]any) { row["colour"] = "red" },
			func(row map[string]any) { row["pid"] = "one" },
		} {
			var rows []map[string]any
			if err := json.Unmarshal([]byte(text), &rows); err != nil || len(rows) == 0 {
				t.Fatal(err, len(rows))
			}
			change(rows[0])
			b, err := json.Marshal(rows)
			if err != nil {
				t.Fatal(err)
			}
			if valid(t, "show-"+subject, string(b)) == nil {
				t.Errorf("%s: the schema takes a wrong row: %s", subject, b)
			}
		}
	}
}

// TestWatchedJSON: an answer of a watch is one line that matches the schema, for each subject, also without rows.
func TestWatchedJSON(t *testing.T) {
	for _, subject := range Subjects {
		for _, sources := range [][]engines.Source{nil, fixture()} {
			l, err := Options{Subject: subject}.list(engines.Answer{Sources: sources})
			if err != nil {
				t.Fatal(err)
			}
			if c, ok := l.(counterList); ok {
				c.rates(c.rates(nil, 0), time.Second)
			}
			var b bytes.Buffer
			writeJSON(&b, watched{began, flatten(l)}, "")
			if strings.Count(b.String(), "\n") != 1 {
				t.Errorf("not one line: %q", b.String())
			}
			if err := valid(t, "show-watch", b.String()); err != nil {
				t.Errorf("%s: %v\n%s", subject, err, b.String())
			}
		}
	}
}

// TestFlat: no row contains an object, and none has two members of the same name.
func TestFlat(t *testing.T) {
	names := func(v any, layer string) (list []report.Counter) { return report.Fields(layer, v) }
	a := fixture()
	a[0].Flows[0].TCP.Counters = names(tcp.Stats{}, "tcp")
	a[0].QPs[0].Counters = names(rdmap.Stats{}, "rdmap")
	for _, subject := range Subjects {
		l, err := Options{Subject: subject}.list(engines.Answer{Sources: a})
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range flatten(l) {
			seen := map[string]bool{}
			for _, m := range row {
				if seen[m.name] {
					t.Errorf("%s: two members are called %s", subject, m.name)
				}
				seen[m.name] = true
				text, err := json.Marshal(m.value)
				if err != nil || strings.ContainsAny(string(text[:1]), "{") || strings.Contains(string(text), "[{") {
					t.Errorf("%s: %s is %s, %v", subject, m.name, text, err)
				}
			}
		}
	}
}

// TestJSONOnATerminal: characters that a terminal would interpret are escaped, and the value stays the same.
func TestJSONOnATerminal(t *testing.T) {
	in := "a\x1b[2J\u009b1m\u202e\x7f\n\u2028\U000e0001é"
	var b bytes.Buffer
	writeJSON(&b, []string{in}, "")
	if want := `["a\u001b[2J\u009b1m\u202e\u007f\n\u2028\udb40\udc01é"]` + "\n"; b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
	var out []string
	if err := json.Unmarshal(b.Bytes(), &out); err != nil || out[0] != in {
		t.Errorf("read back as %q, %v", out, err)
	}
}
