package bench

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// What a picture measures, in points.
const (
	wide      = vg.Length(720)
	high      = vg.Length(360)
	listLine  = vg.Length(20)  // height of a list's row
	listFrame = vg.Length(80)  // height of a list without rows
	legend    = vg.Length(170) // width beside the data
	edge      = vg.Length(10)
)

// palette are colours that also those tell apart who see few (Okabe and Ito),
// the darker ones first. What has more lines than it has colours begins anew,
// with other marks.
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

// sans is what text is measured in, and families what it is shown in: typefaces
// as wide as that one, of which most systems have one.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

const (
	family   = "font-family:Liberation Sans;"
	families = "font-family:Liberation Sans,Arimo,Arial,Helvetica,sans-serif;"
)

func colour(i int) color.Color { return palette[i%len(palette)] }

// draw makes an SVG document, on white, so that it can be read on any page.
func (p picture) draw() ([]byte, error) {
	sheet := p.sheet()
	names, err := p.fill(sheet)
	if err != nil {
		return nil, err
	}
	tall, beside := high, legend
	if p.kind == list {
		tall, beside = listFrame+listLine*vg.Length(len(p.places)), 0
	}
	svg := vgsvg.New(wide, tall)
	all := draw.New(svg)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	sheet.Draw(draw.Crop(all, edge, -edge-beside, edge, -edge))
	if p.kind != list {
		names.Draw(draw.Crop(all, wide-beside, -edge, edge, -3*edge))
	}
	var text bytes.Buffer
	if _, err := svg.WriteTo(&text); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(text.Bytes(), []byte(family), []byte(families)), nil
}

// sheet is paper with a title and axes.
func (p picture) sheet() *plot.Plot {
	s := plot.New()
	s.Title.Text, s.X.Label.Text, s.Y.Label.Text = p.title, p.x, p.y
	s.Title.TextStyle.Font = font.From(sans, 14)
	s.Title.Padding = edge
	for _, a := range []*plot.Axis{&s.X, &s.Y} {
		a.Label.TextStyle.Font, a.Tick.Label.Font = font.From(sans, 12), font.From(sans, 10)
	}
	return s
}

// fill puts everything on the sheet but what the colours mean.
func (p picture) fill(sheet *plot.Plot) (names plot.Legend, err error) {
	names = plot.NewLegend()
	names.Top, names.Left, names.TextStyle.Font, names.Padding = true, true, font.From(sans, 10), 4
	grid := plotter.NewGrid()
	if p.kind == list {
		grid.Horizontal.Color = nil
	} else {
		grid.Vertical.Color = nil
	}
	sheet.Add(grid)
	switch p.kind {
	case bars:
		err = p.bars(sheet, &names)
	case list:
		err = p.list(sheet)
	default:
		err = p.curves(sheet, &names)
	}
	return names, err
}

// bars puts the groups at 0, 1, 2 and so on. A group and the gap beside it
// have a length of 1.
func (p picture) bars(sheet *plot.Plot, names *plot.Legend) error {
	step := 0.8 / float64(len(p.lines))
	width := (wide - legend - 8*edge) / vg.Length(len(p.places)) * vg.Length(step) * 0.95
	for i, l := range p.lines {
		aside := step * (float64(i) - float64(len(p.lines)-1)/2)
		heights := make(plotter.Values, len(p.places)) // 0 where the line has no point
		for _, at := range l.points {
			heights[int(at.at)] = at.mid
		}
		b, err := plotter.NewBarChart(heights, width)
		if err != nil {
			return err
		}
		b.XMin, b.Color, b.LineStyle.Width = aside, colour(i), 0
		e, err := plotter.NewYErrorBars(l.move(func(at float64) float64 { return at + aside }))
		if err != nil {
			return err
		}
		e.CapWidth = min(e.CapWidth, width/2)
		sheet.Add(b, e)
		names.Add(l.name, b)
	}
	sheet.NominalX(p.places...)
	sheet.X.Min, sheet.X.Max = -0.5, float64(len(p.places))-0.5
	fromZero(&sheet.Y)
	return nil
}

