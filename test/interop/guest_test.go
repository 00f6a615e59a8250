//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/test/interop/progress"
)

// patience is far longer than any command needs.
const patience = 3 * time.Minute

// bootTime is far longer than the boot needs, which takes 6 to 20 s.
const bootTime = 3 * time.Minute

// guest is a virtual machine with siw. Its processor is emulated, because not every
// test machine has hardware virtualization.
type guest struct {
	console string // file with the console's output
	monitor string // socket of QEMU's monitor
	qemu    *exec.Cmd
	gone    chan struct{}     // closed when QEMU has ended
	storage bool              // the disk for storage is mounted
	octets  *progress.Counter // to and from the guest

	mu     sync.Mutex // protects the shell
	shell  net.Conn
	says   *bufio.Reader
	number int // number of the last command
	jobs   []*job
	job    int // number of the last job
}

// nicKicks makes both sides of the NIC's queues notify each other for every frame. The
// processor waits until QEMU has received the notification. With fewer notifications
// the NIC sometimes stopped for good, in both directions, in the middle of a row.
const nicKicks = "event_idx=off,ioeventfd=off,"

// nicOffloads turns off the offloads that a virtio NIC uses by default. Its frames
// reach AF_XDP unchanged, so they must have complete checksums and must not exceed the
// MTU.
const nicOffloads = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,guest_ufo=off," +
	"host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off,mrg_rxbuf=off"

// machine returns QEMU's arguments for an emulated machine with the guest's kernel, and
// memory in MiB.
func machine(s *stage, memory string) []string {
	return []string{"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1", "-m", memory,
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "none",
		"-kernel", filepath.Join(s.image, "vmlinux"), "-initrd", filepath.Join(s.image, "initramfs.cpio")}
}

func boot(s *stage) (*guest, error) {
	g := &guest{octets: &s.sniffer.progress, console: filepath.Join(s.dir, "console"), monitor: filepath.Join(s.dir, "monitor"), gone: make(chan struct{})}
	socket := filepath.Join(s.dir, "shell")
	os.Remove(g.console)
	os.Remove(socket)
	os.Remove(g.monitor)
	g.qemu = exec.Command("qemu-system-x86_64", append(machine(s, "512"),
		"-append", "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off tsc=unstable no_timer_check stag.v4="+guestV4+"/24 stag.v6="+guestV6+"/64",
		"-chardev", "file,id=console,path="+g.console, "-serial", "chardev:console",
		"-chardev", "socket,id=shell,server=on,wait=off,path="+socket,
		"-device", "virtio-serial-pci", "-device", "virtserialport,chardev=shell",
		"-drive", "if=virtio,format=raw,readonly=on,file="+filepath.Join(s.image, "disk.img"),
		"-virtfs", "local,path="+s.shared+",mount_tag=host,security_model=none,readonly=on",
		"-netdev", "tap,id=nic,ifname="+tapName+",script=no,downscript=no,vnet_hdr=off",
		"-device", "virtio-net-pci,netdev=nic,mac=02:67:75:65:73:74,romfile=,"+nicKicks+nicOffloads,
		"-netdev", "tap,id="+bondTaps[0]+",ifname="+bondTaps[0]+",script=no,downscript=no,vnet_hdr=off",
		"-device", "virtio-net-pci,netdev="+bondTaps[0]+",mac=02:67:75:65:73:75,romfile=,"+nicKicks+nicOffloads,
		"-netdev", "tap,id="+bondTaps[1]+",ifname="+bondTaps[1]+",script=no,downscript=no,vnet_hdr=off",
		"-device", "virtio-net-pci,netdev="+bondTaps[1]+",mac=02:67:75:65:73:76,romfile=,"+nicKicks+nicOffloads,
		"-qmp", "unix:"+g.monitor+",server=on,wait=off")...)
	if err := g.begin(s, socket); err != nil {
		return nil, err
	}
	return g, nil
}

// begin starts QEMU in namespace B, and waits until the guest is ready. socket is the port of
// the guest's shell.
func (g *guest) begin(s *stage, socket string) error {
	var said bytes.Buffer
	g.qemu.Stderr = &said
	if err := s.launch(pair.B, g.qemu, func(error) { close(g.gone) }); err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	err := g.dial(socket)
	if err == nil {
		err = g.ready()
	}
	if err != nil {
		g.kill()
		console, _ := os.ReadFile(g.console)
		return fmt.Errorf("boot the guest: %w\n%s%s", err, said.String(), console)
	}
	return nil
}

// dial connects to the port of the guest's shell. It must run before the guest opens
// the port.
func (g *guest) dial(socket string) (err error) {
	for end := time.Now().Add(patience); time.Now().Before(end) && g.alive(); time.Sleep(10 * time.Millisecond) {
		if g.shell, err = net.Dial("unix", socket); err == nil {
			g.says = bufio.NewReader(g.shell)
			return nil
		}
	}
	return errors.Join(errors.New("QEMU does not begin"), err)
}

// ready waits for the last line of init.sh.
func (g *guest) ready() error {
	for end := time.Now().Add(bootTime); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if console, err := os.ReadFile(g.console); err == nil && bytes.Contains(console, []byte("guest: ready")) {
			return nil
		}
		if !g.alive() {
			return errors.New("QEMU has ended")
		}
	}
	return fmt.Errorf("it is not ready after %v", bootTime)
}

func (g *guest) alive() bool {
	select {
	case <-g.gone:
		return false
	default:
		return true
	}
}

// kill kills the guest, as a power failure would.
func (g *guest) kill() {
	g.qemu.Process.Kill()
	<-g.gone
	if g.shell != nil {
		g.shell.Close()
	}
}

