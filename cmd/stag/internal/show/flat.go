package show

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"

	"github.com/stag-rdma/stag/offload/report"
)

// flat is a row in JSON. It is an object whose members are numbers, texts, booleans or
// lists of these, in the order of the row's fields. The members of a connection's state
// have the prefix tcp_. The name of a counter's member is its layer, _ and its name.
type flat []member

type member struct {
	name  string
	value any
}

// MarshalJSON implements json.Marshaler.
func (f flat) MarshalJSON() ([]byte, error) {
	b := bytes.NewBufferString("{")
	for i, m := range f {
		if i > 0 {
			b.WriteByte(',')
		}
		name, err := json.Marshal(m.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(m.value)
		if err != nil {
			return nil, err
		}
		b.Write(name)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// flatten converts a list of rows, which is a slice of structs.
func flatten(l list) []flat {
	rows := reflect.ValueOf(l)
	all := make([]flat, rows.Len())
	for i := range all {
		all[i].add(rows.Index(i), "")
	}
	return all
}

// add adds the members of a struct, with a prefix before their names.
func (f *flat) add(v reflect.Value, prefix string) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, option, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch value := v.Field(i).Interface; {
		case field.Anonymous && name == "":
			f.add(v.Field(i), prefix)
		case name == "" || option == "omitempty" && v.Field(i).IsZero():
		case field.Type == reflect.TypeFor[*report.TCP]():
			f.add(v.Field(i).Elem(), prefix+name+"_")
		case field.Type == reflect.TypeFor[[]report.Counter]():
			f.count(value().([]report.Counter))
		default:
			*f = append(*f, member{prefix + name, value()})
		}
	}
}

// count adds counters.
func (f *flat) count(list []report.Counter) {
	for _, c := range list {
		*f = append(*f, member{c.Layer + "_" + c.Name, c.Value})
	}
}
