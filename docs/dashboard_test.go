package docs

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// dashboard has the parts of Grafana's model that the test reads.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Panels        []panel
	Templating    struct {
		List []struct {
			Name, Type, Definition string
			Datasource             *source
		}
	}
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  *source
	GridPos     struct{ H, W, X, Y int }
	FieldConfig struct{ Defaults struct{ Unit string } }
	Targets     []struct {
		RefID, Expr string
		Datasource  *source
	}
}

type source struct{ Type, UID string }

// chosen reports whether the source is the data source that the user selects in the dashboard.
func (s *source) chosen() bool { return s != nil && s.Type == "prometheus" && s.UID == "${datasource}" }

// metric matches the name of a metric of stag in an expression.
var metric = regexp.MustCompile(`\bstag_\w+`)

// exported returns the metrics of the exporter, with their labels.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(stag_\\w+)` \\| (\\w+) \\| ([^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = append(strings.Split(strings.TrimSpace(m[3]), ", "), "instance", "job")
		if m[2] == "histogram" {
			all[m[1]+"_bucket"] = append(all[m[1]], "le")
		}
	}
	if len(all) < 80 {
		t.Errorf("only %d metrics found", len(all))
	}
	return all
}

// selector matches a metric with its label matchers, and matcher matches one label matcher.
var (
	selector = regexp.MustCompile(`\b(stag_\w+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)(?:=|!=|=~|!~)"`)
)

// foreign returns the names and labels in an expression that the exporter does not have.
func foreign(all map[string][]string, expr string) (list []string) {
	for _, m := range selector.FindAllStringSubmatch(expr, -1) {
		labels, ok := all[m[1]]
		if !ok {
			list = append(list, m[1])
			continue
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !strings.Contains(" "+strings.Join(labels, " ")+" ", " "+l[1]+" ") {
				list = append(list, m[1]+"{"+l[1]+"}")
			}
		}
	}
	return list
}

// TestDashboard: the dashboard uses only metrics and labels that the exporter has,
// and its panels have different numbers.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("grafana/stag.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.Title == "" || d.UID == "" || d.SchemaVersion == 0 || len(d.Panels) < 20 {
		t.Errorf("title %q, uid %q, schema %d, %d panels", d.Title, d.UID, d.SchemaVersion, len(d.Panels))
	}
	all, ids := exported(t), map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" || p.GridPos.W < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %d, %q: id, title or place are wrong", p.ID, p.Title)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			continue
		}
		if p.FieldConfig.Defaults.Unit == "" || !p.Datasource.chosen() || len(p.Targets) == 0 {
			t.Errorf("panel %q: unit %q, data source %v, %d expressions", p.Title, p.FieldConfig.Defaults.Unit, p.Datasource, len(p.Targets))
		}
		refs := map[string]bool{}
		for _, x := range p.Targets {
			if bad := foreign(all, x.Expr); len(bad) != 0 || !metric.MatchString(x.Expr) {
				t.Errorf("panel %q: %s: %q is not exported", p.Title, x.Expr, bad)
			}
			if strings.Count(x.Expr, "(") != strings.Count(x.Expr, ")") || refs[x.RefID] || !x.Datasource.chosen() {
				t.Errorf("panel %q: expression %s: %s", p.Title, x.RefID, x.Expr)
			}
			refs[x.RefID] = true
			for _, m := range metric.FindAllString(x.Expr, -1) {
				if counts := strings.HasSuffix(m, "_total") || strings.HasSuffix(m, "_bucket"); counts != strings.Contains(x.Expr, "rate(") {
					t.Errorf("panel %q: %s: counters go through rate, gauges do not", p.Title, x.Expr)
				}
			}
		}
	}
	variables := map[string]bool{}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
		if bad := foreign(all, v.Definition); len(bad) != 0 || v.Type == "query" && !v.Datasource.chosen() {
			t.Errorf("variable %s: %s: %q", v.Name, v.Definition, bad)
		}
	}
	for _, used := range regexp.MustCompile(`\$\{?([a-z]+)\}?`).FindAllStringSubmatch(string(text), -1) {
		if !variables[used[1]] {
			t.Errorf("no variable $%s", used[1])
		}
	}
}

// TestForeign: foreign finds metrics and labels that are not exported.
func TestForeign(t *testing.T) {
	all := map[string][]string{"stag_x": {"device"}}
	for expr, n := range map[string]int{`rate(stag_x{device=~"a"}[5m])`: 0, "stag_y": 1, `stag_x{port="1"} / stag_z{port="1"}`: 2} {
		if got := foreign(all, expr); len(got) != n {
			t.Errorf("%s: %q, want %d", expr, got, n)
		}
	}
}
