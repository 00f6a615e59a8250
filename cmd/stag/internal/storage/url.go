package storage

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/stag-rdma/stag/iscsi"
)

// Scheme begins the URL of a disk or a portal.
const Scheme = "iscsi://"

// cut returns the parts of a URL besides portal, target and LUN: the user with the secret,
// up to the @, and the arguments, from the question mark on.
func cut(address string) (user, arguments string) {
	rest := strings.TrimPrefix(address, Scheme)
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
	user, arguments := cut(address)
	return fmt.Sprintf("%s%s%s/%s/%d%s", Scheme, user, portal, target, lun, arguments)
}

// HasSecret reports whether a URL contains a secret.
func HasSecret(address string) bool {
	user, arguments := cut(address)
	values, _ := url.ParseQuery(strings.TrimPrefix(arguments, "?"))
	return strings.HasPrefix(address, Scheme) && (strings.Contains(user, "%") || values.Get("target_password") != "")
}

// public returns a URL without users, secrets and arguments.
func public(address string) string {
	u, err := iscsi.ParseURL(address)
	switch {
	case err != nil:
		return Scheme
	case u.Target == "":
		return Scheme + u.Portal
	}
	return fmt.Sprintf("%s%s/%s/%d", Scheme, u.Portal, u.Target, u.LUN)
}
