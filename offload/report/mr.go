package report

import (
	"cmp"
	"fmt"
	"strings"
)

// MR is an entry of the translation and protection table.
type MR struct {
	STag    string   `json:"stag"` // STag as 0x and eight hexadecimal digits
	Kind    string   `json:"kind"` // kind of the entry: region, window or iscsi
	Valid   bool     `json:"valid"`
	PD      uint32   `json:"pd"`
	QP      uint32   `json:"qp,omitempty"` // the only QP that may use the entry; 0: all QPs of the PD
	Start   uint64   `json:"start"`        // tagged offset of the first octet
	Length  uint64   `json:"length"`
	Rights  []string `json:"rights"`                // names of the rights, such as local_read and remote_write
	Heap    bool     `json:"heap"`                  // the memory is in the region heap; otherwise the application has allocated it
	Window  string   `json:"window_type,omitempty"` // type of a window: 1, 2A or 2B
	Parent  uint32   `json:"parent,omitempty"`      // index of the region that a window is bound to
	Windows uint32   `json:"windows,omitempty"`     // number of windows that are bound to the region

	OneTouch bool `json:"one_touch,omitempty"` // the entry serves one message of a peer
	Touched  bool `json:"touched,omitempty"`   // that message has been placed out of order, and is not delivered

	PageSize uint64 `json:"page_size,omitempty"` // octets of a page of a page list; 0: the memory is no page list
	Pages    uint64 `json:"pages,omitempty"`     // number of pages of a page list
	Shared   uint32 `json:"shared,omitempty"`    // number of regions over the same memory that RegSharedMR has made, with the first one
}

// STag formats an STag for reports.
func STag(stag uint32) string { return fmt.Sprintf("0x%08x", stag) }

// Rights splits a list such as "local read, remote write", or "none". Each right
// becomes one word.
func Rights(list string) []string {
	if list == "none" {
		return []string{}
	}
	return strings.Split(strings.ReplaceAll(strings.ReplaceAll(list, ", ", ","), " ", "_"), ",")
}

// Columns returns the row of `stag show mrs`, in the words of `rdma resource show mr`.
func (m MR) Columns() []string {
	return []string{"stag " + m.STag, "type " + m.Kind, "state " + either(m.Valid, "valid", "invalid"), fmt.Sprint("pdn ", m.PD), Word("lqpn ", m.QP),
		fmt.Sprintf("iova %#x", m.Start), fmt.Sprint("mrlen ", m.Length), "in " + either(m.Heap, "heap", "application"),
		Words(Word("mwtype ", m.Window), Word("windows ", m.Windows), Word("region ", m.Parent), Word("pgsz ", m.PageSize), Word("pages ", m.Pages), Word("shared ", m.Shared), when(m.OneTouch, "one-touch"), when(m.Touched, "touched")), "access " + cmp.Or(strings.Join(m.Rights, ","), "none")}
}
