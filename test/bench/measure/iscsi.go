package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
)

// The targets and initiators that the rows join. All of them are processes.
const (
	stagProgram    = "stag"
	tgtdProgram    = "tgtd"
	gotgtProgram   = "gotgt"
	uiscsiProgram  = "uiscsi"
	perfProgram    = "iscsi-perf"
	qemuProgram    = "qemu-img"
	targetName     = "iqn.2026-01.test.stag:bench"
	targetSize     = 64 << 20
	targetSizeText = "64M"
	blockSize      = 512
	iscsiPort      = 3260 // gotgt listens at no other
)

// match of storage: an initiator on side A uses a target's disk on side B.
type storageCase struct {
	initiator string
	target    string
	null      bool    // the target's disk has no memory; only tgtd has that
	write     bool    // sequential writes instead of random reads
	digest    bool    // data digests
	offload   bool    // stag takes the connections over, at both ends
	program   program // XDP program of a pair whose TCP is the kernel's
	threaded  bool    // NAPI runs in threads
	octets    int
	depth     int
}

// bed makes the pair of a case. stag attaches its own programs.
func (c storageCase) bed() (*stage, error) {
	s := setting{stacks: [2]stack{kernel, kernel}, program: c.program, threaded: c.threaded, mtu: 1500}
	if !c.offload {
		return newStage(s)
	}
	p, err := pair.New(pair.Config{MTU: s.mtu, ThreadedNAPI: c.threaded})
	if err != nil {
		return nil, err
	}
	return &stage{setting: s, pair: p}, nil
}

// measure runs the case once.
func (c storageCase) measure(ctx context.Context, o Options) (v Values, err error) {
	st, err := c.bed()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	if _, err := stagCommand(ctx); err != nil { // a build takes its time
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, within(whole(o.Time)))
	defer cancel()
	target, err := c.startTarget(ctx, st)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, target.close()) }()
	return c.load(ctx, st, target, whole(o.Time))
}

// diskServer is a running target.
type diskServer struct {
	*process
	dir     string // of the target's files
	address netip.AddrPort
	null    bool
	tuned   bool
}

func (d *diskServer) close() error {
	if d.name == tgtdProgram { // it ignores SIGTERM while it has targets
		d.stop()
	} else {
		d.end()
	}
	return os.RemoveAll(d.dir)
}

// url returns the disk's URL, with arguments: "" or "?name=value".
func (d *diskServer) url(arguments string) string {
	return fmt.Sprintf("iscsi://%v/%s/1%s", d.address, targetName, arguments)
}

// startTarget starts the target of the case.
func (c storageCase) startTarget(ctx context.Context, st *stage) (*diskServer, error) {
	d := &diskServer{null: c.null, tuned: c.initiator != uiscsiProgram, address: netip.AddrPortFrom(st.pair.Ends[to].V4.Addr(), iscsiPort)}
	var err error
	if d.dir, err = os.MkdirTemp("/dev/shm", "stag-bench-"); err != nil {
		return nil, err
	}
	if err := c.serve(ctx, st, d); err != nil {
		if d.process != nil {
			d.stop()
		}
		return nil, errors.Join(err, os.RemoveAll(d.dir))
	}
	return d, nil
}

// serve starts the process of the target, and makes its disk.
func (c storageCase) serve(ctx context.Context, st *stage, d *diskServer) error {
	name, args, env, err := c.serverLine(ctx, st, d)
	if err != nil {
		return err
	}
	if d.process, err = startProcess(ctx, st.pair, to, name, args, env...); err != nil {
		return err
	}
	d.name = c.target
	if err := d.awaitListening(ctx, st.pair, iscsiPort); err != nil || c.target != tgtdProgram {
		return err
	}
	return d.makeDisk(ctx)
}

