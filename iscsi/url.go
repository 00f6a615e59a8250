package iscsi

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/stag-rdma/stag/iscsi/flow"
	"github.com/stag-rdma/stag/iscsi/login"
)

// DefaultPort is the TCP port of iSCSI (RFC 7143 §13.8).
const DefaultPort = "3260"

// maxLUN is the greatest LUN of flat addressing (SAM-5 §4.7.7.3).
const maxLUN = 1<<14 - 1

// URL names a logical unit or a portal, in the syntax of libiscsi:
//
//	iscsi://[user[%secret]@]host[:port][/target[/lun]][?argument=value&…]
//	iser://…
//
// iser means that the connection is RDMA. Such a connection has no digests: the CRC of MPA
// protects every octet.
//
// The arguments are header_digest and data_digest (none or crc32c; both by comma, the
// preferred first), target_user and target_password (the target must prove them), and auth
// (md5, sha1, sha-256, sha3-256). path (host[:port], may be repeated) is another portal of
// the target, and policy (round-robin, queue-depth, failover) says which path a command
// takes: see DialMultipath. connections is how many connections a session has:
// see Config.Connections. Secrets that the URL does not have come from the
// environment: LIBISCSI_CHAP_USERNAME, LIBISCSI_CHAP_PASSWORD,
// LIBISCSI_CHAP_TARGET_USERNAME, LIBISCSI_CHAP_TARGET_PASSWORD.
type URL struct {
	Portal string // host:port
	Target string // iSCSI name; "" for a portal
	LUN    uint16
	ISER   bool     // the connection is RDMA (RFC 7145)
	Paths  []string // host:port of further portals of the target

	connections              int    // of a session; 0: the URL does not say
	policy                   Policy // valid if policed
	policed                  bool
	chap                     *login.Credentials
	headerDigest, dataDigest []login.Digest // nil: the URL does not say
}

// ParseURL reads a URL. The error never shows a secret.
func ParseURL(s string) (u URL, err error) {
	rest, ok := strings.CutPrefix(s, "iscsi://")
	if !ok {
		if rest, u.ISER = strings.CutPrefix(s, "iser://"); !u.ISER {
			return URL{}, errors.New("iscsi URL: it begins with neither iscsi:// nor iser://")
		}
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, hasPath := strings.Cut(rest, "/")
	user, secret := os.Getenv("LIBISCSI_CHAP_USERNAME"), os.Getenv("LIBISCSI_CHAP_PASSWORD")
	if at := strings.LastIndexByte(authority, '@'); at >= 0 {
		var own bool
		if user, secret, own = strings.Cut(authority[:at], "%"); !own {
			secret = os.Getenv("LIBISCSI_CHAP_PASSWORD")
		}
		authority = authority[at+1:]
	}
	if u.Portal, err = portal(authority); err != nil {
		return URL{}, err
	}
	if hasPath && path != "" {
		if err = u.setPath(path); err != nil {
			return URL{}, err
		}
	}
	if user != "" {
		u.chap = &login.Credentials{User: user, Secret: login.Secret(secret)}
	}
	return u, u.setArguments(query)
}

// portal returns host:port of the authority of a URL.
func portal(authority string) (string, error) {
	if authority == "" {
		return "", errors.New("iscsi URL: it names no host")
	}
	host, port, err := net.SplitHostPort(authority)
	if err != nil { // there is no port
		host, port = strings.Trim(authority, "[]"), DefaultPort
		if strings.Contains(host, ":") && !strings.HasPrefix(authority, "[") {
			return "", fmt.Errorf("iscsi URL: the host %q: write an IPv6 address in brackets", authority)
		}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", fmt.Errorf("iscsi URL: the port %q: choose 1 to 65535", port)
	}
	return net.JoinHostPort(host, port), nil
}

// setPath reads target/lun.
func (u *URL) setPath(path string) error {
	name, lun, hasLUN := strings.Cut(strings.TrimSuffix(path, "/"), "/")
	u.Target = strings.ToLower(name)
	if !strings.HasPrefix(u.Target, "iqn.") && !strings.HasPrefix(u.Target, "eui.") && !strings.HasPrefix(u.Target, "naa.") {
		return fmt.Errorf("iscsi URL: the target %q: names begin with iqn., eui. or naa. and have no slash", name)
	}
	if !hasLUN {
		return nil
	}
	n, err := strconv.ParseUint(lun, 10, 16)
	if err != nil || n > maxLUN {
		return fmt.Errorf("iscsi URL: the LUN %q: choose 0 to %d", lun, maxLUN)
	}
	u.LUN = uint16(n)
	return nil
}

// setArguments reads what follows the question mark.
func (u *URL) setArguments(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("iscsi URL: the arguments cannot be read: write them as name=value&name=value")
	}
	peer, peerSecret := os.Getenv("LIBISCSI_CHAP_TARGET_USERNAME"), os.Getenv("LIBISCSI_CHAP_TARGET_PASSWORD")
	var algorithms []login.Algorithm
	for name, list := range values {
		value := list[len(list)-1]
		switch name {
		case "header_digest":
			u.headerDigest, err = digests(value)
		case "data_digest":
			u.dataDigest, err = digests(value)
		case "target_user":
			peer = value
		case "target_password":
			peerSecret = value
		case "connections":
			err = u.setConnections(value)
		case "path":
			err = u.setPaths(list)
		case "policy":
			err = u.setPolicy(value)
		case "auth":
			algorithms, err = algorithm(value)
		default:
			err = fmt.Errorf("iscsi URL: there is no argument %q", name)
		}
		if err != nil {
			return err
		}
	}
	if u.ISER && (wants(u.headerDigest) || wants(u.dataDigest)) {
		return errors.New("iscsi URL: iSER has no digests, because the CRC of MPA protects every octet: leave header_digest and data_digest out")
	}
	if u.ISER && u.connections > 1 {
		return errISERConnections
	}
	if u.chap == nil {
		if peerSecret != "" {
			return errors.New("iscsi URL: the target can prove itself only to an initiator with a user: add user%secret@")
		}
		return nil
	}
	u.chap.Algorithms = algorithms
	if peerSecret != "" {
		u.chap.PeerUser, u.chap.PeerSecret = peer, login.Secret(peerSecret)
	}
	return nil
}