// run runs one line in the guest's shell. It returns the output and the exit code of
// the last command.
func (g *guest) run(command string, limit time.Duration) (out string, code int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.number++
	mark := fmt.Sprintf("@@@ %d ", g.number)
	g.shell.SetDeadline(time.Now().Add(limit))
	if _, err := fmt.Fprintf(g.shell, "%d %s\n", g.number, command); err != nil {
		return "", 0, fmt.Errorf("tell the guest %q: %w", command, err)
	}
	for {
		line, err := g.says.ReadString('\n')
		if err != nil {
			return out, 0, fmt.Errorf("the guest does not end %q: %w", command, err)
		}
		// The output of a command may end without a newline.
		text, status, ended := strings.Cut(line, mark)
		if ended {
			code, err := strconv.Atoi(strings.TrimSpace(status))
			return out + text, code, err
		}
		if out += line; strings.HasPrefix(line, "@@@ ") {
			out = "" // output of an earlier command that timed out
		}
	}
}

// job is a program that runs in the guest in the background.
type job struct {
	g       *guest
	program string
	command string
	file    string // file in the guest with its output; the file with ".end" has its exit code
}

// start runs a program with its arguments in the background.
func (g *guest) start(command string) (*job, error) {
	program, _, _ := strings.Cut(command, " ")
	g.job++
	j := &job{g: g, program: program, command: command, file: fmt.Sprintf("/tmp/job%d", g.job)}
	g.jobs = append(g.jobs, j)
	_, code, err := g.run(fmt.Sprintf("{ %s >%s 2>&1; echo $? >%s.code; mv %s.code %s.end; } >/dev/null 3>&- &",
		command, j.file, j.file, j.file, j.file), patience)
	if err == nil && code != 0 {
		err = fmt.Errorf("the guest does not start %q: %d", command, code)
	}
	return j, err
}

// end waits until the job has ended by itself. It returns the job's output and exit
// code. It gives up if no octets move, and the job prints nothing, for the length of the limit.
func (j *job) end(limit time.Duration) (out string, code int, err error) {
	said := ""
	for w := j.g.octets.Wait(limit); ; time.Sleep(50 * time.Millisecond) {
		status, failed, err := j.g.run("cat "+j.file+".end 2>/dev/null", patience)
		if err != nil {
			return "", 0, err
		}
		if failed == 0 {
			if code, err = strconv.Atoi(strings.TrimSpace(status)); err != nil {
				return "", 0, err
			}
			out, _, err = j.g.run("cat "+j.file, patience)
			return out, code, err
		}
		now, _, err := j.g.run("wc -c <"+j.file, patience)
		if err != nil {
			return "", 0, err
		}
		if now != said { // a job that prints moves, too
			said, w = now, j.g.octets.Wait(limit)
		}
		if w.Stuck() {
			out, _, _ := j.g.run("cat "+j.file, patience)
			return out, 0, fmt.Errorf("%q has not ended, and no octets have moved for %v", j.command, limit)
		}
	}
}

// tidy kills the jobs that still run, deletes their files and clears the kernel's log.
func (g *guest) tidy() error {
	for _, j := range g.jobs {
		if _, _, err := g.run("[ -e "+j.file+".end ] || killall -9 -q "+j.program, patience); err != nil {
			return err
		}
	}
	g.jobs = nil
	_, _, err := g.run("rm -f /tmp/job*; dmesg -c >/dev/null", patience)
	return err
}

// listens waits until the job accepts connections at a port.
func (j *job) listens(port int) error {
	_, code, err := j.g.run(fmt.Sprintf("until cat /proc/net/tcp /proc/net/tcp6 | grep -qE ':%04X 0+:0000 0A'; do ! [ -e %s.end ] || exit 1; usleep 20000; done", port, j.file), patience)
	if err == nil && code != 0 {
		out, code, err := j.end(patience)
		return errors.Join(fmt.Errorf("%q has ended before it listened at port %d: exit code %d\n%s", j.command, port, code, out), err)
	}
	return err
}

// The rows use the guest through these methods. An error ends the row.

// inGuest runs a command in the guest. Its exit code must be 0.
func (r *rig) inGuest(command string) string {
	r.Helper()
	out, code, err := r.guest.run(command, patience)
	r.Must(err)
	if code != 0 {
		r.Fatalf("guest: %s: exit code %d\n%s", command, code, out)
	}
	return out
}

// startInGuest starts a command in the guest. ended waits for it.
func (r *rig) startInGuest(command string) *job {
	r.Helper()
	j, err := r.guest.start(command)
	r.Must(err)
	return j
}

// serveInGuest starts a server in the guest, and waits until it listens.
func (r *rig) serveInGuest(port int, command string) *job {
	r.Helper()
	j := r.startInGuest(command)
	r.Must(j.listens(port))
	return j
}

// ended waits for a job of the guest. Its exit code must be 0.
func (r *rig) ended(j *job) string {
	r.Helper()
	out, code, err := j.end(patience)
	if err != nil || code != 0 {
		r.Fatalf("guest: %s: exit code %d, %v\n%s", j.command, code, err, out)
	}
	return out
}

// siw sets a parameter of the driver until the row ends. The parameter applies to
// connections that are made later.
func (r *rig) siw(parameter, value string) {
	r.Helper()
	file := "/sys/module/siw/parameters/" + parameter
	before := strings.TrimSpace(r.inGuest("cat " + file))
	r.inGuest(fmt.Sprintf("echo %s > %s", value, file))
	r.Cleanup(func() {
		if r.guest.alive() {
			r.inGuest(fmt.Sprintf("echo %s > %s", before, file))
		}
	})
}
