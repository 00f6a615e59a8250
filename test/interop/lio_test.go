//go:build interop

package interop

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stag-rdma/stag/cmd/stag/pair"
	"github.com/stag-rdma/stag/iscsi"
	"github.com/stag-rdma/stag/rdma"
)

// lioName is the name of LIO's target. Its LUN 0 is in memory, and LUN 1 is the file lioFile.
const (
	lioName = "iqn.2026-01.test.lio:disks"
	lioFile = "/disks/file"

	lioMemoryLUN, lioFileLUN = 0, 1

	iserPortal = "3262"
)

// lio is LIO in the guest with one target.
type lio struct {
	*rig
	scheme   string // of URLs: iscsi or iser
	portal   string
	settings string
}

// lio starts LIO, and makes a target with settings: files below its group, as in
// "param/ImmediateData=No". The end of the row removes the target.
func (r *rig) lio(settings ...string) *lio {
	r.Helper()
	return r.lioOver("iscsi", portal, settings...)
}

// lioISER makes the target over iSER.
func (r *rig) lioISER(settings ...string) *lio {
	r.Helper()
	return r.lioOver("iser", iserPortal, settings...)
}

func (r *rig) lioOver(scheme, port string, settings ...string) *lio {
	r.Helper()
	r.storage()
	l := &lio{r, scheme, net.JoinHostPort(guestV4, port), strings.Join(settings, " ")}
	r.inGuest("/host/lio.sh start")
	l.make()
	r.Cleanup(func() {
		if r.guest.alive() && !r.Failed() {
			l.remove()
		}
	})
	return l
}

func (l *lio) make() {
	l.Helper()
	command := map[string]string{"iscsi": "target", "iser": "iser"}[l.scheme]
	l.inGuest(fmt.Sprintf("/host/lio.sh %s %s %s %s", command, lioName, l.portal, l.settings))
}

func (l *lio) remove() {
	l.Helper()
	l.inGuest(fmt.Sprintf("/host/lio.sh remove %s %s", lioName, l.portal))
}

// url returns the URL of a disk. user is "" or "user%secret@".
func (l *lio) url(user string, lun int, arguments string) string {
	return fmt.Sprintf("%s://%s%s/%s/%d%s", l.scheme, user, l.portal, lioName, lun, arguments)
}

// hash returns the SHA-256 of the first n octets of LIO's file.
func (l *lio) hash(n int) string {
	l.Helper()
	sum, _, _ := strings.Cut(l.inGuest(fmt.Sprintf("head -c %d %s | sha256sum", n, lioFile)), " ")
	return sum
}

// open opens an adapter for connections of a carrier.
func (r *rig) open(c carrier) (a *rdma.Adapter) {
	r.Helper()
	if c.takesOver {
		return r.adapter()
	}
	r.Must(r.pair.Do(pair.A, func() (err error) {
		a, err = rdma.Open(rdma.Config{KernelPort: true})
		return err
	}))
	r.Cleanup(func() { r.Check(a.Close()) })
	return a
}

// dial opens a disk. The end of the row closes it.
func (r *rig) dial(c carrier, url string, cfg iscsi.Config) *iscsi.Disk {
	r.Helper()
	cfg.Adapter = r.open(c)
	d, err := iscsi.Dial(r.context(), url, cfg)
	r.Must(err)
	r.Cleanup(func() { r.Check(d.Close()) })
	if d.Identity().Vendor != "LIO-ORG" {
		r.Errorf("the disk is %+v, want one of LIO", d.Identity())
	}
	return d
}

// random returns n random octets.
func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// roundTrip writes octets to the begin of the disk, and reads them. If the disk is LIO's
// file, the guest must find them there.
func (l *lio) roundTrip(d *iscsi.Disk, octets []byte) {
	l.Helper()
	_, err := d.WriteAt(octets, 0)
	l.Must(err)
	if sum := fmt.Sprintf("%x", sha256.Sum256(octets)); d.LUN() == lioFileLUN && l.hash(len(octets)) != sum {
		l.Errorf("LIO's file has not the octets that were written")
	}
	got := make([]byte, len(octets))
	_, err = d.ReadAt(got, 0)
	l.Must(err)
	if !bytes.Equal(got, octets) {
		l.Errorf("other octets were read than were written")
	}
}

// TestLIODiscovery finds LIO's target and its disks.
func TestLIODiscovery(t *testing.T) {
	row(t, "discover, ls, inq", about{"LIO", "3 commands"}, func(r *rig) {
		l := r.lio()
		for _, c := range []struct {
			args string
			want []string
		}{
			{"discover iscsi://" + l.portal, []string{lioName, l.portal}},
			{"ls iscsi://" + l.portal, []string{lioName, "Lun:1    Type:disk (Size:67108864 Block:512) LIO-ORG FILEIO"}},
			{"inq " + l.url("", lioFileLUN, ""), []string{"LIO-ORG", "FILEIO"}},
		} {
			cmd := r.stag(append([]string{"iscsi"}, strings.Fields(c.args)...)...)
			r.succeeds(cmd, nil)
			for _, want := range c.want {
				if !strings.Contains(cmd.out.String(), want) {
					r.Errorf("stag iscsi %s does not say %q:\n%s", c.args, want, cmd.out.String())
				}
			}
		}
	})
}

