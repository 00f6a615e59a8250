package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stag-rdma/stag/test/simnic"
	"github.com/stag-rdma/stag/test/world"
)

// BenchmarkLanes moves octets over adapters with several queues. The peer sends each segment
// to any queue. The simulation also steps idle engines, so that time says little; count
// instructions of Engine.Step:
//
//	go test -c -o engine.test && GODEBUG=asyncpreemptoff=1 GOGC=off GOMAXPROCS=1 valgrind --tool=callgrind \
//		./engine.test -test.run xxx -test.bench 'Lanes/^8$' -test.benchtime 1x
func BenchmarkLanes(b *testing.B) {
	for _, lanes := range []int{2, 4, 8, 64} {
		b.Run(fmt.Sprint(lanes), func(b *testing.B) {
			var packets uint64
			for b.Loop() {
				w := across(b, world.LanesConfig{
					Link: simnic.Config{Latency: 50 * time.Microsecond}, Ports: 1, Queues: lanes, Records: true,
				}, 8, 400_000)
				for _, n := range laneCounters(b, w) {
					packets += n.RxPackets + n.TxPackets
				}
			}
			b.ReportMetric(float64(packets)/float64(b.N), "packets/op")
		})
	}
}
