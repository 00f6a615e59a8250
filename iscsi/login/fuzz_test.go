package login

import (
	"errors"
	"testing"

	"github.com/stag-rdma/stag/iscsi/pdu"
)

// FuzzTarget gives octets to a target. The target never fails without a status, and never
// succeeds without a name and, where it has users, without a proof.
func FuzzTarget(f *testing.F) {
	for _, c := range logins(f) {
		if len(c.requests) < 4096 {
			f.Add(c.requests, true)
			f.Add(c.requests, false)
		}
	}
	f.Fuzz(func(t *testing.T, octets []byte, users bool) {
		r := &anyName{registry{existing: Existing{Session: true, TSIH: 1, MaxConnections: 4}}}
		if users {
			r.policy.CHAP = &Verifier{Secret: secrets("alice", alice), Nonce: testNonce}
		}
		m := newTarget(t, r, Wishes{HeaderDigest: []Digest{CRC32C, NoDigest}, NoImmediateData: true})
		run(octets, func(h *pdu.Header, data []byte) bool {
			out, done, err := m.Step(h, data, nil)
			var refused *Refused
			if err != nil && !errors.Is(err, errNoLogin) && (!errors.As(err, &refused) || refused.Status == 0) {
				t.Fatalf("an error without a status: %v", err)
			}
			if p := m.Params(); done && (p.InitiatorName == "" || users && p.User != "alice" || p.FirstBurstLength > p.MaxBurstLength && !p.InitialR2T) {
				t.Fatalf("%+v", p)
			}
			if len(out) > 0 {
				whole(t, out)
			}
			return err == nil && !done
		})
	})
}

// FuzzInitiator gives octets to an initiator that demands a proof of the target.
func FuzzInitiator(f *testing.F) {
	for _, c := range logins(f) {
		if len(c.responses) < 4096 {
			f.Add(c.responses, true)
			f.Add(c.responses, false)
		}
	}
	f.Fuzz(func(t *testing.T, octets []byte, mutual bool) {
		config := initiatorConfig()
		if mutual {
			config.CHAP = &Credentials{User: "alice", Secret: Secret(alice), PeerSecret: Secret(bob), Nonce: testNonce}
		}
		i := newInitiator(t, config)
		i.Start(nil)
		run(octets, func(h *pdu.Header, data []byte) bool {
			h.SetISID(config.ISID) // so that captured responses get further
			h.SetInitiatorTaskTag(config.Tag)
			out, done, err := i.Step(h, data, nil)
			if p := i.Params(); done && (mutual || p.TSIH == 0 || p.FirstBurstLength > p.MaxBurstLength || p.MaxBurstLength > 262144) {
				t.Fatalf("%+v", p)
			}
			if len(out) > 0 {
				whole(t, out)
			}
			return err == nil && !done
		})
	})
}

// FuzzRecords: a list of targets that is taken is the same when it is sent again.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("TargetName=iqn.2026-01.test.stag:t1\x00TargetAddress=192.0.2.1:3260,1\x00TargetAddress=[2001:db8::1]\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		records, err := ParseRecords(text)
		if err != nil {
			return
		}
		again, err := ParseRecords(AppendRecords(nil, records))
		if err != nil || len(again) != len(records) {
			t.Fatalf("%v, %v, %v", records, again, err)
		}
		for i := range again {
			if again[i].Name != records[i].Name || len(again[i].Portals) != len(records[i].Portals) {
				t.Fatalf("%v, %v", records, again)
			}
		}
	})
}

// run gives octets to an inbox until step returns false or the inbox fails.
func run(octets []byte, step func(h *pdu.Header, data []byte) bool) {
	var in Inbox
	for len(octets) > 0 {
		n := copy(in.Want(), octets)
		octets = octets[n:]
		done, err := in.Got(n)
		if err != nil {
			return
		}
		if done {
			if !step(in.Header(), in.Data()) {
				return
			}
			in.Reset()
		}
	}
}
