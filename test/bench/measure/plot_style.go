package measure

import (
	"image/color"
	"slices"
	"strings"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// palette holds colours that people with colour blindness can distinguish (Okabe and
// Ito), the darker ones first.
var palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xB2, 0xff}, // blue
	color.RGBA{0xD5, 0x5E, 0x00, 0xff}, // vermilion
	color.RGBA{0x00, 0x9E, 0x73, 0xff}, // green
	color.RGBA{0xCC, 0x79, 0xA7, 0xff}, // purple
	color.RGBA{0xE6, 0x9F, 0x00, 0xff}, // orange
	color.RGBA{0x56, 0xB4, 0xE9, 0xff}, // sky
	color.RGBA{0x55, 0x55, 0x55, 0xff}, // grey
}

var marks = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.RingGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}, draw.CrossGlyph{},
}

// familiar holds names of rows that several pictures show. The index of a name selects
// its style, so that a name looks alike in all pictures.
var familiar = []string{
	"write offloaded", kernelTCP, "write kernel port", "raw AF_XDP", "raw + copy + CRC", "send offloaded", "read offloaded",
	kernelTCP + ", no XDP", "kernel port, no XDP", iperf3Name, ucxName, "raw asavie/xdp", "sockperf",
	writeInline, kernelTCPPolling, "send inline", sendWait, kernelTCP + ", no XDP, polling", kernelTCP + ", SO_BUSY_POLL", "write engine",
}

// look is the style of a line or of a group of bars.
type look struct {
	colour color.Color
	mark   draw.GlyphDrawer
	dashes []vg.Length // empty means a solid line
	round  int         // how often all colours had been used before this look
}

// newLook returns look i. The first 49 looks are all different. When the colours
// repeat, the marks differ, and the lines are dashed.
func newLook(i int) look {
	round := i / len(palette)
	l := look{colour: palette[i%len(palette)], mark: marks[(i+round)%len(marks)], round: round}
	if round > 0 {
		l.dashes = []vg.Length{vg.Length(6 / round), 3}
	}
	return l
}

// rim returns the edge of a bar. Bars of later rounds have a dark edge, which
// distinguishes bars of one colour.
func (l look) rim() draw.LineStyle {
	if l.round == 0 {
		return draw.LineStyle{}
	}
	return draw.LineStyle{Color: color.Black, Width: vg.Length(l.round), Dashes: l.dashes}
}

// looks returns a different look for each line of p.
func (p picture) looks() (all []look) {
	next := len(familiar)
	var used []int
	for _, l := range p.lines {
		name, _, _ := strings.Cut(l.name, ", NAPI ")
		i := slices.Index(familiar, name)
		if i < 0 || slices.Contains(used, i) {
			i = next
			next++
		}
		used = append(used, i)
		all = append(all, newLook(i))
	}
	return all
}
