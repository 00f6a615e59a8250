package libiscsi

import (
	"fmt"
	"regexp"
	"strings"
)

// The lines of iscsi-test-cu. A reason may stand on the line of the test or below it, and
// so may the outcome. A reason of the next step may stand behind the outcome.
var (
	suiteLine = regexp.MustCompile(`^\s*Suite: (\S+)`)
	testLine  = regexp.MustCompile(`^\s*Test: (\S+) \.\.\.(.*)$`)
	totalLine = regexp.MustCompile(`^\s*tests\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+\d+`)
	reason    = regexp.MustCompile(`\[(?:SKIPPED|FAILED)\]\s*(.*)`)
	endOfTest = regexp.MustCompile(`^(?:.*\s)?(passed|FAILED)\s*$|^\s*(passed|FAILED)\s`)
)

// Parse reads what iscsi-test-cu prints. The error says if the program did not come to
// its end, and if its own totals are not those of the lines.
func Parse(out string) (r Report, err error) {
	suite, current := "", -1
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\r\n")
		if m := suiteLine.FindStringSubmatch(line); m != nil {
			suite, current = m[1], -1
			continue
		}
		if m := testLine.FindStringSubmatch(line); m != nil {
			r = append(r, Result{Name: suite + "." + m[1]})
			current, line = len(r)-1, m[2]
		}
		if m := totalLine.FindStringSubmatch(line); m != nil {
			return r, r.check(m[1:])
		}
		if current >= 0 {
			r[current].read(line)
		}
	}
	return r, fmt.Errorf("%d tests and no summary: the program did not come to its end", len(r))
}

// read takes one line of a test.
func (t *Result) read(line string) {
	t.Log += line + "\n"
	if m := reason.FindStringSubmatch(line); m != nil && (t.Why == "" || strings.Contains(line, "[FAILED]")) {
		t.Why = strings.TrimSpace(m[1])
	}
	switch m := endOfTest.FindStringSubmatch(line); {
	case strings.Contains(line, "[SKIPPED]") && t.Outcome != Failed:
		t.Outcome = Skipped
	case m == nil:
	case m[1]+m[2] == "FAILED":
		t.Outcome = Failed
	case t.Outcome == "":
		t.Outcome = Passed
	}
}

// check compares the report with the totals of the program: all tests, those that ran,
// those that passed or were skipped, those that failed.
func (r Report) check(totals []string) error {
	passed := r.Count(Passed) + r.Count(Skipped)
	got := []string{fmt.Sprint(len(r)), fmt.Sprint(len(r)), fmt.Sprint(passed), fmt.Sprint(r.Count(Failed))}
	for i := range got {
		if got[i] != totals[i] {
			return fmt.Errorf("the summary has the totals %v, and the lines %v", totals, got)
		}
	}
	return nil
}