// serverLine returns the command line of the target.
func (c storageCase) serverLine(ctx context.Context, st *stage, d *diskServer) (name string, args, env []string, err error) {
	switch c.target {
	case stagProgram:
		name, err = stagCommand(ctx)
		args = []string{"iscsi", "target", "--name", targetName, "--lun", "1=ram:" + targetSizeText, "--portal", d.address.String(), "--sessions", "2048"}
		if c.offload {
			args = append(args, "-i", st.pair.Ends[to].Name)
		}
		return name, args, nil, err
	case gotgtProgram:
		name, err = gotgt.build(ctx)
		return name, []string{"daemon", "--log", "error"}, []string{"HOME=" + d.dir}, errors.Join(err, d.configureGotgt())
	}
	return tgtdProgram, []string{"-f", "-C", "1", "--iscsi", "portal=" + d.address.String()}, []string{d.control()}, nil
}

// control is the environment in which tgtd and tgtadm find each other.
func (d *diskServer) control() string { return "TGT_IPC_SOCKET=" + filepath.Join(d.dir, "socket") }

// disk makes the file of the disk, in memory, and returns its name. Its pages exist.
func (d *diskServer) disk() (string, error) {
	name := filepath.Join(d.dir, "disk")
	return name, os.WriteFile(name, make([]byte, targetSize), 0o600)
}

// tuning are the parameters that are best for tgtd: 256 KiB in one PDU, not 8 KiB. With
// them uiscsi does not come to the end of its login.
var tuning = []string{"MaxRecvDataSegmentLength", "MaxXmitDataSegmentLength", "FirstBurstLength"}

