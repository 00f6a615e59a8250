package measure

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

// These are the dimensions of a picture, in points.
const (
	wide      = vg.Length(720)
	high      = vg.Length(390)
	listLine  = vg.Length(20)  // height of one row of a list
	listFrame = vg.Length(110) // height of a list without its rows
	legend    = vg.Length(170) // width of the legend beside the data
	edge      = vg.Length(10)
)

// sans is the font for measuring text. families are the fonts that show the text. They
// are as wide as sans, and most systems have one of them.
var sans = font.Font{Typeface: "Liberation", Variant: "Sans"}

const (
	family   = "font-family:Liberation Sans;"
	families = "font-family:Liberation Sans,Arimo,Arial,Helvetica,sans-serif;"
)

// draw returns p as an SVG document. The document has a white background, so that it is
// readable on any page.
func (p picture) draw() ([]byte, error) {
	sheet := p.sheet()
	names, err := p.fill(sheet)
	if err != nil {
		return nil, err
	}
	tall, beside := high, legend
	if p.rows() {
		tall = listFrame + listLine*vg.Length(len(p.places))
	}
	if p.kind == list {
		beside = 0
	}
	svg := vgsvg.New(wide, tall)
	all := draw.New(svg)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	sheet.Draw(draw.Crop(all, edge, -edge-beside, 4*edge, -edge))
	if p.kind != list {
		names.Draw(draw.Crop(all, wide-beside, -edge, edge, -3*edge))
	}
	below := sheet.X.Tick.Label
	below.Font, below.Color, below.XAlign, below.YAlign = font.From(sans, 8), color.Gray{0x44}, draw.XLeft, draw.YBottom
	for i, line := range p.under {
		all.FillText(below, vg.Point{X: edge, Y: edge * vg.Length(len(p.under)-i)}, line)
	}
	var text bytes.Buffer
	if _, err := svg.WriteTo(&text); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(text.Bytes(), []byte(family), []byte(families)), nil
}

// sheet returns an empty chart with a title and axes.
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

// fill draws the data on the sheet and returns the legend.
func (p picture) fill(sheet *plot.Plot) (names plot.Legend, err error) {
	names = plot.NewLegend()
	names.Top, names.Left, names.TextStyle.Font, names.Padding = true, true, font.From(sans, 10), 4
	grid := plotter.NewGrid()
	if p.rows() {
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
	case dots:
		err = p.dots(sheet, &names)
	default:
		err = p.curves(sheet, &names)
	}
	return names, err
}