// proof is how the two ends prove who they are.
type proof struct {
	name     string
	auth     string // argument of the URL; "": no CHAP
	number   int    // of the algorithm
	mutual   bool
	settings []string
}

// proofs are all ways: none, and each algorithm of LIO in one direction and in both.
func proofs() []proof {
	all := []proof{{name: "no CHAP"}}
	for i, auth := range []string{"md5", "sha1", "sha-256", "sha3-256"} {
		for _, mutual := range []bool{false, true} {
			p := proof{name: "CHAP " + auth, auth: auth, number: 5 + i, mutual: mutual,
				settings: []string{"attrib/authentication=1", "param/AuthMethod=CHAP", "auth/userid=alice", "auth/password=alice-secret-12"}}
			if mutual {
				p.name = "mutual " + p.name
				p.settings = append(p.settings, "auth/userid_mutual=disks", "auth/password_mutual=target-secret-1")
			}
			all = append(all, p)
		}
	}
	return all
}

// url returns the URL of LIO's file, with what proves who this end is.
func (p proof) url(l *lio, arguments string) string {
	if p.auth == "" {
		return l.url("", lioFileLUN, arguments)
	}
	if arguments += "&auth=" + p.auth; p.mutual {
		arguments += "&target_user=disks&target_password=target-secret-1"
	}
	return l.url("alice%alice-secret-12@", lioFileLUN, arguments)
}

// TestLIOLogin logs in to LIO with each combination of digests and CHAP. The digests and
// the algorithm are those that LIO names in the capture.
func TestLIOLogin(t *testing.T) {
	n := 0
	for _, header := range []string{"none", "crc32c"} {
		for _, data := range []string{"none", "crc32c"} {
			for _, p := range proofs() {
				c := carriers[n%len(carriers)]
				n++
				row(t, fmt.Sprintf("digests %s, %s, %s, %s", header, data, p.name, c.name), about{"LIO", "64 KiB"}, func(r *rig) {
					l := r.lio(p.settings...)
					d := r.dial(c, p.url(l, "?header_digest="+header+"&data_digest="+data), iscsi.Config{})
					l.says("HeaderDigest="+digestValue(header), "DataDigest="+digestValue(data))
					l.proves(p)
					l.roundTrip(d, random(64<<10))
				})
			}
		}
	}
}

// proves checks that LIO has chosen the algorithm, and has proven who it is.
func (l *lio) proves(p proof) {
	l.Helper()
	if p.auth != "" {
		l.says(fmt.Sprintf("CHAP_A=%d", p.number))
	}
	if p.mutual {
		l.says("CHAP_N=disks")
	}
}

func digestValue(argument string) string {
	if argument == "none" {
		return "None"
	}
	return strings.ToUpper(argument)
}

// says waits until the capture has text keys that LIO has sent.
func (l *lio) says(keys ...string) {
	l.Helper()
	for _, key := range keys {
		l.Eventually("LIO says "+key, func() bool { return bytes.Contains(l.sniffer.sentBy(guestV4), []byte(key+"\x00")) })
	}
}

// TestLIORefused logs in with a wrong secret, and to a target that is not there. It also
// refuses a target that has another secret than it expects.
func TestLIORefused(t *testing.T) {
	for _, c := range []struct {
		name string
		url  func(l *lio) string
		says string
	}{
		{"a wrong secret", func(l *lio) string { return l.url("alice%not-the-secret@", 0, "?auth=md5") }, "authentication"},
		{"no secret", func(l *lio) string { return l.url("", 0, "") }, "authentication"},
		{"a target with another secret", func(l *lio) string {
			return l.url("alice%alice-secret-12@", 0, "?auth=md5&target_user=disks&target_password=another-secret")
		}, "the CHAP response is wrong"},
		{"no such target", func(l *lio) string { return "iscsi://" + l.portal + "/iqn.2026-01.test.lio:nothing/0" }, "status 0301"},
		{"no such disk", func(l *lio) string { return l.url("alice%alice-secret-12@", 7, "?auth=md5") }, "LUN 7"},
	} {
		row(t, c.name, about{"LIO", "1 login"}, func(r *rig) {
			l := r.lio(proofs()[2].settings...)
			d, err := iscsi.Dial(r.context(), c.url(l), iscsi.Config{Adapter: r.open(carriers[0])})
			if err == nil {
				r.Check(d.Close())
				err = errors.New("the login succeeds")
			}
			if !strings.Contains(err.Error(), c.says) {
				r.Errorf("%v, want %q", err, c.says)
			}
		})
	}
}
