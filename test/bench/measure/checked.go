package measure

import (
	"slices"
	"strings"
)

// These are the values of Row.Checked.
const (
	checkedNothing = "nothing"
	checkedCRC     = "CRC"
	checkedSum     = "TCP sum"
	checkedBoth    = "TCP sum, CRC"
)

// checked says what the two ends compute for each octet. Between two kernels the pair's
// checksum offload is on, as it is by default: a veth promises to compute TCP's checksum
// and does not, and the receiver trusts it. The pair's offload is off if stag has an end, so stag computes and
// checks the sum. The CRC is that of MPA.
func (s setting) checked() string {
	switch crc := s.verb != plainStream && !s.noCRC; {
	case s.raw == rawCopied:
		return checkedCRC
	case s.raw != notRaw:
		return checkedNothing
	case s.stacks == [2]stack{kernel, kernel} && crc:
		return checkedCRC
	case s.stacks == [2]stack{kernel, kernel}:
		return checkedNothing
	case crc:
		return checkedBoth
	}
	return checkedSum
}

// says reports whether the table has a column with what was checked.
func (t *Table) says() bool {
	return slices.ContainsFunc(t.Rows, func(r *Row) bool { return r.Checked != "" })
}

// checks returns lines that say which rows have which checksums.
func (t *Table) checks() (lines []string) {
	var order []string
	rows := map[string][]string{}
	for _, r := range t.Rows {
		if r.Checked == "" {
			continue
		}
		if rows[r.Checked] == nil {
			order = append(order, r.Checked)
		}
		if !slices.Contains(rows[r.Checked], r.Name) {
			rows[r.Checked] = append(rows[r.Checked], r.Name)
		}
	}
	for _, what := range order {
		line := "Checked: " + what + ":"
		for i, name := range rows[what] {
			if i > 0 {
				line += ";"
			}
			if len(line)+len(name) > 100 {
				lines, line = append(lines, line), "  "
			}
			line += " " + name
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}