// bars draws the groups at 0, 1, 2 and so on. A group with the gap beside it has the
// width 1.
func (p picture) bars(sheet *plot.Plot, names *plot.Legend) error {
	step := 0.8 / float64(len(p.lines))
	width := (wide - legend - 8*edge) / vg.Length(len(p.places)) * vg.Length(step) * 0.95
	looks := p.looks()
	for i, l := range p.lines {
		aside := step * (float64(i) - float64(len(p.lines)-1)/2)
		heights := make(plotter.Values, len(p.places)) // 0 if the line has no point at a place
		for _, at := range l.points {
			heights[int(at.at)] = at.mid
		}
		b, err := plotter.NewBarChart(heights, width)
		if err != nil {
			return err
		}
		b.XMin, b.Color, b.LineStyle = aside, looks[i].colour, looks[i].rim()
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

// list draws the rows from top to bottom.
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
	b.Horizontal, b.Color, b.LineStyle.Width = true, palette[0], 0
	e, err := plotter.NewXErrorBars(lying{l})
	if err != nil {
		return err
	}
	sheet.Add(b, e)
	p.nameRows(sheet)
	fromZero(&sheet.X)
	return nil
}

// rows reports whether the places are rows from top to bottom.
func (p picture) rows() bool { return p.kind == list || p.kind == dots }

// nameRows writes the names of the places beside the rows.
func (p picture) nameRows(sheet *plot.Plot) {
	places := slices.Clone(p.places)
	slices.Reverse(places)
	sheet.NominalY(places...)
	sheet.Y.Min, sheet.Y.Max = -0.5, float64(len(places))-0.5
	sheet.Y.Padding = 2 * edge // the shown font may be wider than the measured one
}

// dots draws the rows from top to bottom, with the value of each line in its row. A
// logarithmic axis has no 0.
func (p picture) dots(sheet *plot.Plot, names *plot.Legend) error {
	looks := p.looks()
	for i, l := range p.lines {
		if slices.ContainsFunc(l.points, func(at point) bool { return at.low <= 0 }) {
			return fmt.Errorf("%s has a value that is not above 0", l.name)
		}
		down := lying{l.move(func(at float64) float64 { return float64(len(p.places)-1) - at })}
		s, err := plotter.NewScatter(down)
		if err != nil {
			return err
		}
		e, err := plotter.NewXErrorBars(down)
		if err != nil {
			return err
		}
		s.Color, s.Shape, s.Radius, e.Color = looks[i].colour, looks[i].mark, 4, looks[i].colour
		sheet.Add(e, s)
		names.Add(l.name, s)
	}
	p.nameRows(sheet)
	sheet.X.Scale, sheet.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(decades)
	sheet.X.Min, sheet.X.Max = sheet.X.Min/1.3, sheet.X.Max*1.3
	return nil
}

// fromZero lets an axis begin at 0 and end a little above the highest value.
func fromZero(a *plot.Axis) {
	a.Min, a.Max = 0, max(a.Max*1.05, math.SmallestNonzeroFloat32)
	a.Tick.Marker = plot.TickerFunc(steps)
}

// steps returns five to ten ticks of a linear axis from 0. They are multiples of 1, 2
// or 5 times a power of ten.
func steps(_, high float64) (ticks []plot.Tick) {
	step := math.Pow10(int(math.Floor(math.Log10(high))))
	for _, smaller := range []float64{2, 2.5, 2, 2, 2.5} { // 1, 0.5, 0.2, 0.1, ...
		if high/step >= 5 {
			break
		}
		step /= smaller
	}
	for i := 0; float64(i)*step <= high; i++ {
		at := float64(i) * step
		ticks = append(ticks, plot.Tick{Value: at, Label: strconv.FormatFloat(at, 'g', 4, 64)})
	}
	return ticks
}

// curves connects each line's points.
func (p picture) curves(sheet *plot.Plot, names *plot.Legend) error {
	looks := p.looks()
	for i, l := range p.lines {
		c, s, err := plotter.NewLinePoints(l)
		if err != nil {
			return err
		}
		e, err := plotter.NewYErrorBars(l)
		if err != nil {
			return err
		}
		c.Color, c.Width, c.Dashes = looks[i].colour, 1.5, looks[i].dashes
		s.Color, s.Shape, e.Color = looks[i].colour, looks[i].mark, looks[i].colour
		sheet.Add(c, s, e)
		names.Add(l.name, c, s)
	}
	return p.scale(sheet)
}

// scale sets the axes of a chart with curves.
func (p picture) scale(sheet *plot.Plot) error {
	fromZero(&sheet.Y)
	at := func(a point) float64 { return a.at }
	least, most := p.reach(at, at)
	if least <= 0 {
		return errors.New("a number on a logarithmic axis is not above 0")
	}
	sheet.X.Scale, sheet.X.Min, sheet.X.Max = plot.LogScale{}, least/1.3, most*1.3
	sheet.X.Tick.Marker = plot.ConstantTicks(p.ticks())
	return nil
}

// decades returns the ticks of a logarithmic axis: 1 to 9 in each decade, with labels
// at 1, 2 and 5.
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

// ticks returns a tick for each number at which a line has a point.
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

// move returns a copy of l with the points moved along the axis.
func (l line) move(to func(at float64) float64) line {
	l.points = slices.Clone(l.points)
	for i := range l.points {
		l.points[i].at = to(l.points[i].at)
	}
	return l
}

// These methods implement plotter.XYer and plotter.YErrorer.

func (l line) Len() int                { return len(l.points) }
func (l line) XY(i int) (x, y float64) { return l.points[i].at, l.points[i].mid }
func (l line) YError(i int) (below, above float64) {
	return l.points[i].mid - l.points[i].low, l.points[i].high - l.points[i].mid
}

// lying is a line with its values on the horizontal axis.
type lying struct{ line }

func (l lying) XY(i int) (x, y float64)             { return l.points[i].mid, l.points[i].at }
func (l lying) XError(i int) (below, above float64) { return l.YError(i) }