var errISERConnections = errors.New("a session of iSER has one connection: leave connections out")

// wants reports whether a list demands a digest.
func wants(list []login.Digest) bool {
	return len(list) != 0 && !slices.Contains(list, login.NoDigest)
}

// setPaths reads further portals.
func (u *URL) setPaths(list []string) error {
	for _, authority := range list {
		p, err := portal(authority)
		if err != nil {
			return fmt.Errorf("%w, in path=%s", err, authority)
		}
		u.Paths = append(u.Paths, p)
	}
	return nil
}

func (u *URL) setConnections(value string) error {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > flow.MaxConnections {
		return fmt.Errorf("iscsi URL: %s connections in a session: choose 1 to %d", value, flow.MaxConnections)
	}
	u.connections = n
	return nil
}

func (u *URL) setPolicy(name string) error {
	i := slices.Index(policies, name)
	if i < 0 {
		return fmt.Errorf("iscsi URL: the policy %q: choose %s", name, strings.Join(policies, ", "))
	}
	u.policy, u.policed = Policy(i), true
	return nil
}

// spread returns a URL for each path.
func (u URL) spread() []URL {
	all := []URL{u}
	for _, p := range u.Paths {
		other := u
		other.Portal = p
		all = append(all, other)
	}
	for i := range all {
		all[i].Paths = nil
	}
	return all
}

// digests reads a list of digests.
func digests(value string) (list []login.Digest, err error) {
	for name := range strings.SplitSeq(strings.ToLower(value), ",") {
		switch name {
		case "crc32c":
			list = append(list, login.CRC32C)
		case "none":
			list = append(list, login.NoDigest)
		default:
			return nil, fmt.Errorf("iscsi URL: the digest %q: choose none or crc32c", name)
		}
	}
	return list, nil
}

func algorithm(value string) ([]login.Algorithm, error) {
	for _, a := range login.Algorithms {
		if plain(a.String()) == plain(value) {
			return []login.Algorithm{a}, nil
		}
	}
	return nil, fmt.Errorf("iscsi URL: the CHAP algorithm %q: choose md5, sha1, sha-256 or sha3-256", value)
}

// plain returns a name without what people write differently.
func plain(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "") }
