package reach_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/offload/reach"
	"github.com/stag-rdma/stag/test/need"
	"github.com/stag-rdma/stag/test/rig"
	"github.com/stag-rdma/stag/test/tenant"
)

// pidsVariable says that the process is the first one of a PID namespace of its own.
const pidsVariable = "STAG_TEST_PIDS"

// A process that got the process id of a client that has ended is neither read nor written,
// although it has memory at the same address.
func TestReusedProcessID(t *testing.T) {
	need.Root(t)
	if os.Getenv(pidsVariable) != "" {
		testReusedProcessID(t)
		return
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestReusedProcessID$", "-test.v")
	cmd.Env = append(os.Environ(), pidsVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestReusedProcessID")) {
		t.Errorf("in a PID namespace: %v\n%s", err, out)
	}
}

func testReusedProcessID(t *testing.T) {
	rig.Must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	rig.Must(t, unix.Mount("proc", "/proc", "proc", 0, ""))
	const n = 8192
	p := tenant.Start(t)
	s := p.Space()
	addr := p.Number("private %d", n)
	p.Do("fill %d %d 1", addr, n)
	r := region(t, s, addr, n, true)
	put(t, r.Octets(), []byte{1, 2, 3})
	pid := p.Pid()
	p.Kill()

	other := withPid(t, pid)
	other.Do("at %d %d", addr, n)
	other.Do("fill %d %d 2", addr, n)
	before := other.Do("sum %d %d", addr, n)
	want, got := make([]byte, n), make([]byte, n)
	tenant.Fill(want, 2)
	local := []unix.Iovec{{Base: &got[0], Len: n}}
	if _, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: n}}, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("by its process id, the memory of the other process is not there: %v", err)
	}
	var pool reach.Pool[mark]
	if got := pool.Stage().Fetch(r.Octets()[:8], 8, true); got != nil {
		t.Errorf("%v was read", got)
	}
	b := pool.Batch()
	b.Add(r.Octets(), []byte{1, 2, 3}, 0)
	if _, ok := b.Flush(); ok {
		t.Error("a write succeeds")
	}
	if other.Do("sum %d %d", addr, n) != before {
		t.Error("the other process has other octets")
	}
	if _, err := reach.NewRegion(s, addr, n, true); err == nil {
		t.Error("a new region")
	}
}

// withPid starts a tenant that gets a process id. Threads of this process may take it first.
func withPid(t *testing.T, pid int) *tenant.Tenant {
	t.Helper()
	for range 1000 {
		rig.Must(t, os.WriteFile("/proc/sys/kernel/ns_last_pid", fmt.Append(nil, pid-1), 0))
		p := tenant.Start(t)
		if p.Pid() == pid {
			return p
		}
		p.Kill()
	}
	t.Fatalf("no process gets the id %d", pid)
	return nil
}