// makeDisk makes tgtd's target.
func (d *diskServer) makeDisk(ctx context.Context) error {
	file, err := d.disk()
	if err != nil {
		return err
	}
	disk := []string{"--backing-store", file}
	if d.null {
		disk = []string{"--backing-store", "/dev/null", "--bstype", "null"}
	}
	lines := [][]string{
		{"--mode", "target", "--op", "new", "--targetname", targetName},
		append([]string{"--mode", "logicalunit", "--op", "new", "--lun", "1"}, disk...),
	}
	for _, key := range tuning {
		if !d.tuned {
			break
		}
		lines = append(lines, []string{"--mode", "target", "--op", "update", "--name", key, "--value", "262144"})
	}
	lines = append(lines, []string{"--mode", "target", "--op", "bind", "--initiator-address", "ALL"})
	for _, line := range lines {
		cmd := exec.CommandContext(ctx, "tgtadm", append([]string{"-C", "1", "--lld", "iscsi", "--tid", "1"}, line...)...)
		cmd.Env = append(os.Environ(), d.control())
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("tgtadm %q: %w: %s", line, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// configureGotgt writes gotgt's configuration.
func (d *diskServer) configureGotgt() error {
	file, err := d.disk()
	if err != nil {
		return err
	}
	text, err := json.Marshal(map[string]any{
		"storages":     []any{map[string]any{"deviceID": 1000, "path": "file:" + file, "online": true, "blockShift": 9}},
		"iscsiportals": []any{map[string]any{"id": 0, "portal": d.address.String()}},
		"iscsitargets": map[string]any{targetName: map[string]any{
			"tpgts": map[string]any{"1": []int{0}}, "luns": map[string]any{"1": 1000},
		}},
	})
	if err != nil {
		return err
	}
	dir := filepath.Join(d.dir, ".gotgt")
	return errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600))
}

// Figures of a load.
const (
	IOPS     Figure = "iops"
	MBs      Figure = "mb_per_s" // 10^6 octets per second
	CPUPerIO Figure = "cpu_us_per_io"
)

// load runs the initiator for some seconds.
func (c storageCase) load(ctx context.Context, st *stage, d *diskServer, seconds int) (Values, error) {
	name, args, err := c.clientLine(ctx, st, d, seconds)
	if err != nil {
		return nil, err
	}
	m, err := startMeter(st.pair, false)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	client, err := startProcess(ctx, st.pair, from, name, args)
	if err != nil {
		return nil, err
	}
	defer client.stop()
	var used usage
	if c.initiator != qemuProgram { // its count is given, not its time
		used, err = steady(ctx, m, time.Duration(seconds)*time.Second)
		if err != nil {
			return nil, err
		}
	}
	printed, err := client.output(ctx)
	if err != nil {
		return nil, err
	}
	if c.initiator == qemuProgram {
		if used, err = m.since(); err != nil {
			return nil, err
		}
	}
	iops, err := c.iops(string(printed), seconds)
	if err != nil {
		return nil, fmt.Errorf("%s printed what cannot be read: %w: %q", c.initiator, err, printed)
	}
	v := Values{IOPS: iops, MBs: iops * float64(c.octets) / 1e6, Busy: used.busy, CPUPerIO: used.busy * 1e6 / iops}
	if c.initiator == qemuProgram {
		v[CPUPerIO] = used.busy * time.Since(begin).Seconds() * 1e6 / float64(c.writes(seconds))
	}
	return v, nil
}

// steady measures the middle of a load of that duration: neither login nor end.
func steady(ctx context.Context, m meter, d time.Duration) (usage, error) {
	if err := pause(ctx, d/4); err != nil {
		return usage{}, err
	}
	if err := m.read(); err != nil {
		return usage{}, err
	}
	if err := pause(ctx, d*5/8); err != nil {
		return usage{}, err
	}
	return m.since()
}

// clientLine returns the command line of the initiator.
func (c storageCase) clientLine(ctx context.Context, st *stage, d *diskServer, seconds int) (name string, args []string, err error) {
	depth, blocks, time := strconv.Itoa(c.depth), strconv.Itoa(c.octets/blockSize), strconv.Itoa(seconds)
	switch c.initiator {
	case perfProgram:
		return perfProgram, []string{"-r", "-m", depth, "-b", blocks, "-t", time, d.url("")}, nil
	case qemuProgram:
		return qemuProgram, []string{"bench", "-f", "raw", "-w", "-c", strconv.Itoa(c.writes(seconds)), "-d", depth, "-s", strconv.Itoa(c.octets), d.url("")}, nil
	case uiscsiProgram:
		name, err = uiscsi.build(ctx)
		return name, []string{d.address.String(), targetName, "1", blocks, depth, time}, err
	}
	arguments := ""
	if c.digest {
		arguments = "?data_digest=crc32c"
	}
	name, err = stagCommand(ctx)
	args = []string{"iscsi", "perf", "--json", "-r", "-m", depth, "-b", blocks, "-t", time, d.url(arguments)}
	if c.offload {
		args = append(args, "-i", st.pair.Ends[from].Name)
	}
	return name, args, err
}

// writes is how many writes qemu-img does: about as many as take that many seconds.
func (c storageCase) writes(seconds int) int { return seconds * (1200 << 20) / c.octets }

var (
	iopsAverage  = regexp.MustCompile(`iops average (\d+)`)
	runCompleted = regexp.MustCompile(`Run completed in ([0-9.]+) seconds`)
)

// iops reads the output of the initiator.
func (c storageCase) iops(printed string, seconds int) (n float64, err error) {
	switch c.initiator {
	case stagProgram:
		var r struct {
			IOPS       float64
			DataDigest bool `json:"data_digest"`
		}
		if err := json.Unmarshal([]byte(printed), &r); err != nil {
			return 0, err
		}
		if n = r.IOPS; r.DataDigest != c.digest {
			return 0, fmt.Errorf("data digests %v", r.DataDigest)
		}
	case qemuProgram:
		m := runCompleted.FindStringSubmatch(printed)
		if m == nil {
			return 0, errors.New("no time")
		}
		took, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return 0, err
		}
		n = float64(c.writes(seconds)) / took
	default: // the last line of several
		m := iopsAverage.FindAllStringSubmatch(printed, -1)
		if m == nil {
			return 0, errors.New("no average")
		}
		if n, err = strconv.ParseFloat(m[len(m)-1][1], 64); err != nil {
			return 0, err
		}
	}
	if n <= 0 {
		return 0, errors.New("nothing was done")
	}
	return n, nil
}
