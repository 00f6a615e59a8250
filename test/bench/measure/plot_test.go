package measure

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// words returns the texts of an SVG document, which must be well formed.
func words(t *testing.T, file string) (texts []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := xml.NewDecoder(f)
	for inside := false; ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			inside = x.Name.Local == "text"
			for _, a := range x.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s: %s=%q", file, a.Name.Local, a.Value)
				}
			}
		case xml.EndElement:
			inside = false
		case xml.CharData:
			if inside {
				texts = append(texts, string(x))
			}
		}
	}
}

func TestPlotDrawsEveryTable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "charts")
	files, err := saved().Plot(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"goodput.svg":         append([]string{"MTU 1500", "MTU 3506", "Gb/s of payload"}, goodputNames...),
		"cpu.svg":             append([]string{"MTU 1500", "MTU 3506", "s per GB of payload"}, goodputNames...),
		"sizes-1500.svg":      {"write offloaded", kernelTCP, "64", "4 Ki", "1 Mi", "octets in a message", "Gb/s"},
		"connections.svg":     {"write offloaded", kernelTCP, "1", "64", "16 Ki", "connections", "Gb/s"},
		"latency-64.svg":      {"write offloaded", kernelTCP, "p50", "p99", "µs"},
		"latency-4096.svg":    {"write offloaded", kernelTCP, "p50", "p99", "µs"},
		"latency-1048576.svg": {"write offloaded", kernelTCP, "p50", "p99", "µs"},
		"takeover.svg":        {"take over, 1 connections", "take over, 64 connections", "a second"},
	}
	if len(files) != len(want) {
		t.Errorf("drew %d files: %q", len(files), files)
	}
	for name, labels := range want {
		texts := words(t, filepath.Join(dir, name))
		for _, label := range labels {
			if !slices.Contains(texts, label) {
				t.Errorf("%s has no %q, but %q", name, label, texts)
			}
		}
	}
}

// The picture uses the best NAPI setting, and the processor time of the same setting.
func TestGoodputPicturesTakeTheBest(t *testing.T) {
	r := saved()
	all := goodputPictures(r.table("goodput"))
	for i, name := range goodputNames {
		speed, cost := all[0].lines[i], all[1].lines[i]
		if speed.name != name || len(speed.points) != 2 || len(cost.points) != 2 {
			t.Fatalf("%s: %+v, %+v", name, speed, cost)
		}
		row := r.table("goodput").find(func(c Case) bool { return c == Case{Name: name, MTU: 3506, NAPI: "threads"} })
		if want := (point{1, row.Median[Gbps], row.Low[Gbps], row.High[Gbps]}); speed.points[1] != want {
			t.Errorf("%s: %v, want %v", name, speed.points[1], want)
		}
		if want := row.Median[CPUPerGB]; cost.points[1].mid != want {
			t.Errorf("%s: %v s, want %v", name, cost.points[1].mid, want)
		}
	}
}

func TestPlotLeavesOutWhatThereIsNot(t *testing.T) {
	r := saved()
	r.Tables = r.Tables[1:2]
	r.Tables[0].Rows[1].Samples = nil // a row without a measurement
	r.conclude()
	files, err := r.Plot(t.TempDir())
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	if texts := words(t, files[0]); !slices.Contains(texts, "write offloaded") {
		t.Errorf("%q", texts)
	}
}

func TestPlotSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	r := saved()
	for _, table := range r.Tables {
		for _, row := range table.Rows {
			row.Samples = nil
		}
	}
	r.conclude()
	if files, err := r.Plot(dir); err == nil || !strings.Contains(err.Error(), "nothing to draw") {
		t.Errorf("without rounds: %q, %v", files, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := saved().Plot(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("where a file is: %v", err)
	}
	r = saved()
	r.table("latency").Rows[0].Low["p50_us"] = 0
	if _, err := r.Plot(dir); err == nil || !strings.Contains(err.Error(), "latency-64.svg: p50") {
		t.Errorf("0 on a logarithmic axis: %v", err)
	}
}
