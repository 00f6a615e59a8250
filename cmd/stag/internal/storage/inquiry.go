package storage

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/iscsi/scsi"
)

// Answer is what a logical unit says of itself.
type Answer struct {
	URL    string         `json:"url"`
	Name   string         `json:"name"`           // of the page, or "Standard INQUIRY" or "Capacity"
	Page   *uint8         `json:"page,omitempty"` // vital product data only
	Fields map[string]any `json:"fields"`
	Hex    string         `json:"hex,omitempty"` // octets of the page; vital product data only

	rows []row
}

// row is a field of an Answer.
type row struct {
	name  string // in JSON
	label string // in text
	value any
}

// newAnswer makes an Answer of rows.
func newAnswer(url, name string, rows []row) Answer {
	a := Answer{URL: public(url), Name: name, Fields: map[string]any{}, rows: rows}
	for _, r := range rows {
		a.Fields[r.name] = r.value
	}
	return a
}

// Print prints a line for each field, as iscsi-inq. If no field of the page is known, it
// prints the octets.
func (a Answer) Print(w io.Writer) error {
	if a.Page != nil {
		if _, err := fmt.Fprintf(w, "Page:0x%02x %s\n", *a.Page, a.Name); err != nil {
			return err
		}
	}
	for _, r := range a.rows {
		if _, err := fmt.Fprintf(w, "%s:%v\n", r.label, text(r.value)); err != nil {
			return err
		}
	}
	if len(a.rows) == 0 {
		b, _ := hex.DecodeString(a.Hex)
		_, err := io.WriteString(w, hex.Dump(b))
		return err
	}
	return nil
}

// text returns how a value is printed.
func text(v any) any {
	switch v := v.(type) {
	case bool:
		return map[bool]string{false: "no", true: "yes"}[v]
	case []string:
		return strings.Join(v, " ")
	}
	return v
}

// Inquire asks a logical unit for its standard INQUIRY data.
func Inquire(ctx context.Context, o Options, url string) (a Answer, err error) {
	err = o.session(ctx, url, func(s *iscsi.Session, lun uint16) error {
		q, err := standard(ctx, s, lun)
		if err != nil {
			return err
		}
		standards := make([]string, 0, len(q.Standards))
		for _, v := range q.Standards {
			standards = append(standards, fmt.Sprintf("0x%04x", v))
		}
		a = newAnswer(url, "Standard INQUIRY", []row{
			{"connected", "Connected", q.Qualifier == scsi.Connected}, {"type", "Peripheral Device Type", q.Type.String()},
			{"removable", "Removable", q.Removable}, {"version", "Version", q.Version}, {"tpgs", "TPGS", q.TPGS},
			{"third_party_copy", "3PC", q.ThirdCopy}, {"protect", "Protect", q.Protect}, {"command_queueing", "CmdQue", q.CmdQueue},
			{"vendor", "Vendor", q.Vendor}, {"product", "Product", q.Product}, {"revision", "Revision", q.Revision},
			{"version_descriptors", "Version Descriptors", standards},
		})
		return nil
	})
	return a, err
}

// session logs in to the target of a URL, and calls f with the session.
func (o *Options) session(ctx context.Context, url string, f func(s *iscsi.Session, lun uint16) error) error {
	u, err := iscsi.ParseURL(url)
	if err != nil {
		return err
	}
	return o.reach(ctx, url, shallow, func(c iscsi.Config) error {
		s, err := iscsi.DialSession(ctx, url, c)
		if err != nil {
			return err
		}
		return errors.Join(f(s, u.LUN), s.Close())
	})
}

// Page is a page of vital product data on a command line: a number as in sg_vpd (131,
// 0x83 or 83h), or a name.
func Page(word string) (uint8, error) {
	for code, p := range pages {
		if p.word == word {
			return code, nil
		}
	}
	digits, base := word, 0
	if rest, ok := strings.CutSuffix(strings.ToLower(word), "h"); ok {
		digits, base = rest, 16
	}
	n, err := strconv.ParseUint(digits, base, 8)
	if err != nil {
		return 0, fmt.Errorf("page %q: choose 0x00 to 0xff, or one of %s", word, strings.Join(PageNames(), ", "))
	}
	return uint8(n), nil
}
