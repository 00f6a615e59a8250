package perftest

import (
	"bytes"
	"encoding/hex"
	"math"
	"strings"
	"testing"
)

// Messages from captures of perftest 4.5+0.17 on Linux: see test/testdata/captures. The tests of package perf compare
// the same octets with the captures.
var seen = []byte("6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")

func TestVersion(t *testing.T) {
	if got := AppendVersion(nil); !bytes.Equal(got, seen) {
		t.Errorf("ours is %q", got)
	}
	for text, dest := range map[string]int{"6.06": DestLen, "5.70": DestLen, "5.96": DestLen, "6.27": DestLen, "6.28": DestLen, "6.29": LongDest, "6.3": LongDest, "6.1": DestLen, "6.99": LongDest} {
		v, err := ParseVersion(padded(text))
		if err != nil || v.Text != text || v.DestLen() != dest {
			t.Errorf("%s: %+v, %d, %v", text, v, v.DestLen(), err)
		}
	}
	for text, says := range map[string]string{
		"5.60": "speaks version 5.60", "5.69": "speaks version 5.69", "7.00": "speaks version 7.00", "12.1": "version 12.1",
		"": `version is ""`, "6": `"6"`, "6.": `"6."`, ".5": `".5"`, "6.06x": `"6.06x"`, "0x6.1": `"0x6.1"`, "6.1e9": `"6.1e9"`, "6.0.6": `"6.0.6"`, "+6.06": `"+6.06"`, "\xff\xfe": `"\xff\xfe"`,
	} {
		if _, err := ParseVersion(padded(text)); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func padded(text string) []byte {
	b := make([]byte, VersionLen)
	copy(b, text)
	return b
}

// TestLengths: a message of a wrong length is refused.
func TestLengths(t *testing.T) {
	v := Version{Text: "6.06", number: 6.06}
	for name, p := range map[string]struct {
		want  int
		parse func([]byte) error
	}{
		"version": {VersionLen, func(b []byte) error { copy(b, seen); _, err := ParseVersion(b); return err }},
		"number":  {NumberLen, func(b []byte) error { clear(b); put(b, len(b)-1, 1); _, err := ParseNumber(b, "x", 1); return err }},
		"MTU":     {MTULen, func(b []byte) error { copy(b, "3\x00"); return CheckMTU(b) }},
		"dest":    {DestLen, func(b []byte) error { _, err := ParseDest(b, v); return err }},
		"long":    {LongDest, func(b []byte) error { _, err := ParseDest(b, Version{number: 6.29}); return err }},
		"figure":  {FigureLen, func(b []byte) error { return new(Report).SetFigure(0, b) }},
	} {
		for n := range 200 {
			if err := p.parse(make([]byte, n)); (err == nil) != (n == p.want) {
				t.Errorf("%s of %d octets: %v", name, n, err)
			}
		}
	}
}

func put(b []byte, i int, v byte) {
	if i >= 0 {
		b[i] = v
	}
}

func TestNumber(t *testing.T) {
	for _, n := range []int{1, 64, 4096, 65536} {
		if got, err := ParseNumber(AppendNumber(nil, n), "page", 65536); got != n || err != nil {
			t.Errorf("%d, %v", got, err)
		}
	}
	for _, n := range []int{0, 65537, -1, math.MinInt32} {
		if got, err := ParseNumber(AppendNumber(nil, n), "page size", 65536); err == nil || !strings.Contains(err.Error(), "page size") {
			t.Errorf("%d is taken for %d", n, got)
		}
	}
}

func TestMTU(t *testing.T) {
	for octets, want := range map[int]string{0: "1", 500: "1", 512: "2", 1280: "3", 1500: "3", 2048: "4", 9000: "5"} {
		if got := AppendMTU(nil, octets); string(got) != want+"\x00" {
			t.Errorf("%d octets: %q", octets, got)
		}
		if err := CheckMTU([]byte(want + "\x00")); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"\x00\x00", "x\x00", "33", " \x00"} {
		if CheckMTU([]byte(bad)) == nil {
			t.Errorf("%q is an MTU", bad)
		}
	}
}

// TestDest: the fields of a Dest are at the captured offsets.
func TestDest(t *testing.T) {
	d := Dest{OutReads: 0x80, QPN: 0x2a, Key: 0x23af3300, Address: 0x7f37516a0000}
	const want = "00000000" + "00000080" + "0000002a" + "00000000" + "23af3300" + "00000000" + "00007f37516a0000"
	for _, v := range []Version{{number: 6.06}, {number: 6.29}} {
		b := d.Append(nil, v)
		if got := hex.EncodeToString(b); got != want+strings.Repeat("00", v.DestLen()-32) {
			t.Errorf("%s", got)
		}
		for i := range b {
			if i < 4 || i >= 12 && i < 16 || i >= 20 && i < 24 || i >= 32 {
				b[i] = 0xff // stag does not use this octet
			}
		}
		if got, err := ParseDest(b, v); got != d || err != nil {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestReport(t *testing.T) {
	want := Report{Size: 65536, Iterations: 5000, Peak: 2000, Average: 1000, Mpps: 0.016}
	var got Report
	for i := range Figures {
		if err := got.SetFigure(i, want.Figure(i)); err != nil {
			t.Error(err)
		}
	}
	if got != want {
		t.Errorf("%+v", got)
	}
	if g := got.Gbps(); math.Abs(g-8.388608) > 1e-9 || math.Abs(got.PeakGbps()-2*g) > 1e-9 {
		t.Errorf("%v, %v", g, got.PeakGbps())
	}
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1} {
		for i := 2; i < Figures; i++ {
			r := want
			if err := r.SetFigure(i, Report{Peak: bad, Average: bad, Mpps: bad}.Figure(i)); err != nil {
				t.Error(err)
			}
			if g, p := r.Gbps(), r.PeakGbps(); math.IsNaN(g+p) || math.IsInf(g+p, 0) || g < 0 || p < 0 {
				t.Errorf("%v: %v and %v Gb/s", bad, g, p)
			}
		}
	}
}

// TestStride: as many places as fit into a page.
func TestStride(t *testing.T) {
	for _, c := range []struct{ size, page, line, octets, places int }{
		{2, 4096, 64, 64, 64}, {64, 4096, 64, 64, 64}, {65, 4096, 64, 128, 32}, {2048, 4096, 64, 2048, 2},
		{2049, 4096, 64, 0, 1}, {65536, 4096, 64, 0, 1}, {2, 65536, 128, 128, 512}, {1000, 4096, 64, 1024, 4},
		{2, 64, 4096, 4096, 1}, {1, 1, 1, 0, 1},
	} {
		octets, places := Stride(c.size, c.page, c.line)
		if octets != c.octets || places != c.places {
			t.Errorf("%+v: %d, %d", c, octets, places)
		}
		if end := octets*(places-1) + c.size; end > max(c.page, c.size) {
			t.Errorf("%+v: the last ends at %d", c, end)
		}
	}
}

// FuzzMessage: any input is parsed or refused in one line. A parsed message is the same after it has been written and
// parsed again.
func FuzzMessage(f *testing.F) {
	f.Add(seen)
	f.Add(AppendNumber(nil, 4096))
	f.Add([]byte("3\x00"))
	f.Add(Dest{1, 2, 3, 4}.Append(nil, Version{number: 6.06}))
	f.Add(Dest{1, 2, 3, 4}.Append(nil, Version{number: 6.29}))
	f.Add(Report{Mpps: 1}.Figure(4))
	f.Fuzz(func(t *testing.T, b []byte) {
		refused := func(err error) bool {
			if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 400) {
				t.Errorf("refused by %q", err)
			}
			return err != nil
		}
		if v, err := ParseVersion(b); !refused(err) && (v.number < oldest || v.number >= newest || len(v.Text) > VersionLen) {
			t.Errorf("%+v", v)
		}
		if n, err := ParseNumber(b, "page size", 65536); !refused(err) && !bytes.Equal(AppendNumber(nil, n), b) {
			t.Errorf("%d", n)
		}
		refused(CheckMTU(b))
		for _, v := range []Version{{number: 6.06}, {number: 6.29}} {
			d, err := ParseDest(b, v)
			if refused(err) {
				continue
			}
			if again, err := ParseDest(d.Append(nil, v), v); again != d || err != nil {
				t.Errorf("%+v, then %+v, %v", d, again, err)
			}
		}
		for i := range Figures {
			var r, again Report
			if refused(r.SetFigure(i, b)) {
				continue
			}
			if err := again.SetFigure(i, r.Figure(i)); again != r || err != nil {
				t.Errorf("%+v, then %+v, %v", r, again, err)
			}
		}
	})
}
