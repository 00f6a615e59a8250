package storage

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/stag-rdma/stag/iscsi"
)

// Scheme begins the URL of a disk or a portal. That of a connection over RDMA begins with
// overRDMA.
const (
	Scheme   = "iscsi://"
	overRDMA = "iser://"
)

// IsURL reports whether an end of a copy is a disk.
func IsURL(end string) bool {
	return strings.HasPrefix(end, Scheme) || strings.HasPrefix(end, overRDMA)
}

// split returns the scheme of a URL, and the rest.
func split(address string) (scheme, rest string) {
	if rest, ok := strings.CutPrefix(address, overRDMA); ok {
		return overRDMA, rest
	}
	return Scheme, strings.TrimPrefix(address, Scheme)
}

// cut returns the parts of a URL besides portal, target and LUN: the user with the secret,
// up to the @, and the arguments, from the question mark on.
func cut(address string) (user, arguments string) {
	_, rest := split(address)
	if i := strings.IndexByte(rest, '?'); i >= 0 {
		rest, arguments = rest[:i], rest[i:]
	}
	authority, _, _ := strings.Cut(rest, "/")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		user = authority[:at+1]
	}
	return user, arguments
}

// at returns the URL of a logical unit of another target or portal, with the user and the
// arguments of address.
func at(address, portal, target string, lun uint16) string {
	scheme, _ := split(address)
	user, arguments := cut(address)
	return fmt.Sprintf("%s%s%s/%s/%d%s", scheme, user, portal, target, lun, arguments)
}

// HasSecret reports whether a URL contains a secret.
func HasSecret(address string) bool {
	user, arguments := cut(address)
	values, _ := url.ParseQuery(strings.TrimPrefix(arguments, "?"))
	return IsURL(address) && (strings.Contains(user, "%") || values.Get("target_password") != "")
}

// public returns a URL without users, secrets and arguments.
func public(address string) string {
	scheme, _ := split(address)
	u, err := iscsi.ParseURL(address)
	switch {
	case err != nil:
		return scheme
	case u.Target == "":
		return scheme + u.Portal
	}
	return fmt.Sprintf("%s%s/%s/%d", scheme, u.Portal, u.Target, u.LUN)
}
