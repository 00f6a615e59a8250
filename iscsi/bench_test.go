package iscsi_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/netns"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/test/tgtd"
)

// loads are those of the project's figures.
var loads = []struct{ size, depth int }{{4 << 10, 32}, {4 << 10, 1}, {256 << 10, 16}}

// BenchmarkRead reads tgtd's null disk.
func BenchmarkRead(b *testing.B) { benchmark(b, iscsi.Read) }

// BenchmarkWrite writes tgtd's null disk.
func BenchmarkWrite(b *testing.B) { benchmark(b, iscsi.Write) }

func benchmark(b *testing.B, op iscsi.Op) {
	for _, carrier := range carriers {
		for _, l := range loads {
			b.Run(fmt.Sprintf("%s/%dx%d", carrier, l.size, l.depth), func(b *testing.B) {
				s := newStage(b, carrier, tgtd.Config{Null: true})
				d := s.dial("", iscsi.Config{})
				q, err := d.Queue(l.depth)
				s.Must(err)
				run(b, s.Stage, q, op, l.size, l.depth)
			})
		}
	}
}

// BenchmarkServed reads and writes a RAM disk of our own target, over TCP and over iSER.
func BenchmarkServed(b *testing.B) {
	for _, op := range []iscsi.Op{iscsi.Read, iscsi.Write} {
		for _, carrier := range carriers {
			for _, scheme := range []string{"iscsi", "iser"} {
				for _, l := range loads {
					name := fmt.Sprintf("%s/%s/%s/%dx%d", map[iscsi.Op]string{iscsi.Read: "read", iscsi.Write: "write"}[op], carrier, scheme, l.size, l.depth)
					b.Run(name, func(b *testing.B) { served(b, op, carrier, scheme, l.size, l.depth) })
				}
			}
		}
	}
}

func served(b *testing.B, op iscsi.Op, carrier, scheme string, size, depth int) {
	r := rig.On(b)
	p, adapters := bothEnds(b, carrier)
	address := netip.AddrPortFrom(p.Ends[theirs].V4.Addr(), 3260).String()
	s := serveOn(b, ram(b, 1<<29), func(c *iscsi.ServerConfig) {
		c.Adapter, c.Address = adapters[theirs], scheme+"://"+address
		if scheme == "iscsi" {
			c.Address = address
		}
	})
	d, err := iscsi.Dial(r.Ctx(), scheme+"://"+s.Addr().String()+"/"+ownTarget+"/1", iscsi.Config{Adapter: adapters[ours]})
	r.Must(err)
	defer func() { r.Check(d.Close()) }()
	q, err := d.Queue(depth)
	r.Must(err)
	run(b, r, q, op, size, depth)
}

// run keeps a queue full.
func run(b *testing.B, s rig.Stage, q *iscsi.Queue, op iscsi.Op, size, depth int) {
	mem := make([]byte, size*depth)
	ios := make([]iscsi.IO, depth)
	for i := range ios {
		ios[i] = iscsi.IO{ID: uint64(i), Op: op, Buffers: [][]byte{mem[i*size:][:size]}}
	}
	got := make([]iscsi.Completion, depth)
	free := make([]iscsi.IO, 0, depth)
	free = append(free, ios...)
	ctx := s.Ctx()
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	before := usage()
	for done := 0; done < b.N; {
		n, err := q.Post(free...)
		s.Must(err)
		free = free[:copy(free, free[n:])]
		k := q.Poll(got)
		if k == 0 {
			s.Must(q.Wait(ctx))
		}
		for _, c := range got[:k] {
			s.Must(c.Err)
			ios[c.ID].LBA = (ios[c.ID].LBA + 7919*8) % (1 << 19)
			free = append(free, ios[c.ID])
		}
		done += k
	}
	b.StopTimer()
	after := usage()
	b.ReportMetric(float64(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano())/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(after.Nvcsw-before.Nvcsw)/float64(b.N), "sleeps/op")
	for len(free) < depth {
		for _, c := range got[:q.Poll(got)] {
			free = append(free, ios[c.ID])
		}
	}
}

// usage returns the processor time and the sleeps of the process: of both ends, if both are
// ours.
func usage() (u unix.Rusage) {
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u
}

var average = regexp.MustCompile(`iops average (\d+)`)

// BenchmarkLibiscsi is iscsi-perf on the same disk, for comparison. It reports IOPS.
func BenchmarkLibiscsi(b *testing.B) {
	need.Tool(b, "iscsi-perf")
	for _, l := range loads {
		b.Run(fmt.Sprintf("%dx%d", l.size, l.depth), func(b *testing.B) {
			s := newStage(b, "kernel port", tgtd.Config{Null: true})
			var out []byte
			netns.In(b, s.pair, ours, func() (err error) {
				out, err = exec.Command("iscsi-perf", "-m", strconv.Itoa(l.depth), "-b", strconv.Itoa(l.size/512), "-t", "2", s.target.URL("")).CombinedOutput()
				return err
			})
			all := average.FindAllSubmatch(out, -1)
			if len(all) == 0 {
				b.Fatalf("iscsi-perf says %q", out)
			}
			iops, err := strconv.Atoi(string(all[len(all)-1][1]))
			s.Must(err)
			b.ReportMetric(float64(iops), "IOPS")
			b.ReportMetric(1e9/float64(iops), "ns/op")
			b.ReportMetric(float64(iops)*float64(l.size)/1e6, "MB/s")
		})
	}
}
