package proto

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// header is what abi.h declares.
type header struct {
	structs   map[string]*cStruct
	constants map[string]uint64
	order     []string // names of the structures, as declared
}

type cStruct struct {
	size, align int
	fields      map[string]int // offsets
	names       []string
}

var (
	comments  = regexp.MustCompile(`(?s)/\*.*?\*/`)
	aDefine   = regexp.MustCompile(`(?m)^#define (STAG_\w+)[ \t]+(\S.*)$`)
	anEnum    = regexp.MustCompile(`(?s)enum stag_\w+ \{(.*?)\};`)
	aStruct   = regexp.MustCompile(`(?s)struct (stag_\w+) \{\n(.*?)\n\};`)
	aField    = regexp.MustCompile(`^\s*(struct \w+|\w+)\s+(\w+)(?:\[(.+)\])?;$`)
	aUnion    = regexp.MustCompile(`(?s)\n\tunion \{.*?\};`)
	aNumber   = regexp.MustCompile(`^\(?(0x[0-9a-f]+|\d+)(?:u|ull)?(?: << (\d+))?\)?$`)
	bellWords = "(STAG_BELL_LEN - 64) / 8"
)

// parse reads abi.h, and computes the offsets by the rules of C.
func parse(t *testing.T) *header {
	t.Helper()
	octets, err := os.ReadFile("abi.h")
	if err != nil {
		t.Fatal(err)
	}
	text := comments.ReplaceAllString(string(octets), "")
	h := &header{structs: map[string]*cStruct{}, constants: map[string]uint64{}}
	for _, d := range aDefine.FindAllStringSubmatch(text, -1) {
		if n, ok := number(d[2]); ok {
			h.constants[d[1]] = n
		}
	}
	h.constants["STAG_BELL_BITS"] = (h.constants["STAG_BELL_LEN"] - 64) * 8
	for _, e := range anEnum.FindAllStringSubmatch(text, -1) {
		for _, line := range strings.Split(e[1], ",") {
			name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
			n, isNumber := number(strings.TrimSpace(value))
			if ok != isNumber {
				t.Fatalf("enum: %q", line)
			}
			if ok {
				h.constants[strings.TrimSpace(name)] = n
			}
		}
	}
	for _, s := range aStruct.FindAllStringSubmatch(text, -1) {
		body := aUnion.ReplaceAllString(s[2], "\n\tuint64_t body[STAG_BODY_LEN / 8];")
		h.layOut(t, s[1], body)
	}
	return h
}

func number(s string) (uint64, bool) {
	m := aNumber.FindStringSubmatch(strings.TrimSpace(s))
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(m[1], 0, 64)
	shift, _ := strconv.Atoi(m[2])
	return n << shift, err == nil
}

func (h *header) layOut(t *testing.T, name, body string) {
	s := &cStruct{align: 1, fields: map[string]int{}}
	for _, line := range strings.Split(body, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		f := aField.FindStringSubmatch(strings.TrimRight(line, " \t"))
		if f == nil {
			t.Fatalf("struct %s: cannot read %q", name, line)
		}
		size, align := h.sizeOf(t, f[1])
		s.size = (s.size + align - 1) / align * align
		s.fields[f[2]], s.align = s.size, max(s.align, align)
		s.names = append(s.names, f[2])
		s.size += size * h.count(t, f[3])
	}
	s.size = (s.size + s.align - 1) / s.align * s.align
	h.structs[name] = s
	h.order = append(h.order, name)
}

func (h *header) sizeOf(t *testing.T, kind string) (size, align int) {
	switch kind {
	case "char", "uint8_t":
		return 1, 1
	case "uint16_t":
		return 2, 2
	case "uint32_t", "int32_t":
		return 4, 4
	case "uint64_t":
		return 8, 8
	}
	s := h.structs[strings.TrimPrefix(kind, "struct ")]
	if s == nil {
		t.Fatalf("a field of type %q", kind)
	}
	return s.size, s.align
}

func (h *header) count(t *testing.T, dimension string) int {
	if dimension == "" {
		return 1
	}
	if dimension == bellWords {
		return int(h.constants["STAG_BELL_BITS"] / 64)
	}
	name, by, _ := strings.Cut(dimension, " / ")
	n, ok := h.constants[name]
	if !ok {
		n, ok = number(name)
	}
	if !ok {
		t.Fatalf("an array of %q", dimension)
	}
	if d, err := strconv.Atoi(by); err == nil {
		n /= uint64(d)
	}
	return int(n)
}

// compiler returns the C compiler of this machine, or "".
func compiler() string {
	for _, name := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// compiled returns what a C compiler makes of the header: a line for each size, offset and
// constant that h has.
func (h *header) compiled(t *testing.T, cc string) []string {
	t.Helper()
	var b strings.Builder
	b.WriteString("#include <stdio.h>\n#include \"abi.h\"\nint main(void) {\n")
	for _, name := range h.order {
		fmt.Fprintf(&b, "printf(\"%s %%zu\\n\", sizeof(struct %s));\n", name, name)
		for _, f := range h.structs[name].names {
			fmt.Fprintf(&b, "printf(\"%s.%s %%zu\\n\", offsetof(struct %s, %s));\n", name, f, name, f)
		}
	}
	for _, name := range sorted(h.constants) {
		fmt.Fprintf(&b, "printf(\"%s %%llu\\n\", (unsigned long long)%s);\n", name, name)
	}
	b.WriteString("return 0; }\n")
	dir := t.TempDir()
	source, program := filepath.Join(dir, "abi.c"), filepath.Join(dir, "abi")
	if err := os.WriteFile(source, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I.", "-o", program, source}
	if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cc, err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// lines returns h in the form that compiled returns.
func (h *header) lines() (lines []string) {
	for _, name := range h.order {
		s := h.structs[name]
		lines = append(lines, fmt.Sprint(name, " ", s.size))
		for _, f := range s.names {
			lines = append(lines, fmt.Sprint(name, ".", f, " ", s.fields[f]))
		}
	}
	for _, name := range sorted(h.constants) {
		lines = append(lines, fmt.Sprint(name, " ", h.constants[name]))
	}
	return lines
}
