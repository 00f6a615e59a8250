package show

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/report"
)

// schemaOfReports is the schema that describes the objects in rows.
var schemaOfReports = filepath.Join("..", "..", "..", "..", "offload", "report", "schema.json")

// objects has the name of a row's object in the schema of reports, by subject. A row of stats has none.
var objects = map[string]string{"devices": "device", "flows": "flow", "qps": "qp", "mrs": "mr", "cqs": "cq", "srqs": "srq", "queues": "queue", "iscsi": "session", "luns": "lun", "ports": "port", "clients": "client"}

// members returns the JSON names of a struct's fields, including those of embedded structs.
func members(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			names = append(names, members(f.Type)...)
		case f.Type == reflect.TypeFor[*report.TCP]():
			for _, of := range members(f.Type.Elem()) {
				names = append(names, name+"_"+of)
			}
		case f.Type == reflect.TypeFor[[]report.Counter](): // the schema has a pattern for counters
		case name != "":
			names = append(names, name)
		}
	}
	return names
}

// rowSchema is the part of a schema that complete changes.
type rowSchema struct {
	Required   []string       `json:"required"`
	Properties map[string]any `json:"properties"`
}

// complete rewrites the schema of a row so that it lists the members in has. It takes the definition of a new member
// from object in the schema of reports.
func complete(t *testing.T, file, object string, has []string) {
	t.Helper()
	var root struct {
		Defs map[string]rowSchema `json:"$defs"`
	}
	read(t, schemaOfReports, &root)
	var all map[string]any
	read(t, file, &all)
	items := all["items"].(map[string]any)
	properties, required := items["properties"].(map[string]any), items["required"].([]any)
	for _, name := range has {
		if properties[name] != nil {
			continue
		}
		of, in := root.Defs[object], name
		if tcp, found := strings.CutPrefix(name, "tcp_"); found {
			of, in = root.Defs["tcp"], tcp
		} else if slices.Contains(of.Required, name) {
			required = append(required, name)
		}
		properties[name] = of.Properties[in]
	}
	gone := func(name string) bool { return !slices.Contains(has, name) }
	maps.DeleteFunc(properties, func(name string, _ any) bool { return gone(name) })
	items["required"] = slices.DeleteFunc(required, func(name any) bool { return gone(name.(string)) })
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(all); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string, v any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}
