package reach

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// CompareLists compares the two ways to ask for the mappings of a Space.
func CompareLists(t *testing.T, s *Space) {
	if _, err := s.query(0); errors.Is(err, unix.ENOTTY) {
		t.Log("this kernel has no PROCMAP_QUERY")
		return
	}
	n := 0
	for at := uint64(0); ; n++ {
		a, errA := s.query(at)
		b, errB := s.scan(at)
		if errors.Is(errA, errNothing) && errors.Is(errB, errNothing) {
			break
		}
		if errA != nil || errB != nil || a != b {
			t.Fatalf("at %#x: %+v, %v and %+v, %v", at, a, errA, b, errB)
		}
		at = a.end
	}
	if n < 10 {
		t.Errorf("only %d mappings", n)
	}
}

func FuzzParseMapping(f *testing.F) {
	f.Add("7f0000000000-7f0000002000 rw-s 00001000 00:01 1234   /memfd:name (deleted)\n")
	f.Add("ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]")
	f.Add("5-4 rwxp 0 0:0 0")
	f.Fuzz(func(t *testing.T, line string) {
		v, err := parseMapping(line)
		if err == nil && v.start >= v.end {
			t.Errorf("%q: %+v", line, v)
		}
	})
}

func TestParseMapping(t *testing.T) {
	got, err := parseMapping("7f0000000000-7f0000002000 r--s 00001000 08:02 1234   /a b\n")
	want := mapping{start: 0x7f0000000000, end: 0x7f0000002000, readable: true, shared: true, offset: 0x1000, dev: unix.Mkdev(8, 2), inode: 1234}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}
