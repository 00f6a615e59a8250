package kernelport

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stag-rdma/stag/offload/clock"
)

// BenchmarkLate tells how late Run sees octets that arrive when a visitor has just stopped
// to poll, or to doze, without a call of Watch.
func BenchmarkLate(b *testing.B) {
	for name, visit := range map[string]func(*Conn){
		"polls": func(*Conn) {},
		"dozes": func(k *Conn) { k.Doze(never) },
	} {
		b.Run(name, func(b *testing.B) {
			near, far := sockets(b)
			ulp := new(counting)
			k := port(b, near, ulp, Config{Lot: newLot(b)})
			done := make(chan error, 1)
			go func() { done <- k.Run(context.Background()) }()
			var sum, most time.Duration
			for i := range b.N {
				for end := time.Now().Add(20*time.Millisecond + rand.N(16*time.Millisecond)); time.Now().Before(end); {
					visit(k)
					k.Visit(clock.Now())
				}
				begin := time.Now()
				if _, err := far.Write([]byte{1}); err != nil {
					b.Fatal(err)
				}
				for got := 0; got <= i; k.Between(func() { got = ulp.octets }) {
					time.Sleep(20 * time.Microsecond)
				}
				late := time.Since(begin)
				sum, most = sum+late, max(most, late)
			}
			b.ReportMetric(float64(sum.Microseconds())/1e3/float64(b.N), "mean-ms")
			b.ReportMetric(float64(most.Microseconds())/1e3, "most-ms")
			far.CloseWrite()
			if err := k.Close(context.Background()); err != nil {
				b.Error(err)
			}
			<-done
		})
	}
}