// list puts the first place on top.
func (p picture) list(sheet *plot.Plot) error {
	n := len(p.places)
	l := p.lines[0].move(func(at float64) float64 { return float64(n-1) - at })
	lengths := make(plotter.Values, n)
	for _, at := range l.points {
		lengths[int(at.at)] = at.mid
	}
	b, err := plotter.NewBarChart(lengths, listLine*0.7)
	if err != nil {
		return err
	}
	b.Horizontal, b.Color, b.LineStyle.Width = true, colour(0), 0
	e, err := plotter.NewXErrorBars(lying{l})
	if err != nil {
		return err
	}
	sheet.Add(b, e)
	places := slices.Clone(p.places)
	slices.Reverse(places)
	sheet.NominalY(places...)
	sheet.Y.Min, sheet.Y.Max = -0.5, float64(n)-0.5
	sheet.Y.Padding = 2 * edge // names may be shown wider than they were measured
	fromZero(&sheet.X)
	return nil
}

// fromZero makes an axis begin at 0 and end a little above the highest value.
func fromZero(a *plot.Axis) { a.Min, a.Max = 0, max(a.Max*1.05, math.SmallestNonzeroFloat32) }

// curves connects each line's points. A logarithmic axis has no 0.
func (p picture) curves(sheet *plot.Plot, names *plot.Legend) error {
	for i, l := range p.lines {
		if p.kind == rising && slices.ContainsFunc(l.points, func(at point) bool { return at.low <= 0 }) {
			return fmt.Errorf("%s has a value that is not above 0", l.name)
		}
		c, s, err := plotter.NewLinePoints(l)
		if err != nil {
			return err
		}
		e, err := plotter.NewYErrorBars(l)
		if err != nil {
			return err
		}
		c.Color, c.Width, s.Color, s.Shape = colour(i), 1.5, colour(i), marks[i%len(marks)]
		e.Color = colour(i)
		sheet.Add(c, s, e)
		names.Add(l.name, c, s)
	}
	return p.scale(sheet)
}

// scale sets the axes of curves.
func (p picture) scale(sheet *plot.Plot) error {
	if p.kind == rising {
		sheet.Y.Scale, sheet.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
		sheet.Y.Min, sheet.Y.Max = sheet.Y.Min/1.3, sheet.Y.Max*1.3
	} else {
		fromZero(&sheet.Y)
	}
	if len(p.places) != 0 {
		sheet.NominalX(p.places...)
		sheet.X.Min, sheet.X.Max = -0.5, float64(len(p.places))-0.5
		return nil
	}
	at := func(a point) float64 { return a.at }
	least, most := p.reach(at, at)
	if least <= 0 {
		return errors.New("a number on a logarithmic axis is not above 0")
	}
	sheet.X.Scale, sheet.X.Min, sheet.X.Max = plot.LogScale{}, least/1.3, most*1.3
	sheet.X.Tick.Marker = plot.ConstantTicks(p.ticks())
	return nil
}

// decades are the ticks of a logarithmic axis: at 1 to 9 of each decade, with
// names at 1, 2 and 5.
func decades(low, high float64) (ticks []plot.Tick) {
	for power := int(math.Floor(math.Log10(low))); math.Pow10(power) <= high; power++ {
		for i := 1; i <= 9; i++ {
			at := plot.Tick{Value: float64(i) * math.Pow10(power)}
			if i == 1 || i == 2 || i == 5 {
				at.Label = strconv.FormatFloat(at.Value, 'g', -1, 64)
			}
			if at.Value >= low && at.Value <= high {
				ticks = append(ticks, at)
			}
		}
	}
	return ticks
}

// ticks are the numbers that lines have points at.
func (p picture) ticks() (ticks []plot.Tick) {
	var all []float64
	for _, l := range p.lines {
		for _, a := range l.points {
			all = append(all, a.at)
		}
	}
	slices.Sort(all)
	for _, at := range slices.Compact(all) {
		ticks = append(ticks, plot.Tick{Value: at, Label: short(int(at))})
	}
	return ticks
}

// move is a copy of l with its points elsewhere along the axis.
func (l line) move(to func(at float64) float64) line {
	l.points = slices.Clone(l.points)
	for i := range l.points {
		l.points[i].at = to(l.points[i].at)
	}
	return l
}

// What the library asks of a line.

func (l line) Len() int                { return len(l.points) }
func (l line) XY(i int) (x, y float64) { return l.points[i].at, l.points[i].mid }
func (l line) YError(i int) (below, above float64) {
	return l.points[i].mid - l.points[i].low, l.points[i].high - l.points[i].mid
}

// lying is a line whose values go to the right.
type lying struct{ line }

func (l lying) XY(i int) (x, y float64)             { return l.points[i].mid, l.points[i].at }
func (l lying) XError(i int) (below, above float64) { return l.YError(i) }
