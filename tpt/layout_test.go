package tpt

import (
	"os"
	"reflect"
	"regexp"
	"strconv"
	"testing"

	"github.com/cilium/ebpf/btf"

	"github.com/stag-rdma/stag/bpf"
)

// TestEntryMatchesC compares entry with the layout of struct stag_entry in the compiled
// object.
func TestEntryMatchesC(t *testing.T) {
	spec, err := bpf.Spec()
	if err != nil {
		t.Fatal(err)
	}
	var c *btf.Struct
	if err := spec.Types.TypeByName("stag_entry", &c); err != nil {
		t.Fatal(err)
	}
	g := reflect.TypeFor[entry]()
	if c.Size != EntryLen || g.Size() != EntryLen || bpf.EntryLen != EntryLen || len(c.Members) != g.NumField() {
		t.Fatalf("C: %d octets, %d fields; Go: %d octets, %d fields", c.Size, len(c.Members), g.Size(), g.NumField())
	}
	for i, m := range c.Members {
		f := g.Field(i)
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			t.Fatal(err)
		}
		if f.Name != m.Name || f.Offset != uintptr(m.Offset.Bytes()) || f.Type.Size() != uintptr(size) {
			t.Errorf("C: %s, %d octets at %d; Go: %s, %d octets at %d", m.Name, size, m.Offset.Bytes(), f.Name, f.Type.Size(), f.Offset)
		}
	}
}

// TestConstantsMatchC reads the enums from the header, because no object contains them.
func TestConstantsMatchC(t *testing.T) {
	header, err := os.ReadFile("../bpf/abi.h")
	if err != nil {
		t.Fatal(err)
	}
	inC := map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^\tSTAG_((?:ENTRY|STATE|ACCESS|TRANSLATION|SPACE)_\w+) = (\d+),`).FindAllSubmatch(header, -1) {
		if inC[string(m[1])], err = strconv.ParseUint(string(m[2]), 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	bit := func(v uint64) uint64 { return uint64(log2(v)) }
	want := map[string]uint64{
		"ENTRY_FREE": uint64(KindFree), "ENTRY_REGION": uint64(KindRegion), "ENTRY_WINDOW": uint64(KindWindow), "ENTRY_ISCSI": uint64(KindISCSI),
		"STATE_KEY": 0, "STATE_KIND": wordKind, "STATE_VALID": bit(uint64(wordValid)), "STATE_BUSY": bit(uint64(wordBusy)),
		"STATE_TOUCHED": bit(uint64(wordTouched)), "STATE_WINDOWS": wordWindows, "STATE_GENERATION": wordGen,
		"ACCESS_LOCAL_READ": bit(uint64(LocalRead)), "ACCESS_LOCAL_WRITE": bit(uint64(LocalWrite)),
		"ACCESS_REMOTE_READ": bit(uint64(RemoteRead)), "ACCESS_REMOTE_WRITE": bit(uint64(RemoteWrite)),
		"ACCESS_REMOTE_ATOMIC": bit(uint64(RemoteAtomic)), "ACCESS_BIND": bit(uint64(Bind)), "ACCESS_REMOTE_INVALIDATE": bit(uint64(RemoteInvalidate)),
		"ACCESS_ONE_TOUCH": bit(accessOneTouch), "ACCESS_WINDOW": accessWindow,
		"TRANSLATION_DIRECT": translationDirect, "TRANSLATION_FIRST": translationFirst, "TRANSLATION_SECOND": translationSecond,
		"TRANSLATION_EXTERNAL": bit(translationOutside), "TRANSLATION_PAGE": translationPage, "TRANSLATION_OWNER": translationOwner,
		"SPACE_HEAP": spaceHeap, "SPACE_EXTERNAL": spaceExternal, "SPACE_SHIFT": spaceShift,
	}
	if !reflect.DeepEqual(inC, want) {
		t.Errorf("C:  %v\nGo: %v", inC, want)
	}
}

// log2 returns the number of the only bit of v that is set.
func log2(v uint64) (n int) {
	for v > 1 {
		v >>= 1
		n++
	}
	return n
}

func TestWord(t *testing.T) {
	const bound = word(maxWindows << wordWindows)
	w := (word(0).next(0xa5, KindWindow, wordValid) | bound)
	if w.key() != 0xa5 || w.kind() != KindWindow || w.windows() != 0xffff || w.generation() != 1 || !w.valid() || w.busy() || w.touched() || w.fresh() {
		t.Errorf("%#x", w)
	}
	if w |= wordTouched; !w.touched() || !w.valid() || w.generation() != 1 {
		t.Errorf("touched: %#x", w)
	}
	for name, c := range map[string]struct {
		w           word
		valid, busy bool
		kind        Kind
		windows     uint32
	}{
		"taken":   {w.taken(), false, true, KindWindow, 0xffff},
		"revoked": {w.revoked(), false, false, KindWindow, 0xffff},
		"freed":   {w.freed(), false, false, KindFree, 0},
		// No writer writes this state, and no reader may accept it.
		"valid and busy": {w.next(0xa5, KindWindow, wordValid|wordBusy), false, true, KindWindow, 0xffff},
	} {
		if c.w.valid() != c.valid || c.w.busy() != c.busy || c.w.kind() != c.kind || c.w.windows() != c.windows ||
			c.w.key() != 0xa5 || c.w.generation() != 2 || c.w.touched() {
			t.Errorf("%s: %#x", name, c.w)
		}
	}
	last := word(0xffffffff<<wordGen | 7)
	if next := last.revoked(); next.generation() != 1 || next.key() != 7 {
		t.Errorf("after the last generation: %#x", next)
	}
}

func TestEntriesAtRefuses(t *testing.T) {
	pages := aligned(make([]byte, 3*pageLen))[:2*pageLen]
	all, err := entriesAt(pages)
	if err != nil || len(all) != 2*pageLen/EntryLen {
		t.Fatalf("%d entries, %v", len(all), err)
	}
	for name, mem := range map[string][]byte{
		"nothing": nil, "off a page": pages[64:], "half an entry": pages[:pageLen+32],
	} {
		if _, err := entriesAt(mem); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
