package simnic

import (
	"strings"
	"testing"

	"github.com/stag-rdma/stag/offload/port"
)

// Every violation of the ownership rules of port.Port panics and names the violation.
func TestBreaches(t *testing.T) {
	take := func(l *Link) []port.Frame {
		f := make([]port.Frame, 1)
		if l.A().Take(f) != 1 {
			panic("nothing to take")
		}
		f[0].Len = 100
		return f
	}
	receive := func(l *Link) []port.Frame {
		send(l.B(), 1, 100)
		l.Advance(l.Now() + 1)
		f := make([]port.Frame, 1)
		if l.A().Receive(f) != 1 {
			panic("nothing received")
		}
		return f
	}
	for name, c := range map[string]struct {
		breach func(l *Link)
		want   string
	}{
		"free twice":           {func(l *Link) { f := take(l); l.A().Free(f); l.A().Free(f) }, "does not hold"},
		"recycle twice":        {func(l *Link) { f := receive(l); l.A().Recycle(f); l.A().Recycle(f) }, "does not hold"},
		"free a received one":  {func(l *Link) { l.A().Free(receive(l)) }, "freed as a transmit one"},
		"recycle a taken one":  {func(l *Link) { l.A().Recycle(take(l)) }, "recycled as a received one"},
		"send a received one":  {func(l *Link) { l.A().Send(receive(l)) }, "received chunk"},
		"send after free":      {func(l *Link) { f := take(l); l.A().Free(f); l.A().Send(f) }, "not the caller's"},
		"send twice":           {func(l *Link) { f := take(l); l.A().Send(f); l.A().Send(f) }, "in flight already"},
		"bytes after recycle":  {func(l *Link) { f := receive(l); l.A().Recycle(f); l.A().Bytes(f[0]) }, "does not hold"},
		"bytes after free":     {func(l *Link) { f := take(l); l.A().Free(f); l.A().Bytes(f[0]) }, "does not hold"},
		"frame of the other":   {func(l *Link) { l.B().Bytes(take(l)[0]) }, "does not hold"},
		"beyond the chunk":     {func(l *Link) { f := take(l); f[0].Len = 4096; l.A().Bytes(f[0]) }, "leave their chunk"},
		"outside the arena":    {func(l *Link) { l.A().Bytes(port.Frame{Addr: 1 << 40}) }, "outside the arena"},
		"longer than the MTU":  {func(l *Link) { f := take(l); f[0].Len = 1519; l.A().Send(f) }, "MTU 1500"},
		"time runs backwards":  {func(l *Link) { l.Advance(10); l.Advance(9) }, "backwards"},
		"written while flying": {func(l *Link) { f := take(l); l.A().Send(f); l.A().Flush(); l.A().Bytes(f[0])[50]++; l.Advance(2) }, "while in flight"},
		"written after free": {func(l *Link) {
			f := take(l)
			b := l.A().Bytes(f[0])
			l.A().Free(f)
			b[0]++
			for range l.cfg.Frames {
				take(l)
			}
		}, "given back"},
		"written after recycle": {func(l *Link) {
			f := receive(l)
			b := l.A().Bytes(f[0])
			l.A().Recycle(f)
			b[0]++
			for range l.cfg.Frames {
				receive(l)
			}
		}, "given back"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLink(t, Config{Check: true, Frames: 4})
			defer func() {
				if got, _ := recover().(string); !strings.Contains(got, c.want) {
					t.Errorf("panic %q, want one about %q", got, c.want)
				}
			}()
			c.breach(l)
		})
	}
}

// A chunk that its holder frees while it is in flight returns to the pool after its departure, not before.
func TestFreeWhileFlying(t *testing.T) {
	l := newLink(t, Config{Frames: 1, Rate: 1e9})
	var f [1]port.Frame
	l.A().Take(f[:])
	f[0].Len = 1000
	l.A().Send(f[:])
	l.A().Flush()
	l.A().Free(f[:])
	if l.A().Take(f[:]) != 0 {
		t.Fatal("a chunk in flight was lent again")
	}
	l.Advance(l.Next())
	if l.A().Take(f[:]) != 1 {
		t.Fatal("the chunk did not come back")
	}
}

// A chunk that its holder keeps stays with the holder after departure, and can be sent again.
func TestSendAgain(t *testing.T) {
	l := newLink(t, Config{Frames: 2, Check: true})
	var f [1]port.Frame
	l.A().Take(f[:])
	f[0].Len = 100
	for range 3 {
		if l.A().Send(f[:]) != 1 {
			t.Fatal("not taken")
		}
		l.A().Flush()
		l.Advance(l.Now() + 1)
		if got := arrivals(l.B()); len(got) != 1 {
			t.Fatalf("%d arrived", len(got))
		}
	}
	l.A().Free(f[:])
}

func TestPoison(t *testing.T) {
	l := newLink(t, Config{Check: true})
	send(l.B(), 1, 100)
	l.Advance(l.Now() + 1)
	var f [1]port.Frame
	l.A().Receive(f[:])
	b := l.A().Bytes(f[0])
	l.A().Recycle(f[:])
	for i, octet := range b {
		if octet != poison {
			t.Fatalf("octet %d of a recycled packet is still readable", i)
		}
	}
}
