package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf16"
)

// writeJSON appends v as JSON. Package json leaves some characters that control a terminal
// or that a terminal does not show. writeJSON escapes these characters, too.
func writeJSON(b *bytes.Buffer, v any, indent string) {
	var plain bytes.Buffer
	enc := json.NewEncoder(&plain)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		panic(err) // rows have no value that cannot be encoded
	}
	for _, r := range plain.String() {
		switch {
		case r == '\n' || r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			fmt.Fprintf(b, `\u%04x\u%04x`, hi, lo)
		case !unicode.IsGraphic(r):
			fmt.Fprintf(b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
}
