package storage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/stag-rdma/stag/iscsi/login"
)

// secrets are the contents of a file of CHAP secrets. The same file serves both ends.
type secrets struct {
	initiators map[string]string // secrets by which initiators log in, by user
	first      string            // user of the first line
	target     [2]string         // user and secret that the target proves; "": none
}

// readSecrets reads a file with lines "initiator USER SECRET" and at most one line "target
// USER SECRET". Errors never show a secret.
func readSecrets(name string) (secrets, error) {
	f, err := os.Open(name)
	if err != nil {
		return secrets{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return secrets{}, err
	}
	if info.Mode().IsRegular() && info.Mode()&0o077 != 0 {
		return secrets{}, fmt.Errorf("%s: other users may read the secrets: chmod 600 %s", name, name)
	}
	s, err := parseSecrets(f)
	if err != nil {
		return secrets{}, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

func parseSecrets(r io.Reader) (secrets, error) {
	s := secrets{initiators: map[string]string{}}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.Fields(line)
		if len(words) != 3 || words[0] != "initiator" && words[0] != "target" {
			return s, fmt.Errorf("line %d: write initiator USER SECRET, or target USER SECRET", n)
		}
		if len(words[2]) < login.MinSecret {
			return s, fmt.Errorf("line %d: the secret has less than %d octets: choose a longer one", n, login.MinSecret)
		}
		if err := s.add(words[0] == "target", words[1], words[2]); err != nil {
			return s, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return s, err
	}
	if s.first == "" {
		return s, errors.New("no line says initiator USER SECRET: write one")
	}
	return s, nil
}

// add takes in a line.
func (s *secrets) add(target bool, user, secret string) error {
	switch {
	case target && s.target[0] != "":
		return errors.New("a second target: leave one out")
	case target:
		s.target = [2]string{user, secret}
	case s.initiators[user] != "":
		return fmt.Errorf("initiator %s again: leave one out", user)
	default:
		s.initiators[user] = secret
		if s.first == "" {
			s.first = user
		}
	}
	return nil
}

// setSecrets gives the secrets of the file to the sessions of this process, in the
// variables that package iscsi reads. A URL with a user selects the line of that user.
func (o *Options) setSecrets(address string) error {
	if o.Secrets == "" {
		return nil
	}
	s, err := readSecrets(o.Secrets)
	if err != nil {
		return err
	}
	user, _ := cut(address)
	user, _, double := strings.Cut(strings.TrimSuffix(user, "@"), "%")
	if double {
		return fmt.Errorf("the URL has a secret, and so has %s: leave out the one in the URL", o.Secrets)
	}
	if user == "" && len(s.initiators) > 1 {
		return fmt.Errorf("%s has %d initiators: write the name of one before the host in the URL, as in iscsi://%s@HOST", o.Secrets, len(s.initiators), s.first)
	}
	if user == "" {
		user = s.first
	}
	secret := s.initiators[user]
	if secret == "" {
		return fmt.Errorf("%s has no initiator %s: add the line, or name another user in the URL", o.Secrets, user)
	}
	for name, value := range map[string]string{
		"LIBISCSI_CHAP_USERNAME": user, "LIBISCSI_CHAP_PASSWORD": secret,
		"LIBISCSI_CHAP_TARGET_USERNAME": s.target[0], "LIBISCSI_CHAP_TARGET_PASSWORD": s.target[1],
	} {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}
