package report

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestSchema: schema.json has exactly the members that the types have. Members that are
// always present are required.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root object
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	if root.Draft != "https://json-schema.org/draft/2020-12/schema" {
		t.Errorf("$schema is %q", root.Draft)
	}
	if _, err := jsonschema.NewCompiler().Compile("schema.json"); err != nil {
		t.Error(err)
	}
	root.compare(t, "engine", Engine{})
	for name, v := range map[string]any{
		"counts": Counts{}, "device": Device{}, "port": Port{}, "flow": Flow{}, "tcp": TCP{}, "qp": QP{}, "cq": CQ{}, "srq": SRQ{}, "session": Session{}, "lun": LUN{}, "client": Client{}, "mr": MR{}, "queue": Queue{}, "counter": Counter{},
	} {
		root.Defs[name].compare(t, name, v)
	}
}

// object is the part of a schema for one kind of object.
type object struct {
	Draft      string                     `json:"$schema"`
	Additional json.RawMessage            `json:"additionalProperties"`
	Required   []string                   `json:"required"`
	Properties map[string]json.RawMessage `json:"properties"`
	Defs       map[string]object          `json:"$defs"`
}

func (o object) compare(t *testing.T, name string, v any) {
	t.Helper()
	var all, always []string
	for f := range reflect.TypeOf(v).Fields() {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, tag)
		if options == "" {
			always = append(always, tag)
		}
	}
	slices.Sort(all)
	slices.Sort(always)
	if got := slices.Sorted(maps.Keys(o.Properties)); !slices.Equal(got, all) {
		t.Errorf("%s has members %q in the schema, and %q in Go", name, got, all)
	}
	if got := slices.Sorted(slices.Values(o.Required)); !slices.Equal(got, always) {
		t.Errorf("%s requires %q in the schema, and has always %q in Go", name, got, always)
	}
	if string(o.Additional) != "false" {
		t.Errorf("%s takes any member", name)
	}
}
