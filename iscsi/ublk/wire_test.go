package ublk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stag-rdma/stag/iscsi/block"
	"github.com/stag-rdma/stag/test/rig"
)

// TestCommands: the numbers are those that ioctl's macros make of linux/ublk_cmd.h.
func TestCommands(t *testing.T) {
	const read, both = 2, 3
	ioc := func(dir, size, nr uint32) uint32 { return dir<<30 | size<<16 | 'u'<<8 | nr }
	for _, c := range []struct {
		got            uint32
		dir, size, num uint32
	}{
		{ctrlGetDevInfo, read, controlLen, 0x02}, {ctrlAddDev, both, controlLen, 0x04}, {ctrlDelDev, both, controlLen, 0x05}, {ctrlStartDev, both, controlLen, 0x06},
		{ctrlStopDev, both, controlLen, 0x07}, {ctrlSetParams, both, controlLen, 0x08}, {ctrlGetFeatures, read, controlLen, 0x13}, {ctrlDelDevAsync, read, controlLen, 0x14}, {ioFetch, both, 16, 0x20}, {ioCommitAndFetch, both, 16, 0x21},
	} {
		if want := ioc(c.dir, c.size, c.num); c.got != want {
			t.Errorf("command %#x is %#x, want %#x", c.num, c.got, want)
		}
	}
}

// TestParams: the octets of struct ublk_params, written from linux/ublk_cmd.h.
func TestParams(t *testing.T) {
	s := block.Shape{
		Size: 1 << 30, Block: 512, Physical: 4096, Optimal: 1 << 20, WriteCache: true, Rotational: true, Discard: 1 << 29, DiscardUnit: 8192, WriteZeroes: 1 << 25,
	}
	want := []byte{
		60, 0, 0, 0, 3, 0, 0, 0, // len, types
		0x0e, 0, 0, 0, 9, 12, 20, 12, // attributes; shifts: logical, physical, optimal, least
		0, 4, 0, 0, 0, 0, 0, 0, // 1024 sectors at most, no chunks
		0, 0, 0x20, 0, 0, 0, 0, 0, // 2^21 sectors
		0, 0, 0, 0, 0, 0, 0, 0, // virtual boundary
		0, 0, 0, 0, 0, 0x20, 0, 0, // alignment, granularity
		0, 0, 0x10, 0, 0, 0, 1, 0, // discard, write zeroes
		1, 0, 0, 0, // segments
	}
	got := bytes.Repeat([]byte{0xff}, paramsLen)
	if putParams(got, &s, 512<<10); !bytes.Equal(got, want) {
		t.Errorf("\n%x, want\n%x", got, want)
	}
	s = block.Shape{Size: 1 << 20, Block: 4096, Physical: 4096, ReadOnly: true}
	putParams(got, &s, 512<<10)
	if got[8] != attrReadOnly || !bytes.Equal(got[12:16], []byte{12, 12, 12, 12}) || binary.NativeEndian.Uint32(got[44:]) != 4096 || binary.NativeEndian.Uint32(got[48:]) != 0 {
		t.Errorf("%x", got)
	}
}

// TestInfo: what was written is read.
func TestInfo(t *testing.T) {
	b := bytes.Repeat([]byte{0xff}, infoLen)
	want := info{queues: 1, depth: 64, state: 2, buffer: 1 << 19, id: 7, pid: 4711, flags: 1 << 40}
	want.put(b)
	if got := parseInfo(b); got != want || b[20] != 0 || b[infoLen-1] != 0 {
		t.Errorf("%+v in %x", got, b)
	}
}

// TestDesc: each operation of the kernel, and one that this package does not know.
func TestDesc(t *testing.T) {
	desc := func(word, sectors uint32, first uint64) []byte {
		b := binary.NativeEndian.AppendUint32(nil, word)
		b = binary.NativeEndian.AppendUint32(b, sectors)
		return append(binary.NativeEndian.AppendUint64(b, first), make([]byte, 8)...)
	}
	for _, c := range []struct {
		word uint32
		want block.Request
		ok   bool
	}{
		{0, block.Request{Op: block.Read, Offset: 1 << 42, Length: 4096}, true},
		{1 | 1<<13 | 1<<8, block.Request{Op: block.Write, FUA: true, Offset: 1 << 42, Length: 4096}, true},
		{2, block.Request{Op: block.Flush, Offset: 1 << 42, Length: 4096}, true},
		{3, block.Request{Op: block.Discard, Offset: 1 << 42, Length: 4096}, true},
		{5 | 1<<15, block.Request{Op: block.WriteZeroes, Offset: 1 << 42, Length: 4096}, true},
		{4, block.Request{}, false},
		{13, block.Request{}, false},
	} {
		got, ok := parseDesc(desc(c.word, 8, 1<<33))
		if ok != c.ok || ok && (got.Op != c.want.Op || got.FUA != c.want.FUA || got.Offset != c.want.Offset || got.Length != c.want.Length) {
			t.Errorf("%#x: %+v, %v", c.word, got, ok)
		}
	}
}

// TestRing: an io_uring reads an eventfd many times, beyond the length of its rings.
func TestRing(t *testing.T) {
	r, err := newRing(4)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		if p := Probe(); p == nil {
			t.Error("Probe says that all is well")
		}
		t.Logf("this machine permits no io_uring: %v", err)
		return
	}
	rig.Must(t, err)
	defer r.close()
	mem, err := anonymous(4096)
	rig.Must(t, err)
	defer unix.Munmap(mem)
	q := &queue{ring: r, count: mem[:countLen]}
	q.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC)
	rig.Must(t, err)
	defer unix.Close(q.event)
	one := binary.NativeEndian.AppendUint64(nil, 1)
	for i := range 50 {
		q.listen()
		rig.Must(t, r.enter(0))
		r.reap(func(data uint64, res int32) { t.Fatalf("round %d: %d, %d before the write", i, data, res) })
		_, err := unix.Write(q.event, one)
		rig.Must(t, err)
		n := 0
		for n == 0 {
			rig.Must(t, r.enter(1))
			r.reap(func(data uint64, res int32) {
				if n++; data != wakeTag || res != countLen {
					t.Fatalf("round %d: %d, %d", i, data, res)
				}
			})
		}
		if n != 1 || binary.NativeEndian.Uint64(q.count) != 1 {
			t.Fatalf("round %d: %d completions, count %d", i, n, q.count)
		}
	}
}

// TestNoDriver: without the driver the error names its module.
func TestNoDriver(t *testing.T) {
	if _, err := os.Stat(controlPath); err == nil {
		t.Log("the kernel has the driver: the guests of test/interop test it")
		return
	}
	if _, err := Attach(nil); !errors.Is(err, ErrNoKernel) || !strings.Contains(err.Error(), "module ublk_drv") {
		t.Error(err)
	}
	if err := Remove(1, 1); !errors.Is(err, ErrNoKernel) {
		t.Error(err)
	}
}
